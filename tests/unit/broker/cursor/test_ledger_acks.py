"""Acknowledgements of many entries at once: into ledgers, into pieces, and into a cursor."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.ledger_acks import below, of_offsets, pieces
from pulsar_on_kafka_mapping.state.cursors.cursor_state import Holes

SIZE = 50
OFFSETS = st.one_of(
    st.sets(st.integers(0, 400)),
    st.tuples(st.integers(0, 400), st.integers(0, 200)).map(lambda at: set(range(at[0], at[0] + at[1]))),
)
SETS = st.dictionaries(st.integers(0, 400), st.integers(0, 2**7 - 1).map(lambda bits: (8, bits)), max_size=20)


def _offsets(ledgers: dict[int, Holes]) -> set[int]:
    return {index * SIZE + entry for index, holes in ledgers.items() for entry in holes.acked}


def _sets(ledgers: dict[int, Holes]) -> dict[int, tuple[int, int]]:
    return {index * SIZE + entry: acks for index, holes in ledgers.items() for entry, acks in holes.batches.items()}


@given(OFFSETS, SETS)
def test_ledgers_name_the_same_offsets(offsets: set[int], sets: dict[int, tuple[int, int]]) -> None:
    ledgers = of_offsets(BitMap64(offsets), sets, SIZE)
    assert (_offsets(ledgers), _sets(ledgers)) == (offsets, sets)


@given(OFFSETS, SETS, st.integers(0, 500))
def test_nothing_is_left_at_or_above_the_end(offsets: set[int], sets: dict[int, tuple[int, int]], end: int) -> None:
    ledgers = below(of_offsets(BitMap64(offsets), sets, SIZE), end, SIZE)
    assert _offsets(ledgers) == {offset for offset in offsets if offset < end}
    assert _sets(ledgers) == {offset: acks for offset, acks in sets.items() if offset < end}


@given(OFFSETS, SETS, st.integers(20, 400))
def test_pieces_hold_everything(offsets: set[int], sets: dict[int, tuple[int, int]], max_bytes: int) -> None:
    found: set[int] = set()
    acks: dict[int, tuple[int, int]] = {}
    for piece in pieces(of_offsets(BitMap64(offsets), sets, SIZE), max_bytes):
        found |= _offsets(piece)
        acks |= _sets(piece)
    assert (found, acks) == (offsets, sets)


def test_pieces_of_wide_batches_are_small() -> None:
    sets = dict.fromkeys(range(1000), (8000, (1 << 7999) - 1))
    found = list(pieces(of_offsets(BitMap64(), sets, 50_000), 100_000))
    assert max(len(holes.batches) for piece in found for holes in piece.values()) * 1000 <= 100_000
    assert sum(len(holes.batches) for piece in found for holes in piece.values()) == 1000


@given(st.lists(st.tuples(OFFSETS, SETS), max_size=5), st.integers(0, 100))
def test_a_cursor_takes_ledgers_as_it_takes_single_acknowledgements(
    acks: list[tuple[set[int], dict[int, tuple[int, int]]]], start: int
) -> None:
    whole, single = CursorState(start, SIZE), CursorState(start, SIZE)
    for offsets, sets in acks:
        whole.acknowledge_ledgers(of_offsets(BitMap64(offsets), sets, SIZE))
        single.acknowledge(sorted(offsets))
        single.acknowledge_batches({offset: BatchAckSet(*each) for offset, each in sets.items()})
    assert (whole.next_unacked, set(whole.deleted)) == (single.next_unacked, set(single.deleted))
    assert dict(whole.batches.items()) == dict(single.batches.items())
    assert whole.dirty_ledgers >= {offset // SIZE for offset in whole.deleted}


def test_acknowledging_again_changes_nothing() -> None:
    cursor = CursorState(0, SIZE)
    ledgers = {0: Holes(BitMap([3, 4]), {7: (4, 5)}), 2: Holes(BitMap(range(SIZE)))}
    assert cursor.acknowledge_ledgers(ledgers) == (2 + SIZE, {7: 2})
    revision = cursor.revision
    assert cursor.acknowledge_ledgers(ledgers) == (0, {})
    assert cursor.revision == revision
    assert list(ledgers[0].acked) == [3, 4]
