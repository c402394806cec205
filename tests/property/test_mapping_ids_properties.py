"""Ledger ids and message ids: order agrees with offsets, everything is reversible."""

from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

from pulsar_on_kafka_mapping.errors import InvalidMessageId
from pulsar_on_kafka_mapping.ids.ledger_ids import (
    MAX_ENTRIES_PER_LEDGER,
    MAX_INCARNATION,
    MAX_PARTITION,
    MAX_RANGE,
    LedgerLayout,
    incarnation_of,
    unpack_ledger_id,
)
from pulsar_on_kafka_mapping.ids.message_id import MessageIdParts, decode_message_id, encode_message_id
from pulsar_on_kafka_mapping.routing.key_hashes import partition_for_key
from pulsar_on_kafka_mapping.routing.sticky_hash import sticky_key_hash

LAYOUTS = st.builds(LedgerLayout, st.integers(0, MAX_INCARNATION), st.integers(1, MAX_ENTRIES_PER_LEDGER))
PARTITIONS = st.integers(0, MAX_PARTITION)
PLACES = st.integers(0, 2**63)  # folded into the layout's range
LONGS = st.integers(-(2**63), 2**63 - 1)
INTS = st.integers(-(2**31), 2**31 - 1)


def offset_in(layout: LedgerLayout, place: int) -> int:
    return place % ((MAX_RANGE + 1) * layout.entries_per_ledger)


@given(LAYOUTS, PARTITIONS, PLACES)
def test_positions_are_reversible(layout: LedgerLayout, partition: int, place: int) -> None:
    offset = offset_in(layout, place)
    ledger_id, entry_id = layout.position(partition, offset)
    assert 0 <= ledger_id < 2**63
    assert layout.kafka_offset(partition, ledger_id, entry_id) == offset
    fields = unpack_ledger_id(ledger_id)
    assert (fields.incarnation, fields.partition) == (layout.incarnation, partition)
    assert layout.ledger_id(partition, fields.ledger_index) == ledger_id
    first, end = layout.ledger_range(fields.ledger_index)
    assert first <= offset < end
    assert offset - first == entry_id


@given(LAYOUTS, PARTITIONS, PLACES, PLACES)
def test_positions_order_as_offsets_do(layout: LedgerLayout, partition: int, one: int, other: int) -> None:
    a, b = offset_in(layout, one), offset_in(layout, other)
    assert (layout.position(partition, a) < layout.position(partition, b)) == (a < b)


@given(st.integers(0, 10_000), st.integers(0, 7), st.integers(0, 10_000), st.integers(0, 7))
def test_incarnations_are_unique(offset: int, partition: int, other_offset: int, other_partition: int) -> None:
    same = incarnation_of(offset, partition, 8) == incarnation_of(other_offset, other_partition, 8)
    assert same == ((offset, partition) == (other_offset, other_partition))


@given(LONGS, LONGS, INTS, INTS, INTS)
def test_message_ids_are_reversible(ledger: int, entry: int, partition: int, index: int, size: int) -> None:
    parts = MessageIdParts(ledger, entry, partition, index, size)
    assert decode_message_id(encode_message_id(*parts)) == parts


@given(st.binary(max_size=60) | st.binary(max_size=30).map(lambda tail: b"\x08\x01\x10\x02" + tail))
def test_garbage_is_an_invalid_message_id(data: bytes) -> None:
    try:
        parts = decode_message_id(data)
    except InvalidMessageId:
        return
    assert decode_message_id(encode_message_id(*parts)) == parts


@given(st.binary(max_size=40), st.integers(1, 8192))
def test_a_key_goes_where_crc32_says(key: bytes, partitions: int) -> None:
    assert partition_for_key(key, partitions) == zlib.crc32(key) % partitions


@given(st.binary(max_size=40))
def test_sticky_hashes_are_slots(key: bytes) -> None:
    assert 1 <= sticky_key_hash(key) <= 65_535
