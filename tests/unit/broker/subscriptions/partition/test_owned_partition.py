"""One owned partition hands out, holds and takes back messages."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity
from pulsar_on_kafka.broker.cursor.saved_cursor import SavedCursor
from pulsar_on_kafka.broker.subscriptions.partition import held_entries
from pulsar_on_kafka.broker.subscriptions.partition.delivery_guard import DeliveryGuard
from pulsar_on_kafka.broker.subscriptions.partition.key_order import KeyOrder
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.partition.partition_options import PartitionTerms
from pulsar_on_kafka.broker.subscriptions.records.chunks import Known
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Delivery, Endpoint, PartitionAcks
from pulsar_on_kafka.broker.subscriptions.records.remote_endpoint import RemoteEndpoint
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.records.record_headers import MARKER, PRODUCER
from pulsar_on_kafka_mapping.state.cursors.lease_records import LeasedEntry, RemoteConsumer


@dataclass
class Record:
    """The part of a Kafka record that a partition looks at."""

    at: int
    names: tuple[str, ...] = ()
    size: int = 10

    def __len__(self) -> int:
        return self.size

    def headers(self) -> list[tuple[str, bytes]]:
        return [(name, b"txn_commit") for name in self.names]


def a_partition(start: int = 0, entries_per_ledger: int = 10, terms: PartitionTerms | None = None) -> OwnedPartition:
    slot = PartitionAcks("persistent://public/default/t", 0, -1, LedgerLayout(1, entries_per_ledger))
    identity = CursorIdentity("persistent://public/default/t", 0, "s", "t", "x" * 22, 1, 2, entries_per_ledger)
    return OwnedPartition(
        slot, identity, CursorState(start, entries_per_ledger), SavedCursor(identity.lineage(b"", 1, 0)), terms
    )


def a_consumer(name: str = "joe") -> Endpoint:
    return Endpoint(name, 1000, delivery_type=Delivery)


def fill(owned: OwnedPartition, *offsets: int, marker_at: tuple[int, ...] = ()) -> None:
    owned.intake.accept(list(offsets), [Record(at, (MARKER,) if at in marker_at else ()) for at in offsets])


def taken(owned: OwnedPartition, limit: int = 1000) -> list[int]:
    found: list[int] = []
    while owned.buffered and limit > 0:
        offsets, records = owned.take(limit)
        assert offsets == [record.at for record in records]
        found += offsets
        limit -= len(offsets)
    return found


def never_asked() -> int:
    pytest.fail("the log's end was asked for")


def test_records_come_out_as_they_went_in() -> None:
    owned = a_partition()
    fill(owned, 0, 1, 2)
    fill(owned, 3, 4)
    assert owned.buffered == 5
    assert taken(owned, 2) == [0, 1]
    assert taken(owned) == [2, 3, 4]
    assert (owned.buffered, owned.intake.buffer.size_bytes, owned.read_position) == (0, 0, 5)


def test_offsets_that_no_fetch_returned_count_as_acknowledged() -> None:
    owned = a_partition()
    fill(owned, 2, 3, 7)
    assert owned.cursor.next_unacked == 2
    assert list(owned.cursor.deleted) == [4, 5, 6]
    fill(owned, 10)
    assert list(owned.cursor.deleted) == [4, 5, 6, 8, 9]
    assert taken(owned) == [2, 3, 7, 10]


def test_markers_are_acknowledged_and_not_handed_out() -> None:
    owned = a_partition()
    fill(owned, 0, 1, 2, 3, marker_at=(0, 2))
    assert taken(owned) == [1, 3]
    assert owned.cursor.next_unacked == 1
    assert list(owned.cursor.deleted) == [2]


def test_a_run_of_nothing_but_markers_leaves_nothing_to_hand_out() -> None:
    owned = a_partition()
    fill(owned, 0, 1, marker_at=(0, 1))
    assert (owned.buffered, owned.cursor.next_unacked, owned.read_position) == (0, 2, 2)


def test_our_own_headers_make_no_marker() -> None:
    owned = a_partition()
    owned.intake.accept([0], [Record(0, (PRODUCER, "__pulsar.event_time", "name"))])
    assert taken(owned) == [0]


def test_what_is_acknowledged_already_is_not_handed_out() -> None:
    owned = a_partition()
    owned.cursor.acknowledge([1, 3])
    fill(owned, 0, 1, 2, 3, 4)
    assert taken(owned) == [0, 2, 4]


def test_what_is_acknowledged_while_it_waits_is_not_handed_out() -> None:
    owned = a_partition()
    fill(owned, 0, 1, 2, 3, 4)
    owned.slot.acks.extend([2, 4])
    assert owned.drain_acknowledgements(never_asked)
    assert taken(owned) == [0, 1, 3]
    assert owned.buffered == 0


def test_everything_acknowledged_while_it_waits_leaves_nothing() -> None:
    owned = a_partition()
    fill(owned, 0, 1, 2)
    owned.slot.cumulative.append(2)
    assert owned.drain_acknowledgements(never_asked)
    assert owned.take(10) == ([], [])
    assert (owned.buffered, owned.intake.buffer.size_bytes) == (0, 0)


def test_records_fetched_before_a_seek_took_effect_are_passed_over() -> None:
    owned = a_partition()
    fill(owned, 0, 1, 2)
    assert owned.seek(5) == 5
    fill(owned, 3, 4)
    assert owned.buffered == 0
    fill(owned, 4, 5, 6)
    assert taken(owned) == [5, 6]


def test_a_seek_back_hands_everything_out_again() -> None:
    owned = a_partition()
    fill(owned, 0, 1, 2)
    taken(owned)
    owned.slot.acks.extend([0, 1, 2])
    owned.drain_acknowledgements(never_asked)
    assert owned.seek(1) == 1
    fill(owned, 1, 2)
    assert taken(owned) == [1, 2]


def test_what_an_administrator_skips_counts_as_out() -> None:
    owned = a_partition()
    guard = DeliveryGuard(0, dict)
    owned.count_deliveries(guard)
    fill(owned, 0, 1, 2, 3)
    assert owned.acknowledge_up_to(2) is False
    assert [guard.next_delivery(offset) for offset in range(4)] == [2, 2, 2, 1]
    assert owned.cursor.next_unacked == 3


def test_what_waits_is_dropped_with_what_waits_for_its_keys_turn() -> None:
    owned, joe = a_partition(), a_consumer()
    keys: KeyOrder[Endpoint] = KeyOrder(keep_order=True)
    owned.keys = keys
    keys.assign([joe], [joe])
    keys.admit([0, 1], [0, 0], [Record(0), Record(1)])
    owned.intake.read_position = 2
    fill(owned, 2, 3, 4)
    owned.pass_by(drop=True)
    assert (owned.meter.dropped, owned.buffered, keys.waiting) == (5, 0, 0)
    assert not keys.has_for(joe)


def test_what_is_put_back_is_looked_at_again() -> None:
    owned = a_partition()
    owned.entries.batches.update({3: 10, 4: 10})
    owned.redeliveries.put_back([3])
    assert list(owned.redeliveries.waiting) == [3]
    assert owned.entries.batches == {4: 10}


def test_acks_beyond_the_logs_end_are_dropped() -> None:
    owned = a_partition()
    fill(owned, 0, 1)
    owned.slot.acks.extend([1, 7, 100])
    assert owned.drain_acknowledgements(lambda: 8)
    assert list(owned.cursor.deleted) == [1, 7]
    owned.slot.cumulative.append(100)
    assert not owned.drain_acknowledgements(lambda: 8)
    owned.slot.cumulative.append(7)
    assert owned.drain_acknowledgements(lambda: 8)
    assert owned.cursor.next_unacked == 8


def test_nothing_to_drain_is_no_change() -> None:
    owned = a_partition()
    assert not owned.drain_acknowledgements(never_asked)
    assert not owned.saves.dirty or owned.saves.saved_revision == -1


def test_an_ack_settles_what_is_in_flight() -> None:
    owned, joe = a_partition(), a_consumer()
    feed = joe.feed(owned.slot)
    fill(owned, 0, 1, 2)
    owned.in_flight.hold(taken(owned), feed)
    assert joe.unacked == 3
    owned.slot.acks.extend([0, 2, 2])
    owned.drain_acknowledgements(never_asked)
    assert joe.unacked == 1
    assert owned.in_flight.held_by(feed) == [1]


def test_redelivery_counts_up_and_comes_lowest_first() -> None:
    owned, joe = a_partition(), a_consumer()
    feed = joe.feed(owned.slot)
    fill(owned, 0, 1, 2)
    owned.in_flight.hold(taken(owned), feed)
    owned.redeliver([2, 0], joe)
    owned.redeliver([0], joe)
    assert owned.redeliveries.lowest(10) == [0, 2]
    assert owned.redeliveries.counts == {0: 1, 2: 1}
    assert joe.unacked == 1
    owned.redeliveries.taken([0, 2])
    owned.in_flight.hold([0, 2], feed)
    owned.redeliver([0], joe)
    assert owned.redeliveries.counts[0] == 2


def test_only_the_consumer_that_holds_a_message_may_have_it_delivered_again() -> None:
    owned, joe, ann = a_partition(), a_consumer("joe"), a_consumer("ann")
    fill(owned, 0, 1)
    owned.in_flight.hold(taken(owned), joe.feed(owned.slot))
    owned.redeliver([0, 1], ann)
    owned.redeliver([0, 1], None)
    assert (owned.redeliveries.lowest(10), owned.redeliveries.counts, joe.unacked) == ([], {}, 2)


def test_what_was_put_off_and_nobody_holds_comes_again() -> None:
    owned = a_partition()
    fill(owned, 0, 1, 2)
    taken(owned)
    owned.cursor.acknowledge([1])
    owned.redeliver([0, 1], None)
    assert (owned.redeliveries.lowest(10), owned.redeliveries.counts) == ([0], {0: 1})


def test_an_ack_takes_a_message_out_of_those_that_come_again() -> None:
    owned, joe = a_partition(), a_consumer()
    fill(owned, 0, 1)
    owned.in_flight.hold(taken(owned), joe.feed(owned.slot))
    owned.redeliver([0], joe)
    owned.slot.acks.append(0)
    owned.drain_acknowledgements(never_asked)
    assert owned.redeliveries.lowest(10) == []
    assert owned.redeliveries.counts == {}
    assert joe.unacked == 1


def test_a_consumer_that_leaves_gives_back_without_counting() -> None:
    owned, joe, ann = a_partition(), a_consumer("joe"), a_consumer("ann")
    fill(owned, 0, 1, 2, 3)
    owned.in_flight.hold(owned.take(2)[0], joe.feed(owned.slot))
    owned.in_flight.hold(owned.take(2)[0], ann.feed(owned.slot))
    owned.give_back(joe.feed(owned.slot))
    assert owned.redeliveries.lowest(10) == [0, 1]
    assert owned.redeliveries.counts == {}
    assert (joe.unacked, ann.unacked) == (0, 2)


def test_rewind_forgets_who_held_what_and_goes_to_mark_delete() -> None:
    owned, joe = a_partition(), a_consumer()
    fill(owned, 0, 1, 2, 3)
    owned.in_flight.hold(owned.take(3)[0], joe.feed(owned.slot))
    owned.slot.acks.append(0)
    owned.drain_acknowledgements(never_asked)
    owned.redeliver([2], joe)
    assert owned.rewind() == 1
    assert (joe.unacked, owned.buffered, owned.redeliveries.lowest(5)) == (0, 0, [])


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_the_unacknowledged_comes_again_and_nothing_else(seed: int) -> None:
    """25 histories a seed on a log with gaps and markers; the truth is a set."""
    for _ in range(25):
        _history(random.Random(seed * 1000 + _))


def _history(rng: random.Random) -> None:
    owned = a_partition(entries_per_ledger=rng.choice((1, 4, 50)))
    log = [Record(at, (MARKER,) if rng.random() < 0.1 else ()) for at in range(60) if rng.random() < 0.9]
    consumers = [a_consumer("a"), a_consumer("b")]
    acked: set[int] = set()
    held: list[tuple[int, Any]] = []

    def read() -> None:
        batch = [record for record in log if record.at >= owned.read_position][: rng.randrange(1, 20)]
        if batch:
            owned.intake.accept([record.at for record in batch], batch)

    def hand_out() -> None:
        feed = rng.choice(consumers).feed(owned.slot)
        offsets = owned.take(rng.randrange(1, 10))[0] if rng.random() < 0.6 else owned.redeliveries.lowest(4)
        owned.redeliveries.taken(offsets)
        assert not acked.intersection(offsets)
        owned.in_flight.hold(offsets, feed)
        held.extend((offset, feed) for offset in offsets)

    def acknowledge() -> None:
        for offset, _ in rng.sample(held, min(len(held), rng.randrange(1, 5))):
            owned.slot.ack(offset)
            acked.add(offset)
        owned.drain_acknowledgements(never_asked)

    def give_back() -> None:
        owned.give_back(rng.choice(consumers).feed(owned.slot))

    def nack() -> None:
        if held:
            offset, feed = rng.choice(held)
            owned.redeliver([offset], feed.endpoint)

    for _ in range(60):
        rng.choice((read, hand_out, hand_out, acknowledge, acknowledge, give_back, nack))()
    for consumer in consumers:
        owned.give_back(consumer.feed(owned.slot))
        assert consumer.unacked == 0
    while any(record.at >= owned.read_position for record in log):
        read()
    left = set(taken(owned)) | set(owned.redeliveries.lowest(1000))
    assert left == {record.at for record in log if not record.names} - acked


def test_what_is_out_in_order_is_what_was_handed_out_and_is_unacknowledged() -> None:
    """Also of what a former owner handed out; not what waits here, nor chunks of what is not complete."""
    owned = a_partition()
    fill(owned, 0, 1, 2, 4, 5)
    assert taken(owned, 4) == [0, 1, 2, 4]
    owned.cursor.acknowledge([1])
    held_entries.still_out(owned, [9, 12], {12: Known((3, 7, 12), 30)})
    assert list(held_entries.out_in_order(owned)) == [0, 2, 4, 7, 9, 12]
    owned.cursor.acknowledge([7, 12])
    owned.cursor.acknowledge_batches({2: BatchAckSet(5, 0b101)})
    found = {entry.offset: (entry.messages, entry.acked) for entry in held_entries.received_in_order(owned)}
    assert found == {0: (1, None), 2: (3, (5, 0b101)), 4: (1, None), 9: (1, None)}
    assert owned.rewind() == 0
    assert list(owned.intake.passed_over) == []


def test_acks_from_elsewhere_count_whoever_holds_the_message_but_not_beyond_the_logs_end() -> None:
    owned, joe = a_partition(), a_consumer()
    fill(owned, 0, 1, 2, 3)
    offsets, records = owned.take(4)
    owned.deliver(joe.feed(owned.slot), offsets, records, hold=True)
    owned.acknowledge_elsewhere([0, 2], {1: (3, 0b001)})
    assert (owned.cursor.next_unacked, set(owned.cursor.deleted), sorted(owned.holders)) == (1, {2}, [1, 3])
    assert dict(owned.cursor.batches.items()) == {1: BatchAckSet(3, 0b001)}
    owned.acknowledge_elsewhere([], {1: (3, 0b110)})
    assert (owned.cursor.next_unacked, sorted(owned.holders), joe.unacked) == (3, [3], 1)
    revision = owned.cursor.revision
    owned.acknowledge_elsewhere([], {})
    assert owned.cursor.revision == revision


def test_what_kafka_deleted_is_acknowledged_and_what_was_unacknowledged_of_it_is_counted() -> None:
    owned = a_partition()
    owned.cursor.acknowledge([2, 7])
    assert owned.deleted_below(5) == 4
    assert owned.meter.deleted_unacknowledged == 4
    assert (owned.cursor.next_unacked, set(owned.cursor.deleted)) == (5, {7})
    assert owned.deleted_below(5) == 0


def test_where_nothing_is_kept_what_was_handed_out_is_acknowledged() -> None:
    """And what waits is not."""
    owned, joe = a_partition(), a_consumer()
    fill(owned, 0, 1, 2, 3)
    offsets, records = owned.take(2)
    owned.deliver(joe.feed(owned.slot), offsets, records, hold=True)
    owned.pass_by(drop=False)
    assert (owned.cursor.next_unacked, joe.unacked) == (2, 0)
    revision = owned.cursor.revision
    owned.pass_by(drop=False)
    assert owned.cursor.revision == revision
    taken(owned)
    owned.pass_by(drop=False)
    assert owned.cursor.next_unacked == 4


def test_a_seek_forgets_what_was_to_come_again_and_what_a_former_owner_handed_out() -> None:
    owned = a_partition()
    owned.kept_upto = 9
    assert (owned.went_out(8), owned.went_out(9)) == (True, False)
    fill(owned, 0, 1)
    owned.redeliveries.add([1])
    assert owned.seek(1) == 1
    assert (owned.went_out(0), owned.went_out(1), owned.has_redeliveries, owned.redeliveries.counts) == (
        True,
        False,
        False,
        {},
    )


class _Lent:
    """A consumer in another process, and what was leased to it."""

    def __init__(self, most: int | None = None) -> None:
        self.entries: list[LeasedEntry] = []
        said = RemoteConsumer(1, "theirs", max_redeliver_count=most)
        self.endpoint = RemoteEndpoint(said, "theirs", self._lend, lambda _: None, lambda: True)

    def _lend(self, partition: int, consumer: int, entries: Sequence[LeasedEntry], *, needed: bool) -> None:
        assert (partition, consumer, needed) == (0, 1, True)
        self.entries += entries


def test_what_is_leased_says_how_often_it_came_and_is_held() -> None:
    owned, theirs = a_partition(), _Lent()
    fill(owned, 0, 1, 2)
    owned.redeliveries.add([1])
    offsets, records = owned.take(3)
    owned.deliver(theirs.endpoint.feed(owned.slot), offsets, records, hold=True)
    assert theirs.entries == [LeasedEntry(0), LeasedEntry(1, 1), LeasedEntry(2)]
    assert (theirs.endpoint.unacked, theirs.endpoint.leased, sorted(owned.holders)) == (3, 3, [0, 1, 2])
    assert held_entries.received(owned) == {}
    owned.give_back(theirs.endpoint.feed(owned.slot))
    assert (theirs.endpoint.unacked, owned.redeliveries.lowest(9)) == (0, [0, 1, 2])


def test_what_this_process_holds_is_as_if_it_was_leased_to_it() -> None:
    owned, joe = a_partition(), a_consumer()
    feed = joe.feed(owned.slot)
    held_entries.still_held(owned, feed, {3: 1, 5: 4, 9: 3}, {9: Known((6, 7, 9), 30)})
    owned.cursor.acknowledge_batches({5: BatchAckSet(5, 0b00001)})
    owned.redeliveries.counts[3] = 2
    assert (joe.unacked, list(owned.intake.passed_over)) == (8, [3, 5, 6, 7, 9])
    assert sorted(held_entries.received(owned)[feed], key=lambda entry: entry.offset) == [
        LeasedEntry(3, 2),
        LeasedEntry(5, 0, 4, (5, 0b00001)),
        LeasedEntry(9, 0, 3, None, (6, 7, 9), 30),
    ]
