"""Batch entries in an owned partition: what is handed out, counted, taken back and handed out again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity
from pulsar_on_kafka.broker.cursor.saved_cursor import SavedCursor
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.records.batches import gathered, up_to
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint, PartitionAcks
from pulsar_on_kafka.broker.subscriptions.records.remote_endpoint import RemoteEndpoint
from pulsar_on_kafka.client.values.message import BatchedMessage, ReceivedMessage
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.records.batch_entry import encode_columns
from pulsar_on_kafka_mapping.records.record_headers import BATCH
from pulsar_on_kafka_mapping.state.cursors.lease_records import LeasedEntry, RemoteConsumer
from pulsar_on_kafka_mapping.state.transactions.pending_acks import TxnAck


class Record:
    """The part of a Kafka record that a partition looks at; `size` 0 is a plain message."""

    def __init__(self, at: int, size: int, value: bytes | None = None, header: bytes | None = None) -> None:
        self.at = at
        self.size = size
        self._value = value if value is not None else encode_columns([b"%d" % i for i in range(size)]) if size else b""
        self._headers = [(BATCH, header or b"1:%d" % size)] if size or header else []

    def __len__(self) -> int:
        return len(self._value)

    def headers(self) -> list[tuple[str, bytes]]:
        return self._headers

    def value(self) -> bytes:
        return self._value


def a_partition(cursor: CursorState | None = None) -> OwnedPartition:
    slot = PartitionAcks("persistent://public/default/t", 0, -1, LedgerLayout(1, 10))
    identity = CursorIdentity("persistent://public/default/t", 0, "s", "t", "x" * 22, 1, 2, 10)
    return OwnedPartition(slot, identity, cursor or CursorState(0, 10), SavedCursor(identity.lineage(b"", 1, 0)))


def a_consumer() -> Endpoint:
    return Endpoint("joe", 1000, delivery_type=ReceivedMessage)


def fill(owned: OwnedPartition, *records: Record) -> None:
    owned.intake.accept([record.at for record in records], list(records))


def deliver(
    owned: OwnedPartition, consumer: Endpoint, limit: int = 1000, *, hold: bool = True
) -> list[tuple[int, int]]:
    offsets, records = owned.take(limit)
    owned.deliver(consumer.feed(owned.slot), offsets, records, hold=hold)
    return emptied(consumer)


def emptied(consumer: Endpoint) -> list[tuple[int, int]]:
    found = [_place(delivery) for delivery in consumer.queue]
    consumer.queue.clear()
    return found


def _place(delivery: Any) -> tuple[int, int]:
    return (delivery.offset, delivery.batch_index if isinstance(delivery, BatchedMessage) else -1)


def never_asked() -> int:
    pytest.fail("the log's end was asked for")


def test_a_limit_counts_messages_and_is_exceeded_by_the_last_entry_only() -> None:
    owned, joe = a_partition(), a_consumer()
    fill(owned, Record(0, 2), Record(1, 0), Record(2, 3), Record(3, 2))
    assert deliver(owned, joe, 4) == [(0, 0), (0, 1), (1, -1), (2, 0), (2, 1), (2, 2)]
    assert joe.unacked == 6
    assert deliver(owned, joe, 1) == [(3, 0), (3, 1)]
    assert (owned.buffered, owned.entries.batches, owned.in_flight.messages()) == (0, {}, 8)


def test_single_acks_complete_an_entry() -> None:
    owned, joe = a_partition(), a_consumer()
    fill(owned, Record(0, 3))
    deliver(owned, joe)
    owned.slot.acks_in_batch.extend([(0, 2, 3), (0, 0, 3), (0, 0, 3)])
    assert owned.drain_acknowledgements(never_asked)
    assert (joe.unacked, owned.cursor.next_unacked) == (1, 0)
    assert dict(owned.cursor.batches.items()) == {0: BatchAckSet(3, 0b101)}
    owned.slot.ack_in_batch((0, 1, 3))
    assert owned.drain_acknowledgements(never_asked)
    assert (joe.unacked, owned.cursor.next_unacked, len(owned.cursor.batches)) == (0, 1, 0)
    assert (owned.in_flight.holders, owned.in_flight.unacked_in) == ({}, {})


def test_an_ack_of_the_whole_entry_settles_what_is_left_of_it() -> None:
    owned, joe = a_partition(), a_consumer()
    fill(owned, Record(0, 3), Record(1, 0))
    deliver(owned, joe)
    owned.slot.ack_in_batch((0, 2, 3))
    owned.slot.ack(0)
    owned.drain_acknowledgements(never_asked)
    assert (joe.unacked, owned.cursor.next_unacked) == (1, 1)


def test_an_entry_comes_again_without_what_is_acknowledged() -> None:
    owned, joe = a_partition(), a_consumer()
    record = Record(0, 3)
    fill(owned, record)
    deliver(owned, joe)
    owned.slot.ack_in_batch((0, 1, 3))
    owned.drain_acknowledgements(never_asked)
    owned.redeliver([0], joe)
    assert joe.unacked == 0
    assert owned.readable({0: record}) == [0]
    owned.redeliveries.taken([0])
    owned.deliver(joe.feed(owned.slot), [0], [record], hold=True)
    assert [delivery.redeliveries for delivery in joe.queue] == [1, 1]
    assert emptied(joe) == [(0, 0), (0, 2)]
    assert joe.unacked == 2


def test_what_is_left_of_an_entry_is_leased_and_an_entry_of_which_nothing_is_left_is_not() -> None:
    lent: list[LeasedEntry] = []

    def lend(partition: int, consumer: int, entries: Sequence[LeasedEntry], *, needed: bool) -> None:
        lent.extend(entries)

    owned = a_partition()
    theirs = RemoteEndpoint(RemoteConsumer(1, "theirs"), "theirs", lend, lambda _: None, lambda: True)
    fill(owned, Record(0, 3), Record(1, 2), Record(2, 0), Record(3, 2))
    owned.cursor.acknowledge_batches({0: BatchAckSet(3, 0b010), 3: BatchAckSet(2, 0b01)})
    owned.held.holdings.hold(TxnId(0, 1), TxnAck(batches={3: (2, 0b10)}))
    offsets, records = owned.take(10)
    owned.deliver(theirs.feed(owned.slot), offsets, records, hold=True)
    assert lent == [LeasedEntry(0, 0, 2, (3, 0b010)), LeasedEntry(1, 0, 2), LeasedEntry(2)]
    assert (theirs.unacked, theirs.leased, owned.in_flight.messages()) == (5, 5, 5)
    assert list(owned.held.back) == [3]  # it comes when the transaction is aborted


def test_a_cumulative_ack_ends_inside_an_entry() -> None:
    owned, joe = a_partition(), a_consumer()
    fill(owned, Record(0, 2), Record(1, 3))
    deliver(owned, joe, hold=False)
    owned.slot.cumulative_in_batch.extend([(0, 1, 2), (1, 1, 3), (1, 0, 3)])
    assert owned.drain_acknowledgements(never_asked)
    assert (owned.cursor.next_unacked, dict(owned.cursor.batches.items())) == (1, {1: BatchAckSet(3, 0b011)})


def test_what_cannot_be_read_is_skipped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    owned, joe = a_partition(), a_consumer()
    fill(owned, Record(0, 2, value=b"\xff\xff"), Record(1, 0, header=b"x"), Record(2, 1), Record(3, 2, header=b"1:3"))
    assert deliver(owned, joe) == [(2, 0)]
    assert (owned.intake.corrupt_entries, owned.cursor.next_unacked, list(owned.cursor.deleted)) == (3, 2, [3])
    assert caplog.text.count("is skipped and acknowledged") == 3
    assert joe.unacked == 1


def test_a_later_format_stops_the_partition_and_nothing_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    owned, joe = a_partition(), a_consumer()
    fill(owned, Record(0, 0), Record(1, 2, header=b"9:2"), Record(2, 0))
    assert deliver(owned, joe) == [(0, -1)]
    assert owned.intake.stopped is not None
    assert "a newer one is needed" in owned.intake.stopped
    assert owned.intake.stopped in caplog.text
    assert (owned.read_position, owned.cursor.next_unacked) == (1, 0)


def test_a_later_format_that_comes_by_redelivery_stops_the_partition_too() -> None:
    owned = a_partition()
    assert owned.readable({0: Record(0, 0), 1: Record(1, 2, header=b"9:2")}) == [0]
    assert owned.intake.stopped is not None
    assert (owned.cursor.next_unacked, list(owned.cursor.deleted), owned.intake.corrupt_entries) == (0, [], 0)


def test_a_seek_into_an_entry() -> None:
    owned, joe = a_partition(), a_consumer()
    assert owned.seek(4, BatchAckSet(3, 0b001)) == 4
    fill(owned, Record(4, 3))
    assert deliver(owned, joe) == [(4, 1), (4, 2)]


def test_acks_are_gathered_by_entry() -> None:
    acks = [(5, 0, 2), (5, 1, 2), (3, 1, 4), (5, 1, 9), (3, 3, 4)]
    assert gathered(acks) == {5: BatchAckSet(2, 0b11), 3: BatchAckSet(4, 0b1010)}
    assert up_to([(3, 0, 4), (3, 2, 4), (2, 9, 10)]) == (3, {3: BatchAckSet(4, 0b111)})


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_the_unacknowledged_comes_again_and_nothing_else(seed: int) -> None:
    """25 histories a seed; the truth is a set of places."""
    for number in range(25):
        _history(random.Random(seed * 1000 + number))


def _history(rng: random.Random) -> None:  # noqa: C901 - one story
    log = [Record(at, rng.choice((0, 0, 1, 2, 5))) for at in range(40)]
    everything = {(r.at, i) for r in log for i in range(r.size or 1)}
    everything = {(at, i if log[at].size else -1) for at, i in everything}
    owned = a_partition()
    consumers = [a_consumer(), a_consumer()]
    acked: set[tuple[int, int]] = set()
    held: list[tuple[int, int]] = []

    def read() -> None:
        batch = [record for record in log if record.at >= owned.read_position][: rng.randrange(1, 15)]
        if batch:
            fill(owned, *batch)

    def hand_out() -> None:
        consumer = rng.choice(consumers)
        if rng.random() < 0.6:
            found = deliver(owned, consumer, rng.randrange(1, 10))
        else:
            offsets = owned.readable({at: log[at] for at in owned.redeliveries.lowest(4)})
            owned.redeliveries.taken(offsets)
            part = owned.entries.fitting(offsets, rng.randrange(1, 8))
            owned.redeliveries.put_back(offsets[part:])
            owned.deliver(consumer.feed(owned.slot), offsets[:part], [log[at] for at in offsets[:part]], hold=True)
            found = emptied(consumer)
        assert not acked.intersection(found)
        held.extend(found)

    def acknowledge() -> None:
        for at, index in rng.sample(held, min(len(held), rng.randrange(1, 9))):
            if index >= 0 and rng.random() < 0.9:
                owned.slot.ack_in_batch((at, index, log[at].size))
                acked.add((at, index))
            else:
                owned.slot.ack(at)
                acked.update(place for place in everything if place[0] == at)
        owned.drain_acknowledgements(never_asked)

    def give_back() -> None:
        owned.give_back(rng.choice(consumers).feed(owned.slot))

    def nack() -> None:
        if held:
            owned.redeliver([rng.choice(held)[0]], rng.choice(consumers))

    def restart() -> None:
        """Only the cursor survives."""
        nonlocal owned
        kept = CursorState(owned.cursor.next_unacked, 10)
        kept.restore({index: owned.cursor.holes_of(index) for index in owned.cursor.ledgers_with_state()})
        owned = a_partition(kept)
        held.clear()
        for consumer in consumers:
            consumer.unacked = 0

    for _ in range(60):
        rng.choices((read, hand_out, acknowledge, give_back, nack, restart), (4, 6, 5, 1, 2, 0.3))[0]()
        holding = sum(consumer.unacked for consumer in consumers)
        assert holding == owned.in_flight.messages()
        in_flight = {place for place in everything - acked if place[0] in owned.in_flight.holders}
        assert holding == len(in_flight)
        assert set(owned.in_flight.unacked_in) == {at for at in owned.in_flight.holders if log[at].size}
    restart()
    fill(owned, *[record for record in log if record.at >= owned.read_position])
    left: list[tuple[int, int]] = []
    while owned.buffered:
        left += deliver(owned, consumers[0])
    assert sorted(left) == sorted(everything - acked)
