"""Records and keys of transaction buffers and pending acks: round trips; a changed byte passes for no other fact."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.records.message_record import decode_headers
from pulsar_on_kafka_mapping.records.record_headers import MarkerType
from pulsar_on_kafka_mapping.records.transaction_headers import in_transaction, marker_headers
from pulsar_on_kafka_mapping.state.state_keys import (
    CursorTakeoverKey,
    Key,
    LowWaterKey,
    PendingAckEndKey,
    PendingAckKey,
    TransactionBufferKey,
    decode_key,
    encode_key,
)
from pulsar_on_kafka_mapping.state.transactions.pending_acks import (
    CumulativeAck,
    CursorIncarnation,
    PendingAck,
    TxnAck,
    TxnOutcome,
    decode_cursor_takeover,
    decode_end,
    decode_pending_ack,
    encode_cursor_takeover,
    encode_end,
    encode_pending_ack,
    split_ack,
)
from pulsar_on_kafka_mapping.state.transactions.transaction_buffer import (
    AbortedEntry,
    BufferEntry,
    BufferKind,
    OpenEntry,
    VoidEntry,
    buffer_records,
    decode_buffer_entry,
    decode_low_water,
    encode_buffer_entry,
    encode_low_water,
    kind_of,
)
from tests.seeds import first_of

NUMBER = st.integers(0, 2**63 - 1) | st.integers(0, 300)
HALF = st.integers(0, 2**64 - 1) | st.integers(0, 3)
TXNS = st.builds(TxnId, HALF, HALF)
OFFSETS = st.builds(BitMap64, st.lists(NUMBER, max_size=30)) | st.builds(
    lambda start, length: BitMap64(range(start, start + length)), st.integers(0, 2**40), st.integers(0, 200_000)
)
OPEN = st.builds(OpenEntry, NUMBER, NUMBER)
ABORTED = st.builds(AbortedEntry, NUMBER, NUMBER, NUMBER, st.booleans(), OFFSETS, st.integers(1, 1000))
VOID = st.builds(VoidEntry, NUMBER, OFFSETS)
ENTRIES = OPEN | ABORTED | VOID

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
PARTITION = st.integers(0, 9)
SESSION = st.sampled_from(["", "00ff", "00FF", "0"])
SMALL = st.integers(0, 2)
TXN_FIELDS = {"txn_most": HALF, "txn_least": HALF}
KEYS: st.SearchStrategy[Key] = st.one_of(
    st.builds(
        TransactionBufferKey, TEXT, PARTITION, kind=st.sampled_from([kind.value for kind in BufferKind]),
        session=SESSION, part=SMALL, **TXN_FIELDS,
    ),
    st.builds(LowWaterKey, st.integers(0, 15), SESSION),
    st.builds(PendingAckKey, TEXT, PARTITION, TEXT, session=SESSION, ack=SMALL, **TXN_FIELDS),
    st.builds(PendingAckEndKey, TEXT, PARTITION, TEXT, **TXN_FIELDS),
    st.builds(CursorTakeoverKey, TEXT, PARTITION, TEXT, SESSION, SMALL),
)  # fmt: skip


@st.composite
def batches(draw: st.DrawFn) -> tuple[int, int]:
    size = draw(st.integers(1, 200))
    return size, draw(st.integers(0, (1 << size) - 1))


@st.composite
def cumulative_acks(draw: st.DrawFn) -> CumulativeAck:
    offset = draw(NUMBER)
    return CumulativeAck(offset, *draw(batches())) if draw(st.booleans()) else CumulativeAck(offset)


ACKS = st.builds(TxnAck, OFFSETS, st.dictionaries(NUMBER, batches(), max_size=6), st.none() | cumulative_acks())
PENDING = st.builds(PendingAck, st.builds(CursorIncarnation, NUMBER, NUMBER), NUMBER, ACKS)


@given(ENTRIES)
def test_entries_of_a_buffer_round_trip(entry: BufferEntry) -> None:
    value = encode_buffer_entry(entry)
    assert decode_buffer_entry(kind_of(entry).value, value) == entry
    assert encode_buffer_entry(decode_buffer_entry(kind_of(entry).value, value)) == value


@given(PENDING)
def test_pending_acks_round_trip(pending: PendingAck) -> None:
    assert decode_pending_ack(encode_pending_ack(pending)) == pending


@given(HALF, st.sampled_from(TxnOutcome), st.builds(CursorIncarnation, NUMBER, NUMBER))
def test_the_small_ones_round_trip(least_bits: int, outcome: TxnOutcome, life: CursorIncarnation) -> None:
    assert decode_low_water(encode_low_water(least_bits)) == least_bits
    assert decode_end(encode_end(outcome)) is outcome
    assert decode_cursor_takeover(encode_cursor_takeover(life)) == life


@given(KEYS, KEYS)
def test_keys_round_trip_and_never_meet(one: Key, other: Key) -> None:
    assert decode_key(encode_key(one)) == one
    assert (encode_key(one) == encode_key(other)) == (one == other)


@given(ENTRIES, PENDING, st.data())
def test_a_changed_byte_is_corrupt(entry: BufferEntry, pending: PendingAck, data: st.DataObject) -> None:
    kind = kind_of(entry).value
    good = [encode_buffer_entry(entry), encode_pending_ack(pending), encode_end(TxnOutcome.COMMITTED)]
    readers = [lambda value: decode_buffer_entry(kind, value), decode_pending_ack, decode_end]
    for value, read in zip(good, readers, strict=True):
        changed = bytearray(value)
        changed[data.draw(st.integers(0, len(value) - 1))] ^= data.draw(st.integers(1, 255))
        for bad in (bytes(changed), value[:-1], value + b"\0", b""):
            with pytest.raises(CorruptRecord):
                read(bad)


@given(st.binary(max_size=60), st.sampled_from([*BufferKind, "ELSE"]))
def test_garbage_is_corrupt(value: bytes, kind: str) -> None:
    for read in (decode_pending_ack, decode_end, decode_low_water, decode_cursor_takeover):
        with pytest.raises(CorruptRecord):
            read(value)
    with pytest.raises(CorruptRecord):
        decode_buffer_entry(str(kind), value)


def test_an_entry_is_not_read_as_one_of_another_kind() -> None:
    with pytest.raises(CorruptRecord, match="is of kind 1, expected 2"):
        decode_buffer_entry("ABORTED", encode_buffer_entry(OpenEntry(1, 2)))


@pytest.mark.parametrize("entry", [OpenEntry(0, -1), VoidEntry(-1, BitMap64())])
def test_negative_numbers_are_refused(entry: BufferEntry) -> None:
    with pytest.raises(MappingError, match="-1"):
        encode_buffer_entry(entry)


# Large ones -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", first_of(1, [AbortedEntry(3, 0, 9, True, BitMap64()), VoidEntry(3, BitMap64())]))
def test_a_large_bitmap_is_spread_over_records_that_kafka_takes(entry: AbortedEntry | VoidEntry) -> None:
    rng = random.Random(1)
    offsets = BitMap64(rng.randrange(1 << 40) for _ in range(150_000)) | BitMap64(
        rng.sample(range(20_000_000), 900_000)
    )
    key = TransactionBufferKey("persistent://a/b/c", 0, 0, 1, kind_of(entry).value, "00ff", 0)
    records = buffer_records(key, replace(entry, offsets=offsets))
    assert len(records) > 2
    assert all(len(encode_key(key)) + len(value) < 1_000_000 for key, value in records)
    assert [key.part for key, _ in records] == list(range(len(records)))
    parts = [decode_buffer_entry(key.kind, value) for key, value in records]
    assert reduce(BitMap64.union, [part.offsets for part in parts if not isinstance(part, OpenEntry)]) == offsets
    assert all(part.parts == len(records) for part in parts if isinstance(part, AbortedEntry))


def test_one_record_is_enough_for_a_long_run() -> None:
    key = TransactionBufferKey("persistent://a/b/c", 0, 0, 1, "ABORTED", "00ff", 0)
    records = buffer_records(key, AbortedEntry(3, 0, 9, True, BitMap64(range(100_000_000))))
    assert [len(value) < 200_000 for _, value in records] == [True]


@given(ACKS)
def test_an_ack_of_ordinary_size_is_one_record(ack: TxnAck) -> None:
    assert split_ack(ack) == ([ack] if ack != TxnAck() else [])


@pytest.mark.long
def test_a_large_ack_is_spread_over_records_that_kafka_takes() -> None:
    rng = random.Random(2)
    whole = BitMap64(rng.randrange(1 << 40) for _ in range(150_000))
    big = {offset: (80_000, rng.getrandbits(80_000)) for offset in range(250)}
    ack = TxnAck(whole, big, CumulativeAck(7, 80_000, rng.getrandbits(80_000)))
    parts = split_ack(ack)
    assert all(len(encode_pending_ack(PendingAck(CursorIncarnation(1, 1), 1, part))) < 1_000_000 for part in parts)
    assert reduce(BitMap64.union, [part.whole for part in parts]) == whole
    assert {offset: bits for part in parts for offset, bits in part.batches.items()} == big
    assert [part.cumulative for part in parts if part.cumulative is not None] == [ack.cumulative]


# Markers --------------------------------------------------------------------------------------------------------------


@given(TXNS, st.booleans())
def test_a_marker_names_its_transaction(txn: TxnId, committed: bool) -> None:
    headers = marker_headers(txn, committed=committed)
    found = in_transaction(headers)
    assert found == (txn, MarkerType.TXN_COMMIT if committed else MarkerType.TXN_ABORT)
    assert decode_headers(headers).txn == txn


def test_what_belongs_to_no_transaction() -> None:
    assert in_transaction(None) is None
    assert in_transaction([("a", b"b"), ("__pulsar.event_time", b"5")]) is None
    assert in_transaction([("__pulsar.marker", b"snapshot")]) is None
    assert in_transaction([("__pulsar.txn", b"1:2")]) == (TxnId(1, 2), None)


@pytest.mark.parametrize(
    "headers", [[("__pulsar.txn", b"x")], [("__pulsar.txn", None)], [("__pulsar.marker", b"txn_abort")]]
)
def test_unreadable_headers_are_corrupt(headers: list[tuple[str, bytes | None]]) -> None:
    with pytest.raises(CorruptRecord):
        in_transaction(headers)
