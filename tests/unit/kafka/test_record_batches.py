"""Record batches of Kafka, decoded: what is in them, what is left out, and what is refused."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_on_kafka.base.errors import Corrupt, NotSupportedYet
from pulsar_on_kafka.kafka.reading import batch_compression
from pulsar_on_kafka.kafka.reading.events import KafkaPartition
from pulsar_on_kafka.kafka.reading.record_batches import Decoded, FetchedRecord, decode
from pulsar_on_kafka.kafka.wire.fetch_messages import AbortedRange
from pulsar_on_kafka_mapping.errors import CorruptRecord
from tests.kafka_batches import ATTRIBUTES_AT, CODECS, HEADER_BYTES, Given, batch, control, with_bytes
from tests.seeds import examples

WHERE: Final = KafkaPartition("orders", 3)
COUNT_AT: Final = 57

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
        (HEADER_BYTES + 4, b"\3", "a length is -2, expected -1 for null"),
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
