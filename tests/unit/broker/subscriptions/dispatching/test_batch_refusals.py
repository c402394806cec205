"""Refused messages of a batch entry come again, and no others, whoever owns its partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from pyroaring import BitMap64

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import StoreError
from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.subscriptions.dispatching import batch_nacks
from pulsar_on_kafka.broker.subscriptions.dispatching.batch_nacks import BatchNacks, HeldHere
from pulsar_on_kafka.broker.subscriptions.partition.in_flight import DeliveriesInFlight
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Delivery, DeliveryRules, Endpoint, PartitionAcks
from pulsar_on_kafka.client.values.message import BatchedMessage, ReceivedMessage
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from tests.clocks import SetClock
from tests.unit.broker.subscriptions.leases.test_leased_records import Record

SIZE = 6


class Letters:
    max_redeliver_count = 1

    def __init__(self) -> None:
        self.buried: list[tuple[int, int]] = []
        self.kept: Any = None

    def take_refused(self, letter_topic: str, offset: int) -> bool:
        return False

    def publish_dead_letters(self, letters: Sequence[Delivery], kept: Any) -> None:
        self.buried += [places(letter) for letter in letters]
        self.kept = lambda: kept(letters[0])


def places(message: Any) -> tuple[int, int]:
    return message.batch_index, message.redeliveries


class Process:
    """One consumer that holds the batch entry at offset 3 and has received all of it."""

    def __init__(self, letters: Letters | None = None) -> None:
        self.clock = SetClock()
        self.slot = PartitionAcks("persistent://public/default/orders", 0, -1, LedgerLayout(1, 10))
        self.consumer = Endpoint("mine", 100, delivery_type=ReceivedMessage, rules=DeliveryRules(dead_letters=letters))
        self.in_flight = DeliveriesInFlight()
        self.in_flight.hold_batch(3, self.consumer.feed(self.slot), SIZE)
        self.acked = BatchAckSet(SIZE, 0)
        self.counts: dict[int, int] = {}
        self.whole: list[tuple[int, list[int]]] = []
        self.fails = False
        held = HeldHere(self.slot, self.in_flight, lambda offset: self.acked, self.counts)
        fetcher: Any = self
        self.refusals = BatchNacks("orders", fetcher, self.clock, lambda partition: held, self.give_back)

    def give_back(self, partition: int, offsets: BitMap64, endpoint: Endpoint) -> None:
        self.whole.append((partition, list(offsets)))

    def read_at(self, topic: str, partition: int, offsets: Sequence[int], deadline: Deadline) -> Iterator[list[Any]]:
        if self.fails:
            raise StoreError("no broker answers")
        yield [Record(offset, batch=SIZE) for offset in offsets if offset == 3]

    def acknowledge(self, *indexes: int) -> None:
        self.acked = BatchAckSet(SIZE, self.acked.acked | sum(1 << index for index in indexes))

    def refuse(self, *indexes: int, delay_s: float = 0.0) -> None:
        for index in indexes:
            self.slot.nacks_in_batch.append((self.clock.monotonic(), delay_s, 3, self.consumer, index, SIZE))
        self.refusals.drain([self.slot])

    def received(self, after_s: float = 0.0) -> list[tuple[int, int]]:
        """Batch index and redeliveries of what comes."""
        self.clock.seconds += after_s
        self.refusals.step()
        return [places(self.consumer.queue.popleft()) for _ in range(len(self.consumer.queue))]


def test_what_is_refused_comes_again_at_its_time_and_is_counted() -> None:
    process = Process()
    process.refuse(4, delay_s=1.0)
    process.refuse(1, 2, delay_s=2.0)
    process.refuse(4, delay_s=0.1)  # it is refused already
    assert process.refusals.next_due() is not None
    assert process.received(0.5) == []
    assert process.received(0.6) == [(4, 1)]
    assert process.received(1.0) == [(1, 1), (2, 1)]
    process.refuse(2, 3)
    assert process.received() == [(3, 1), (2, 2)]
    assert (process.whole, list(process.slot.nacks), process.consumer.unacked) == ([], [], SIZE)


def test_what_was_acknowledged_meanwhile_does_not_come() -> None:
    process = Process()
    process.refuse(1, 2, delay_s=1.0)
    process.acknowledge(1)
    assert process.received(1.0) == [(2, 1)]


def test_an_entry_that_is_refused_altogether_goes_to_anybody() -> None:
    process = Process()
    process.acknowledge(0, 1)
    process.refuse(2)
    assert process.received() == [(2, 1)]
    process.refuse(2, 3, 4, 5, delay_s=3.0)
    assert [nack[1:3] for nack in process.slot.nacks] == [(3.0, 3)]
    assert (process.counts, process.received(3.0)) == ({3: 1}, [])


def test_what_was_refused_goes_to_anybody_once_the_rest_is_acknowledged() -> None:
    process = Process()
    process.refuse(2, delay_s=1.0)
    process.acknowledge(0, 1, 3, 4, 5)
    assert process.received(1.0) == []
    assert process.whole == [(0, [3])]


def test_it_waits_for_room_and_for_brokers() -> None:
    process = Process()
    process.consumer.resize(1)
    waiting: Any = ReceivedMessage(Record(9), process.consumer.feed(process.slot), 9, 0)  # type: ignore[arg-type]
    process.consumer.deliver([waiting])
    process.refuse(2)
    process.refusals.step()
    assert list(process.consumer.queue) == [waiting]
    process.consumer.queue.clear()
    process.fails = True
    assert process.received() == []
    process.fails = False
    assert process.received(0.3) == [(2, 1)]


def test_what_its_consumer_holds_no_more_is_forgotten() -> None:
    for gone in ("let go", "given up", "closed"):
        process = Process()
        process.refuse(2, delay_s=1.0)
        if gone == "let go":
            process.in_flight.let_go([3])
        elif gone == "given up":
            process.slot.forgotten += 1
        else:
            process.consumer.close()
        process.refusals.sweep()
        assert process.received(1.0) == [], gone
        assert not process.refusals._entries, gone


def test_only_what_was_received_takes_too_long() -> None:
    process = Process()
    feed = process.consumer.feed(process.slot)
    process.refuse(0, delay_s=60.0)
    entry = BatchedMessage.in_batch(Record(3, batch=SIZE), feed, 3, 0, 5, _Entry())  # type: ignore[arg-type]
    process.consumer.deliver([entry])
    assert not process.refusals.late(0, BitMap64([3]), process.consumer)
    assert process.received() == [(5, 0), (1, 1), (2, 1), (3, 1), (4, 1)]
    process = Process()
    assert process.refusals.late(0, BitMap64([3, 8]), process.consumer) == BitMap64([3, 8])


class _Entry:
    size = SIZE


def test_what_was_refused_too_often_is_buried_and_tried_again_when_that_fails() -> None:
    letters = Letters()
    process = Process(letters)
    process.refuse(2, 4)
    assert process.received() == [(2, 1), (4, 1)]
    process.refuse(2)
    assert process.received() == []
    assert letters.buried == [(2, 2)]
    letters.kept()
    process.refusals.drain([process.slot])
    assert process.received(1.0) == []
    assert letters.buried == [(2, 2), (2, 3)]


def test_a_message_that_is_gone_counts_as_acknowledged() -> None:
    process = Process()
    process.in_flight.hold_batch(5, process.consumer.feed(process.slot), SIZE)
    process.slot.nacks_in_batch.append((0.0, 0.0, 5, process.consumer, 1, SIZE))
    process.refusals.drain([process.slot])
    assert process.received() == []
    assert list(process.slot.acks_in_batch) == [(5, 1, SIZE)]


def test_what_could_not_be_read_is_tried_again_a_little_later_and_not_before() -> None:
    process = Process()
    process.refuse(2)
    process.fails = True
    assert process.received() == []
    process.fails = False
    assert process.received(0.1) == []
    assert process.received(0.11) == [(2, 1)]


def test_what_is_ready_is_forgotten_when_its_consumer_does_not_hold_it_any_more() -> None:
    for gone in ("let go", "given up"):
        process = Process()
        process.consumer.resize(0)
        process.refuse(2)
        assert process.received() == []
        if gone == "let go":
            process.in_flight.let_go([3])
        else:
            process.slot.forgotten += 1
        process.consumer.resize(100)
        assert process.received() == []
        assert not process.refusals._ready
        assert process.whole == []


def test_a_consumer_whose_messages_all_come_again_loses_its_refusals_and_no_other_one() -> None:
    process = Process()
    process.refuse(2, delay_s=1.0)
    process.refusals.forget_consumer(Endpoint("other", 100, delivery_type=ReceivedMessage))
    assert process.received(1.0) == [(2, 1)]
    process.refuse(2, delay_s=1.0)
    process.refusals.forget_consumer(process.consumer)
    assert process.received(1.0) == []
    process.consumer.resize(0)
    process.refuse(2)
    assert process.received() == [], "it is ready, and there is no room"
    process.refusals.forget_consumer(process.consumer)
    process.consumer.resize(100)
    assert process.received() == []


def test_what_another_consumer_holds_is_not_refused_in_part() -> None:
    process = Process()
    other = Endpoint("other", 100, delivery_type=ReceivedMessage)
    process.in_flight.let_go([3])
    process.in_flight.hold_batch(3, other.feed(process.slot), SIZE)
    process.refuse(2, delay_s=1.0)
    assert [nack[1:] for nack in process.slot.nacks] == [(1.0, 3, process.consumer)]
    assert process.received(1.0) == []


def test_what_was_given_up_counts_anew() -> None:
    process = Process()
    process.refuse(2)
    assert process.received() == [(2, 1)]
    process.slot.forgotten += 1
    process.refuse(2)
    assert process.received() == [(2, 1)]


def test_messages_that_were_refused_differently_often_come_with_their_own_counts() -> None:
    process = Process()
    process.counts[3] = 2
    process.refuse(1)
    assert process.received() == [(1, 3)]
    process.refuse(0, 1)
    assert process.received() == [(0, 3), (1, 4)]
    process.acknowledge(2, 3, 4, 5)
    process.refuse(0, 1, delay_s=1.0)
    assert len(process.slot.nacks) == 1
    assert process.counts == {3: 4}


def test_what_is_late_of_an_entry_of_which_something_waits_comes_at_once() -> None:
    process = Process()
    process.refuse(0, 1, delay_s=60.0)
    process.acknowledge(2)
    assert not process.refusals.late(0, BitMap64([3]), process.consumer)
    assert process.refusals.next_due() == process.clock.monotonic()
    assert process.received() == [(3, 1), (4, 1), (5, 1)]
    assert process.received(60.0) == [(0, 1), (1, 1)]


def test_only_what_waits_of_the_same_entry_matters_to_what_is_late() -> None:
    process = Process()
    plain: Any = ReceivedMessage(Record(4), process.consumer.feed(process.slot), 4, 0)  # type: ignore[arg-type]
    other = PartitionAcks("persistent://public/default/orders", 1, -1, LedgerLayout(1, 10))
    of_other = BatchedMessage.in_batch(Record(3, batch=SIZE), process.consumer.feed(other), 3, 0, 5, _Entry())  # type: ignore[arg-type]
    process.consumer.deliver([plain, of_other])
    assert process.refusals.late(0, BitMap64([3]), process.consumer) == BitMap64([3])


def test_only_some_entries_are_handed_out_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_nacks, "_MAX_AT_ONCE", 1)
    process = Process()
    process.in_flight.hold_batch(5, process.consumer.feed(process.slot), SIZE)
    process.slot.nacks_in_batch.append((0.0, 0.0, 5, process.consumer, 1, SIZE))
    process.refuse(2)
    assert process.received() == [(2, 1)]
    assert not process.slot.acks_in_batch
    assert process.received() == []
    assert list(process.slot.acks_in_batch) == [(5, 1, SIZE)]


def test_a_batch_of_another_size_than_was_said_is_left_alone() -> None:
    process = Process()
    process.refuse(2, delay_s=60.0)
    process.slot.nacks_in_batch.append((0.0, 0.0, 3, process.consumer, 1, SIZE + 1))
    process.refusals.drain([process.slot])
    assert process.received() == []
    assert process.received(60.0) == [(2, 1)]


def test_an_entry_that_its_consumer_gets_once_more_counts_anew() -> None:
    process = Process()
    process.refuse(2)
    assert process.received() == [(2, 1)]
    process.consumer.resize(0)
    process.refuse(2)
    process.in_flight.let_go([3])
    assert process.received() == []
    process.in_flight.hold_batch(3, process.consumer.feed(process.slot), SIZE)
    process.consumer.resize(100)
    process.refuse(2)
    assert process.received() == [(2, 1)]
