"""Buffers and pending acks as operators see them."""

from __future__ import annotations

import pytest
from pyroaring import BitMap64

from pulsar_on_kafka.broker.transactions.records.inspection import (
    MAX_RANGES,
    BufferedState,
    PartitionBufferStats,
    all_in_buffer,
    all_in_pending_acks,
    buffer_stats,
    first_ranges,
    in_buffer,
    in_pending_acks,
    pending_ack_stats,
)
from pulsar_on_kafka_mapping.state.transactions.pending_acks import CursorIncarnation
from tests.memory_log import MemoryStateLog
from tests.unit.broker.transactions.buffer_records import HERE, Entries, aborted, opened, txn, void
from tests.unit.broker.transactions.pending_ack_owner import LIFE, NAME, NEVER, CursorOwner, batch, end, upto, whole
from tests.unit.broker.transactions.pending_ack_owner import txn as txn_of

T1, T2, T3 = txn(1), txn(2), txn(3)


@pytest.fixture
def entries() -> Entries:
    return Entries()


# Buffers --------------------------------------------------------------------------------------------------------------


def test_each_kind_of_entry_is_told(entries: Entries) -> None:
    entries.put(T1, opened(10))
    entries.put(T1, opened(8), session="bb")
    entries.put(T2, aborted([5, 6, 9], sealed=False, bound=4))
    entries.put(T3, void([12]))
    first, second, third = all_in_buffer(entries, HERE)
    assert (first.txn, first.on_record, first.lower_bound, first.records) == (T1, BufferedState.OPEN, 8, 0)
    assert (second.on_record, second.lower_bound, second.records) == (BufferedState.ABORTED, 4, 3)
    assert (second.ranges, second.sealed) == (((5, 6), (9, 9)), False)
    assert (third.on_record, third.lower_bound, third.ranges) == (BufferedState.NOTHING, None, ((12, 12),))


def test_an_open_that_is_over_holds_nothing_up_any_more(entries: Entries) -> None:
    entries.put(T1, opened(10))
    entries.low(1)
    assert in_buffer(entries, HERE, T1).on_record is BufferedState.NOTHING
    assert buffer_stats(entries, HERE) == PartitionBufferStats(
        HERE.topic, 0, ongoing=0, bound=None, aborted=0, unsealed=0, excluded=0, entries=1, waiting=1
    )


def test_what_is_open_in_a_former_life_holds_this_one_and_what_is_aborted_waits_to_be_cleaned(
    entries: Entries,
) -> None:
    entries.put(T1, opened(10, life=HERE.incarnation - 1))
    entries.put(T2, aborted([4], life=HERE.incarnation - 1))
    found = in_buffer(entries, HERE, T1)
    assert (found.on_record, found.lower_bound, found.former_lives) == (BufferedState.OPEN, 0, 1)
    assert (in_buffer(entries, HERE, T2).on_record, in_buffer(entries, HERE, T2).former_lives) == (
        BufferedState.NOTHING,
        1,
    )
    stats = buffer_stats(entries, HERE)
    assert (stats.ongoing, stats.bound, stats.aborted, stats.waiting) == (1, 0, 0, 1)


def test_a_partitions_buffer_is_counted(entries: Entries) -> None:
    entries.put(T1, opened(10))
    entries.put(T2, aborted([5, 6], sealed=False))
    entries.put(T3, aborted([7]))
    entries.put(T3, void([7, 20]))
    assert buffer_stats(entries, HERE) == PartitionBufferStats(
        HERE.topic, 0, ongoing=1, bound=10, aborted=2, unsealed=1, excluded=4, entries=4, waiting=0
    )


# Pending acks ---------------------------------------------------------------------------------------------------------


def test_what_is_held_is_told_by_transaction_and_together() -> None:
    log = MemoryStateLog()
    owner = CursorOwner(log, "s1", 1).start()
    owner.acknowledge(txn_of(1), whole(3, 4, 9))
    owner.acknowledge(txn_of(1), batch(12, 4, 0))
    owner.acknowledge(txn_of(2), whole(20))
    end(log, txn_of(2), committed=True)
    acks = owner.view.query(lambda found: found.cursor(NAME), NEVER)
    first, second = all_in_pending_acks(acks, NAME, LIFE)
    assert (first.txn, first.entries, first.ranges, first.batches) == (txn_of(1), 3, ((3, 4), (9, 9)), 1)
    assert (first.ended, second.ended, second.entries) == ("", "COMMITTED", 1)
    stats = pending_ack_stats(acks, NAME, LIFE)
    assert (stats.owner, stats.ongoing, stats.entries, stats.batches) == (("s1", 1), 2, 4, 1)
    assert (stats.cumulative, stats.ended, stats.former_lives) == (None, 1, 0)


def test_a_cumulative_one_is_told_by_its_place() -> None:
    owner = CursorOwner(MemoryStateLog(), "s1", 1).start()
    owner.acknowledge(txn_of(1), upto(7))
    acks = owner.view.query(lambda found: found.cursor(NAME), NEVER)
    assert in_pending_acks(acks, NAME, LIFE, txn_of(1)).cumulative == 7
    assert pending_ack_stats(acks, NAME, LIFE).cumulative == 7


def test_what_a_deleted_subscription_left_counts_as_former() -> None:
    owner = CursorOwner(MemoryStateLog(), "s1", 1).start()
    owner.acknowledge(txn_of(1), whole(3))
    acks = owner.view.query(lambda found: found.cursor(NAME), NEVER)
    stats = pending_ack_stats(acks, NAME, CursorIncarnation(LIFE.topic_incarnation, LIFE.subscription_incarnation + 1))
    assert (stats.owner, stats.ongoing, stats.former_lives) == (None, 0, 2)


# Offsets --------------------------------------------------------------------------------------------------------------


def test_no_more_than_a_hundred_ranges_are_told() -> None:
    assert first_ranges(BitMap64()) == ()
    assert first_ranges(BitMap64([0, 1, 2, 2**40])) == ((0, 2), (2**40, 2**40))
    assert len(first_ranges(BitMap64(range(0, 1000, 2)))) == MAX_RANGES
