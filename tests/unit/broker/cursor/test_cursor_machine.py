from __future__ import annotations

import random

import pytest

from pulsar_on_kafka.base.errors import InvalidCursorPosition, InvalidOption
from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.position_set import PositionSet
from tests.seeds import first_of, for_each_seed


def test_a_fresh_cursor_has_nothing_acknowledged() -> None:
    cursor = CursorState(0, 10)
    assert cursor.mark_delete == -1
    assert not cursor.is_acknowledged(0)
    assert cursor.backlog(5) == 5


def test_mark_delete_moves_when_the_range_next_to_it_is_complete() -> None:
    cursor = CursorState(0, 10)
    cursor.acknowledge([1, 2, 4])
    assert cursor.mark_delete == -1
    cursor.acknowledge([0])
    assert cursor.mark_delete == 2
    cursor.acknowledge([3])
    assert cursor.mark_delete == 4
    assert not cursor.deleted


def test_mark_delete_moves_over_ledger_boundaries() -> None:
    cursor = CursorState(0, 4)
    cursor.acknowledge(list(range(1, 13)))
    cursor.acknowledge([0])
    assert cursor.next_unacked == 13


def test_ack_below_mark_delete_is_already_true() -> None:
    cursor = CursorState(5, 10)
    assert not cursor.acknowledge([0, 4])
    assert cursor.revision == 0


def test_the_known_end_is_behind_the_highest_acknowledged_entry() -> None:
    cursor = CursorState(3, 10)
    assert cursor.known_end() == 3
    cursor.acknowledge([7])
    assert cursor.known_end() == 8


def test_an_ack_given_twice_changes_nothing() -> None:
    cursor = CursorState(0, 10)
    assert cursor.acknowledge([3])
    revision = cursor.revision
    assert not cursor.acknowledge([3])
    assert cursor.revision == revision


def test_cumulative_ack_swallows_the_holes_below_it_and_what_is_complete_above() -> None:
    cursor = CursorState(0, 10)
    cursor.acknowledge([2, 5, 6, 9])
    cursor.acknowledge_cumulative(4)
    assert cursor.next_unacked == 7
    assert list(cursor.deleted) == [9]


def test_cumulative_ack_below_mark_delete_never_goes_back() -> None:
    cursor = CursorState(7, 10)
    assert not cursor.acknowledge_cumulative(3)
    assert cursor.next_unacked == 7


def test_seek_is_the_only_way_back() -> None:
    cursor = CursorState(0, 10)
    cursor.acknowledge([0, 1, 5])
    cursor.reset(1)
    assert cursor.next_unacked == 1
    assert not cursor.is_acknowledged(5)


def test_a_position_outside_of_the_log_is_refused() -> None:
    with pytest.raises(InvalidCursorPosition, match="-1"):
        CursorState(-1, 10)
    with pytest.raises(InvalidCursorPosition, match="-3"):
        CursorState(0, 10).reset(-3)
    with pytest.raises(InvalidOption, match="entries per ledger"):
        PositionSet(0, lambda index: None)


def test_a_batch_is_acknowledged_when_its_last_index_is() -> None:
    cursor = CursorState(0, 10)
    assert cursor.acknowledge_batches({0: BatchAckSet(3, 0b101)}) == {0: 2}
    assert dict(cursor.batches.items()) == {0: BatchAckSet(3, 0b101)}
    assert cursor.acknowledge_batches({0: BatchAckSet(3, 0b100)}) == {}
    assert cursor.acknowledge_batches({0: BatchAckSet(3, 0b010)}) == {0: 1}
    assert cursor.next_unacked == 1
    assert not cursor.batches


def test_a_batch_has_the_size_that_was_said_first() -> None:
    cursor = CursorState(0, 10)
    cursor.acknowledge_batches({4: BatchAckSet(3, 0b001)})
    assert cursor.acknowledge_batches({4: BatchAckSet(2, 0b10)}) == {}
    assert cursor.batches.get(4) == BatchAckSet(3, 0b001)


def test_offsets_that_no_fetch_returns_count_as_deleted() -> None:
    cursor = CursorState(0, 10)
    cursor.acknowledge_range(3, 25)
    assert cursor.backlog(30) == 3 + 5
    cursor.acknowledge([0, 1, 2])
    assert cursor.next_unacked == 25


def test_only_changed_ledgers_are_dirty() -> None:
    cursor = CursorState(0, 10)
    cursor.acknowledge([5, 15])
    assert cursor.dirty_ledgers == {0, 1}
    cursor.dirty_ledgers = set()
    cursor.acknowledge([25, 15])
    assert cursor.dirty_ledgers == {2}


def test_gaps_lists_the_unacknowledged_ranges_below_the_highest_ack() -> None:
    cursor = CursorState(0, 4)
    cursor.acknowledge([2, 3, 4, 9])
    assert list(cursor.unacknowledged(0, 9)) == [0, 1, 5, 6, 7, 8]


@pytest.mark.parametrize("seed", first_of(12, range(40)))
def test_random_histories_agree_with_a_plain_set(seed: int) -> None:
    """250 histories a seed, 10,000 in all."""
    rng = random.Random(seed)
    for _ in range(250):
        size = rng.choice((1, 2, 3, 7, 16, 50))
        cursor = CursorState(start := rng.randrange(20), size)
        acked = set(range(start))
        for _ in range(rng.randrange(1, 14)):
            _random_step(rng, cursor, acked)
            _assert_equal(cursor, acked)


def _random_step(rng: random.Random, cursor: CursorState, acked: set[int]) -> None:
    kind = rng.randrange(10)
    if kind < 5:
        offsets = [rng.randrange(80) for _ in range(rng.randrange(1, 12))]
        before = set(acked)
        acked.update(offsets)
        assert cursor.acknowledge(offsets) == (acked != before)
    elif kind < 7:
        start = rng.randrange(80)
        end = start + rng.randrange(30)
        acked.update(range(start, end))
        cursor.acknowledge_range(start, end)
    elif kind < 9:
        upto = rng.randrange(80)
        acked.update(range(upto + 1))
        cursor.acknowledge_cumulative(upto)
    else:
        position = rng.randrange(80)
        acked.clear()
        acked.update(range(position))
        cursor.reset(position)


def _assert_equal(cursor: CursorState, acked: set[int]) -> None:
    floor = next(offset for offset in range(200) if offset not in acked)
    above = {offset for offset in acked if offset > floor}
    assert cursor.next_unacked == floor
    assert set(cursor.deleted) == above
    assert cursor.backlog(100) == 100 - len([offset for offset in acked if offset < 100])
    assert cursor.acknowledged_in(0, 60) == {offset for offset in above if offset < 60}
    largest = max(above, default=None)
    assert cursor.deleted.max() == largest
    end = floor if largest is None else largest
    assert set(cursor.unacknowledged(floor, end)) == set(range(floor, end)) - above


@for_each_seed(range(300))
def test_after_counts_what_is_not_acknowledged(seed: int) -> None:
    rng = random.Random(seed)
    cursor = CursorState(rng.randrange(10), rng.choice((1, 3, 10, 50)))
    cursor.acknowledge([rng.randrange(60) for _ in range(rng.randrange(40))])
    end, count = rng.randrange(70), rng.randrange(1, 30)
    left = [offset for offset in range(cursor.next_unacked, end) if not cursor.is_acknowledged(offset)]
    skipped = left[:count]
    assert cursor.after(count, end) == (skipped[-1] + 1 if skipped else cursor.next_unacked, len(skipped))


def test_the_last_eight_requests_are_remembered() -> None:
    cursor = CursorState(0, 10)
    for number in range(20):
        revision = cursor.revision
        cursor.took_effect(bytes([number]) * 8, number)
        assert cursor.revision > revision  # so that it is saved
    assert list(cursor.requests.values()) == list(range(12, 20))
