"""Frames that are written by hand have the bytes of the general functions."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pulsar_on_kafka_mapping.ids.ledger_ids import MAX_RANGE, LedgerLayout
from pulsar_on_kafka_mapping.records import record_headers
from pulsar_on_kafka_mapping.records.message_record import Headers, batch_info
from pulsar_on_kafka_mapping.records.record_headers import (
    ALONE,
    BATCH,
    COMPRESSION,
    DELIVER_AT,
    EVENT_TIME,
    FENCE,
    ORDERING_KEY,
    PREFIX,
    PRODUCER,
    PUBLISH_TIME,
    SCHEMA_VERSION,
    and_transaction,
    and_version,
    unpack,
)
from pulsar_on_kafka_mapping.wire.commands import Type, command
from pulsar_on_kafka_mapping.wire.entries import MAX_MESSAGE_ENTRY_BYTES, WireEntry, write_entry
from pulsar_on_kafka_mapping.wire.frames import frame
from pulsar_on_kafka_mapping.wire.message_frames import MessageFrames, command_fields
from pulsar_on_kafka_mapping.wire.message_metadata import encode_metadata
from pulsar_on_kafka_mapping.wire.single_messages import MAX_IN_BATCH
from pulsar_on_kafka_mapping.wire.stored_entries import EntryRecord, metadata_of

LAYOUT: Final = LedgerLayout(1, 50_000)
TEXT: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
RAW: Final = st.none() | st.binary(max_size=10) | TEXT.map(str.encode) | st.integers(120, 40_000).map(bytes)
NUMBERS: Final = st.integers(0, 300) | st.integers(0, 10**19 - 1)
DIGITS: Final = NUMBERS.map(lambda number: b"%d" % number)
TIMES: Final = st.integers(0, 2**43)
NAMES: Final = TEXT.filter(lambda name: not name.startswith(PREFIX))
PRODUCERS: Final = st.builds(lambda number, epoch, name: f"{number}:{epoch}:{name}".encode(), NUMBERS, NUMBERS, TEXT)
FORMS: Final = st.builds(lambda form, size: b"%d:%d" % (form, size), st.integers(2, 3), st.integers(1, MAX_IN_BATCH))
CODECS: Final = st.builds(b"%b:%b".__mod__, st.tuples(st.sampled_from([b"LZ4", b"ZLIB", b"ZSTD", b"SNAPPY"]), DIGITS))
COMMON: Final[dict[str, st.SearchStrategy[bytes | None]]] = {
    PRODUCER: PRODUCERS,
    SCHEMA_VERSION: st.binary(min_size=8, max_size=8),
    EVENT_TIME: DIGITS,
    DELIVER_AT: DIGITS,
    PUBLISH_TIME: DIGITS,
    ORDERING_KEY: RAW,
    BATCH: FORMS,
    FENCE: RAW,
}
ANY_NAMES: Final = [value for name, value in vars(record_headers).items() if name.isupper() and isinstance(value, str)]
ANY_VALUES: Final = st.one_of(RAW, *COMMON.values(), CODECS, DIGITS.map(lambda digits: b"1:" + digits))


@st.composite
def common_headers(draw: st.DrawFn) -> Headers:
    system = draw(st.fixed_dictionaries({}, optional=COMMON))
    if BATCH in system and draw(st.booleans()):
        system[COMPRESSION] = draw(CODECS)
    properties = draw(st.lists(st.tuples(NAMES, RAW), max_size=4))
    return draw(st.permutations([*system.items(), *properties]))


def by_hand(
    key: bytes | None, value: bytes | None, headers: Headers | bytes | None, time_ms: int
) -> tuple[bytes, int] | None:
    """The frame of a record at offset 7, and the size of its batch."""
    out: list[bytes] = []
    messages = MessageFrames(3, LAYOUT, 0, -1).append_record(out, 7, key, value, headers, time_ms)
    assert (messages is None) is (not out)
    return None if messages is None else (b"".join(out), messages)


def by_general_functions(record: EntryRecord) -> tuple[bytes, int]:
    metadata = metadata_of(record)
    entry = write_entry(WireEntry(encode_metadata(metadata), record.value or b""))
    return general_frame(3, (*LAYOUT.position(0, 7), -1), entry), metadata.messages or 0


def general_frame(consumer: int, message_id: tuple[int, int, int], entry: bytes, **fields: Any) -> bytes:
    place = dict(zip(("ledgerId", "entryId", "partition"), message_id, strict=True))
    return frame(command(Type.MESSAGE, consumer_id=consumer, message_id=place, **fields), entry)


@given(RAW, RAW, common_headers(), TIMES)
def test_a_record_with_common_headers_is_encoded_by_hand(
    key: bytes | None, value: bytes | None, headers: Headers, time_ms: int
) -> None:
    assert by_hand(key, value, headers, time_ms) == by_general_functions(EntryRecord(key, value, headers, time_ms))


@given(RAW, RAW, PRODUCERS, COMMON[SCHEMA_VERSION], TIMES)
def test_packed_headers_are_read(
    key: bytes | None, value: bytes | None, producer: bytes, version: bytes, time_ms: int
) -> None:
    for packed in (ALONE + producer, and_version(version) + producer):
        found = by_hand(key, value, packed, time_ms)
        assert found == by_general_functions(EntryRecord(key, value, unpack(packed), time_ms))
    assert by_hand(key, value, and_transaction(b"1:2") + producer, time_ms) is None
    assert by_hand(key, value, None, time_ms) == by_general_functions(EntryRecord(key, value, [], time_ms))


@given(RAW, RAW, st.lists(st.tuples(st.sampled_from(ANY_NAMES) | TEXT, ANY_VALUES), max_size=4), st.integers(-1, 2**43))
@example(b"k", b"v", [(PRODUCER, b"5:0")], 5)
@example(b"k", b"v", [(PRODUCER, b"-1:0:p")], 5)
@example(b"k", b"v", [(PRODUCER, b"5:0:\xff")], 5)
@example(b"k", b"v", [(PRODUCER, None)], 5)
@example(b"k", b"v", [(PRODUCER, b"18446744073709551616:0:p")], 5)
@example(b"k", b"v", [(BATCH, b"2:3"), (BATCH, b"2:4")], 5)
@example(b"k", b"v", [(BATCH, b"2:3"), (COMPRESSION, b"GZIP:4")], 5)
@example(b"k", b"v", [(BATCH, b"2:%d" % (MAX_IN_BATCH + 1))], 5)
@example(b"k", b"v", [(BATCH, b"2:0")], 5)
@example(b"k", b"v", [(COMPRESSION, b"LZ4:4")], 5)
@example(b"k", b"v", [(SCHEMA_VERSION, b"\0")], 5)
@example(b"k", b"v", [(EVENT_TIME, b"1.5")], 5)
@example(b"k", b"v", [(DELIVER_AT, b"-5")], 5)
@example(b"k", b"v", [(DELIVER_AT, b"0")], 5)
@example(b"k", b"v", [("n" * 1000, b"v")], 5)
def test_any_other_record_is_left_to_the_general_functions_or_encoded_likewise(
    key: bytes | None, value: bytes | None, headers: Headers, time_ms: int
) -> None:
    found = by_hand(key, value, headers, time_ms)
    if found is not None:
        assert found == by_general_functions(EntryRecord(key, value, headers, time_ms))
        assert batch_info(headers) is None or found[1] <= MAX_IN_BATCH


@pytest.mark.parametrize(
    ("size", "property_size"), [(MAX_MESSAGE_ENTRY_BYTES - 30, 3), (MAX_MESSAGE_ENTRY_BYTES, 3), (3, 2**21), (3, 2**23)]
)
def test_a_record_larger_than_an_entry_is_left(size: int, property_size: int) -> None:
    record = EntryRecord(None, bytes(size), [(PRODUCER, b"5:0:p"), ("name", bytes(property_size))], 5)
    fits = size + property_size <= MAX_MESSAGE_ENTRY_BYTES - 27
    assert by_hand(*record) == (by_general_functions(record) if fits else None)


@given(
    st.integers(0, 2**64 - 1),
    st.builds(LedgerLayout, st.integers(0, 2**27 - 1), st.integers(1, 100_000)),
    st.integers(0, 2**13 - 1),
    st.booleans(),
    st.lists(
        st.tuples(
            st.integers(0, 300_000) | st.sampled_from([126, 127, 128, 16_383, 16_384, 49_999, 50_000, 50_001]),
            st.integers(0, 2**32 - 1),
            st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40),
            st.none() | st.integers(0, 2**64 - 1),
            st.binary(max_size=3) | st.integers(4_000, 5_000).map(bytes),
        ),
        max_size=8,
    ),
)
def test_a_consumers_frames_are_those_of_protobuf_at_any_offsets(
    consumer: int,
    layout: LedgerLayout,
    partition: int,
    named: bool,
    entries: list[tuple[int, int, list[int], Any, bytes]],
) -> None:
    field = partition if named else -1
    frames, position_of = MessageFrames(consumer, layout, partition, field), layout.position
    for offset, count, ack_set, epoch, payload in entries:
        if offset // layout.entries_per_ledger > MAX_RANGE:
            continue
        optional = {"redelivery_count": count or None, "ack_set": ack_set, "consumer_epoch": epoch}
        fields, message_id = command_fields(count, ack_set, epoch), (*position_of(partition, offset), field)
        out: list[bytes] = []
        frames.append_entry(out, offset, payload, fields)
        assert b"".join(out) == general_frame(consumer, message_id, payload, **optional)
        record = EntryRecord(None, payload, [(PRODUCER, b"5:0:p")], 5)
        entry = write_entry(WireEntry(encode_metadata(metadata_of(record)), payload))
        out.clear()
        assert frames.append_record(out, offset, *record, fields) == 0
        assert b"".join(out) == general_frame(consumer, message_id, entry, **optional)
