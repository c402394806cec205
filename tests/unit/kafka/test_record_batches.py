"""Record batches of Kafka, decoded: what is in them, what is left out, and what is refused."""

from __future__ import annotations

import logging
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Final

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_on_kafka.base.errors import Corrupt, NotSupportedYet
from pulsar_on_kafka.kafka.reading import batch_compression, record_batches
from pulsar_on_kafka.kafka.reading.events import KafkaPartition
from pulsar_on_kafka.kafka.reading.record_batches import Decoded, FetchedRecord, decode
from pulsar_on_kafka.kafka.wire.fetch_messages import AbortedRange
from pulsar_on_kafka_mapping.errors import CorruptRecord
from tests.kafka_batches import ATTRIBUTES_AT, CODECS, HEADER_BYTES, Given, batch, control, sealed, with_bytes
from tests.seeds import examples, for_each_seed

WHERE: Final = KafkaPartition("orders", 3)
COUNT_AT: Final = 57
LAST_DELTA_AT: Final = 23
COUNT_FOR_C: Final = 10
"""So many records are decoded by the reader in C."""

RAW = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=80), RAW), max_size=70)
RECORDS = st.lists(st.tuples(st.integers(0, 2**45), RAW, RAW, HEADERS), min_size=1, max_size=80)


def plain(*values: bytes) -> list[Given]:
    return [(1000 + number, b"k", value, []) for number, value in enumerate(values)]


def flat(found: Sequence[Decoded]) -> list[FetchedRecord]:
    return [record for each in found for record in each.records]


def read(data: bytes, position: int = 0, aborted: Sequence[AbortedRange] = ()) -> list[tuple[int, bytes | None]]:
    found = flat(list(decode(WHERE, data, position, aborted, google_crc32c.value)))
    return [(record.offset(), record.value()) for record in found]


@settings(max_examples=examples(200))
@given(records=RECORDS, base=st.integers(0, 2**40), codec=st.sampled_from(sorted(CODECS)), appended=st.booleans())
def test_records_come_back_as_they_were(records: list[Given], base: int, codec: str, appended: bool) -> None:
    data = batch(records, base, codec, attributes=0x08 if appended else 0)
    (found,) = decode(WHERE, data, 0, checksum=google_crc32c.value)
    largest = max(each[0] for each in records)
    assert found.position == base + len(records)
    for offset, (record, (timestamp_ms, key, value, headers)) in enumerate(zip(found.records, records, strict=True)):
        assert (record.topic(), record.partition(), record.offset()) == (*WHERE, base + offset)
        assert (record.key(), record.value(), len(record)) == (key, value, len(value or b""))
        assert record.headers() == (headers or None)
        assert record.timestamp() == ((2, largest) if appended else (1, timestamp_ms))
        assert record.error() is None


def test_records_before_the_position_are_left_out() -> None:
    data = batch(plain(b"a", b"b")) + batch(plain(b"c", b"d"), 2) + batch(plain(b"e"), 9)
    assert read(data, 3) == [(3, b"d"), (9, b"e")]
    found = list(decode(WHERE, data, 3))
    assert [each.position for each in found] == [3, 4, 10]


def test_a_truncated_batch_at_the_end_is_left_out() -> None:
    whole, next_one = batch(plain(b"a")), batch(plain(b"b"), 1)
    for cut in range(len(next_one)):
        assert read(whole + next_one[:cut]) == [(0, b"a")]
    assert list(decode(WHERE, b"", 7)) == []


@pytest.mark.parametrize("size", [1, 16, 17, 60, 70])
def test_nothing_but_a_truncated_batch_is_an_error(size: int) -> None:
    with pytest.raises(Corrupt, match=rf"orders-3 offset 0: {size} bytes have no whole batch"):
        read(batch(plain(b"a" * 20))[:size])


def test_markers_and_aborted_transactions_are_left_out() -> None:
    data = b"".join(
        [
            batch(plain(b"aborted"), 0, producer_id=7, attributes=0x10),
            batch(plain(b"of another"), 1, producer_id=8, attributes=0x10),
            batch(plain(b"of none"), 2, producer_id=7),
            control(3, 7, commit=False),
            batch(plain(b"committed"), 4, producer_id=7, attributes=0x10),
            control(5, 7, commit=True),
            control(6, 8, commit=True),
            batch(plain(b"aborted later"), 7, producer_id=7, attributes=0x10),
            control(8, 7, commit=False),
        ]
    )
    aborted = [AbortedRange(7, 7), AbortedRange(7, 0)]
    committed = [(1, b"of another"), (2, b"of none"), (4, b"committed")]
    assert read(data, 0, aborted) == committed
    assert read(data) == [(0, b"aborted"), *committed, (7, b"aborted later")]
    assert list(decode(WHERE, data, 0, aborted))[-1].position == 9


def test_offsets_that_compaction_removed_are_missing() -> None:
    data = batch(plain(b"1", b"4"), offsets=[1, 4], last=6)
    empty = with_bytes(batch(plain(b"a", b"b"), 7)[:HEADER_BYTES], COUNT_AT, bytes(4))
    found = list(decode(WHERE, data + empty, 0))
    assert [(record.offset(), record.value()) for record in flat(found)] == [(1, b"1"), (4, b"4")]
    assert [each.position for each in found] == [7, 9]


def test_a_header_whose_name_is_not_utf_8_is_left_out_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    data = batch([(1, None, b"v", [("bad", b"1"), ("good", b"2")])]).replace(b"bad", b"b\xffd")
    with caplog.at_level(logging.WARNING):
        (record,) = flat(list(decode(WHERE, data, 0)))
    assert record.headers() == [("good", b"2")]
    assert "orders-3 offset=0: headers whose name is not UTF-8 are left out, 1 others are kept" in caplog.text


def test_headers_can_be_replaced() -> None:
    (record,) = flat(list(decode(WHERE, batch([(1, None, None, [("name", None)])]), 0)))
    assert record.headers() == [("name", None)]
    record.set_headers(b"packed")
    assert record.headers() == b"packed"


def test_each_negative_length_is_null_as_for_kafka() -> None:
    record = b"\x14\0\0\0\3\5\2\2h\7"
    data = with_bytes(batch(plain(b"a")), COUNT_AT, bytes(4))[:HEADER_BYTES]
    for count in (1, COUNT_FOR_C):
        body = b"".join(bytes((2 * (len(record) - 1), 0, 0, 2 * n)) + record[4:] for n in range(count))
        whole = with_bytes(data + body, LAST_DELTA_AT, (count - 1).to_bytes(4, "big"))
        found = flat(list(decode(WHERE, with_bytes(whole, COUNT_AT, count.to_bytes(4, "big")), 0)))
        assert [(each.key(), each.value(), each.headers()) for each in found] == [(None, None, [("h", None)])] * count


@pytest.mark.parametrize("number", [0, 1])
def test_old_message_formats_are_not_supported(number: int) -> None:
    data = bytearray(batch(plain(b"a"), 12))
    data[16] = number
    with pytest.raises(NotSupportedYet, match=f"orders-3 offset 12: message format {number}, .* expected 2"):
        read(bytes(data))


@pytest.mark.parametrize(
    ("at", "new", "message"),
    [
        (16, b"\3", "message format is 3, expected 2"),
        (8, (48).to_bytes(4, "big"), "length 48, expected at least 49"),
        (8, b"\xff\xff\xff\xff", "length -1, expected at least 49"),
    ],
)
def test_frames_that_are_no_batch_are_refused(at: int, new: bytes, message: str) -> None:
    data = batch(plain(b"a"), 5)
    with pytest.raises(Corrupt, match=f"orders-3 offset 5: .*{message}"):
        list(decode(WHERE, data[:at] + new + data[at + len(new) :], 0))


@pytest.mark.parametrize(
    ("at", "new", "message"),
    [
        (COUNT_AT, (3).to_bytes(4, "big"), "in 18 bytes, expected 7 or more"),
        (COUNT_AT, (1).to_bytes(4, "big"), "its records end at byte"),
        (COUNT_AT, b"\x7f\xff\xff\xff", "batch has 2147483647 records in"),
        (COUNT_AT, b"\xff\xff\xff\xff", "batch has -1 records"),
        (ATTRIBUTES_AT, b"\0\5", "compression codec is 5, expected 0 to 4"),
        (ATTRIBUTES_AT, b"\0\1", "are not gzip"),
        (ATTRIBUTES_AT, b"\0\2", "are not Snappy|is no SNAPPY"),
        (ATTRIBUTES_AT, b"\0\3", "are not a frame of LZ4"),
        (ATTRIBUTES_AT, b"\0\4", "are not Zstandard"),
        (HEADER_BYTES, b"\x7e", "within a record|end at byte|records end"),
        (HEADER_BYTES + 3, b"\2", "has the delta|expected up to"),
        (HEADER_BYTES, b"\xff" * 11, "more than 10 bytes"),
    ],
)
def test_malformed_batches_are_refused_by_partition_and_offset(at: int, new: bytes, message: str) -> None:
    data = with_bytes(batch(plain(b"a", b"b"), 5), at, new)
    with pytest.raises(Corrupt, match=f"orders-3 offset 5: .*({message})"):
        read(data)


def test_a_wrong_checksum_is_refused_where_it_is_verified() -> None:
    data = batch(plain(b"value"))
    damaged = data.replace(b"value", b"valve")
    assert [record.value() for record in flat(list(decode(WHERE, damaged, 0)))] == [b"valve"]
    with pytest.raises(Corrupt, match="orders-3 offset 0: batch has the CRC-32C"):
        read(damaged)


@settings(max_examples=examples(400))
@given(data=st.data())
def test_damaged_bytes_give_records_in_order_or_an_error_that_names_the_partition(data: st.DataObject) -> None:
    records = data.draw(RECORDS)
    damaged = bytearray(batch(records, 10, data.draw(st.sampled_from(sorted(CODECS)))) * 2)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    refused = ""
    try:
        found = list(decode(WHERE, bytes(damaged[: data.draw(st.integers(0, len(damaged)))]), 0))
    except (Corrupt, NotSupportedYet) as error:
        refused = str(error)
        found = []
    assert not refused or refused.startswith("orders-3 offset ")
    for each in found:
        offsets = [record.offset() for record in each.records]
        assert offsets == sorted(set(offsets))
        assert not offsets or offsets[-1] < each.position


Fields = list[tuple[object, ...]]


def outcome(data: bytes, position: int) -> tuple[Fields, str]:
    """All fields of all records and batches, or the error."""
    found: Fields = []
    try:
        for records, end, epoch in decode(WHERE, data, position):
            for each in records:
                found.append((each.offset(), each.timestamp(), each.key(), each.value(), each.headers(), len(each)))
            found.append((end, epoch))
    except (Corrupt, NotSupportedYet) as error:
        return found, str(error)
    return found, ""


@contextmanager
def only_in_python() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_batches, "_reader_in_c", lambda: None)
        yield


@contextmanager
def in_c_from_one_record() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_batches, "_MIN_RECORDS_IN_C", 1)
        yield


END: Final = record_batches._END
IN_VALUE: Final = bytes((2 * (len(END) + 5), 0, 0, 0, 1, 2 * (len(END) - 1)))
IN_KEY: Final = bytes((2 * (len(END) + 4), 0, 0, 0, 10))
BEFORE_NAME: Final = END[1:-1] + bytes((2, 2 * (len(END) - 1)))
IN_NAME: Final = bytes((2 * (len(BEFORE_NAME) + len(END)),)) + BEFORE_NAME
PARTS_OF_AN_END: Final = (IN_VALUE, IN_KEY, IN_NAME)
"""Bytes that make a record together with the one that our reader appends: in its value, its key, or a header's name."""


class RandomBatch:
    """A batch whose encoder deviates from Kafka's now and then, at each place where a decoder can be wrong."""

    def __init__(self, random: Random) -> None:
        self._random, self._oddity = random, random.choice((0.0, 0.002, 0.02))
        self._time: int | None = None

    def encoded(self) -> bytes:
        random = self._random
        base, count = random.choice((0, 7, 2**40)), random.randint(1, 12)
        largest = random.choice((-1, -5, 2**41))
        self._time = random.choice((-1001, -2000, 2**40, 2**63 - 1, -(2**63))) if self._odd(5) else None
        first = random.choice((-1, 0, 2**41, 2**63 - 1, -(2**63))) if self._odd(5) else 1000
        if self._time is not None and random.random() < 0.5:
            first = self._time
        deltas = list(range(count)) if random.random() < 0.7 else sorted(random.sample(range(2 * count), count))
        if self._odd(10):
            random.shuffle(deltas)
        if self._odd(10):
            deltas[random.choice((0, -1))] += random.choice((-1, -3, 1, 2**32, 2**63 - base))
        payload = b"".join(self._record(delta) for delta in deltas)
        payload += random.choice((b"\0", *PARTS_OF_AN_END)) if self._odd(5) else b""
        if self._odd(10):
            payload = payload[: random.randrange(len(payload))]
        flags = random.choice((0, 0, 8))
        header = struct.pack(
            ">ihiqqqhii",
            *(9, flags, max(0, min(2**31 - 1, max(deltas))) - self._odd(5), first, largest, -1, -1, -1),
            count + (random.choice((-1, 1)) if self._odd(5) else 0),
        )
        return sealed(base, header[:4] + b"\2" + bytes(4) + header[4:] + payload)

    def _odd(self, times: int = 1) -> bool:
        return self._random.random() < times * self._oddity

    def _record(self, offset_delta: int) -> bytes:
        random = self._random
        time = random.choice((0, 5, 9000)) if self._time is None else self._time
        names = (b"", b"name", "längere Namen".encode(), b"n" * 70)
        headers = [
            self._raw(random.choice(names)) + self._raw(self._content())
            for _ in range(random.choice((0, 0, 0, 1, 2, 65)))
        ]
        parts = (self._number(time), self._number(offset_delta), self._raw(self._content()), self._raw(self._content()))
        attributes = bytes((random.choice((0, 0, 5, 127)),))
        body = b"".join((attributes, *parts, self._number(len(headers) + self._odd()), *headers))
        if self._odd():
            body = body.replace(b"name", b"na\xffe")
        return self._number(len(body) + (random.choice((-1, 1)) if self._odd() else 0)) + body

    def _content(self) -> bytes | None:
        size = self._random.choice((None, 0, 1, 63, 64, 300))
        return None if size is None else self._random.randbytes(size)

    def _raw(self, content: bytes | None) -> bytes:
        if content is None:
            return self._number(self._random.choice((-2, -40, -(2**63))) if self._odd(3) else -1)
        return self._number(len(content) + (self._random.choice((1, 2**31, 2**62)) if self._odd() else 0)) + content

    def _number(self, value: int) -> bytes:
        """Zigzag; an odd one has more bytes than it needs, or bits beyond 64."""
        left, encoded = (value << 1 ^ value >> 63) & (2**64 - 1), bytearray()
        while left >= 0x80:
            encoded.append(left & 0x7F | 0x80)
            left >>= 7
        encoded.append(left)
        if self._odd():
            more = self._random.choice((1, 9, 10, 11)) - len(encoded)
            if more > 0:
                encoded[-1] |= 0x80
                encoded += b"\x80" * (more - 1) + self._random.choice((b"\0", b"\2", b"\x7e"))
        return bytes(encoded)


@for_each_seed(range(examples(8000)))
def test_the_reader_in_c_and_the_decoder_in_python_agree(seed: int) -> None:
    random = Random(seed)
    data = RandomBatch(random).encoded()
    position = int.from_bytes(data[:8], "big") + random.choice((0, 0, 3, 30))
    with only_in_python():
        expected = outcome(data, position)
    with in_c_from_one_record():
        assert outcome(data, position) == expected


def test_the_reader_in_c_decodes_whole_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each codec, also where the first records lie before the position."""
    monkeypatch.setattr(record_batches, "_records", None)
    records: list[Given] = [(5000 + n, b"k", b"v%d" % n, [("name", b"1")] * (n % 2)) for n in range(COUNT_FOR_C)]
    for codec in CODECS:
        found = flat(list(decode(WHERE, batch(records, 100, codec), 103)))
        assert [(each.offset(), each.value()) for each in found] == [
            (100 + n, b"v%d" % n) for n in range(3, COUNT_FOR_C)
        ]


def test_without_the_reader_in_c_batches_are_decoded_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiokafka.record._crecords.default_records", None)
    record_batches._reader_in_c.cache_clear()
    try:
        assert record_batches._reader_in_c() is None
        assert read(batch(plain(*[b"v"] * COUNT_FOR_C))) == [(n, b"v") for n in range(COUNT_FOR_C)]
    finally:
        record_batches._reader_in_c.cache_clear()


@pytest.mark.parametrize("codec", ["gzip", "raw snappy", "xerial snappy", "lz4", "zstd"])
def test_growth_is_bounded(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    number, compress = CODECS[codec]
    payload = bytes(compress(bytes(3_000_000)))
    assert batch_compression.decompressed(number, payload) == bytes(3_000_000)
    monkeypatch.setattr(batch_compression, "MAX_UNCOMPRESSED_BYTES", 2_999_999)
    with pytest.raises(CorruptRecord, match="more than 2999999 bytes, expected up to that"):
        batch_compression.decompressed(number, payload)


@pytest.mark.parametrize("codec", ["gzip", "raw snappy", "xerial snappy", "lz4", "zstd"])
def test_truncated_streams_are_refused(codec: str) -> None:
    number, compress = CODECS[codec]
    payload = bytes(compress(b"abc" * 1000))
    with pytest.raises(CorruptRecord):
        batch_compression.decompressed(number, payload[:-9])
