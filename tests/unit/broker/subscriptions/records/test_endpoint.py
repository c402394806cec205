"""One consumer's inbox: who may fill it, who empties it, and that neither waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Closed, DeadlineExceeded, Fenced
from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Delivery, DeliveryRules, Endpoint, PartitionAcks
from pulsar_on_kafka.kafka.records import KafkaRecord
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout

SOON = Deadline.after_ms


def a_slot(number: int = 0) -> PartitionAcks:
    return PartitionAcks(f"persistent://public/default/t-partition-{number}", number, number, LedgerLayout(1))


def an_endpoint(capacity: int = 4, **rules: Any) -> Endpoint:
    return Endpoint("joe", capacity, delivery_type=Delivery, rules=DeliveryRules(**rules))


def deliveries(endpoint: Endpoint, slot: PartitionAcks, *offsets: int) -> list[Delivery]:
    feed = endpoint.feed(slot)
    return [Delivery(cast("KafkaRecord", None), feed, offset, 0) for offset in offsets]


def offsets_of(found: list[Delivery]) -> list[int]:
    return [delivery.offset for delivery in found]


def in_a_thread(action: object) -> threading.Thread:
    assert callable(action)
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


def test_permits_are_the_room_that_is_left() -> None:
    endpoint = an_endpoint(4)
    assert endpoint.permits() == 4
    endpoint.deliver(deliveries(endpoint, a_slot(), 1, 2, 3))
    assert endpoint.permits() == 1
    endpoint.deliver(deliveries(endpoint, a_slot(), 4, 5))
    assert endpoint.permits() == 0


def test_unacked_limit_takes_permits_away() -> None:
    endpoint = an_endpoint(10, max_unacked=3)
    endpoint.unacked = 2
    assert endpoint.shared_permits() == 1
    endpoint.unacked = 3
    assert endpoint.shared_permits() == 0
    assert endpoint.permits() == 10


def test_a_closed_inbox_takes_nothing_and_forgets_what_it_had() -> None:
    endpoint = an_endpoint()
    endpoint.deliver(deliveries(endpoint, a_slot(), 1))
    endpoint.close()
    assert endpoint.permits() == 0
    with pytest.raises(Closed, match="joe"):
        endpoint.take(Deadline.never())


def test_messages_come_in_order() -> None:
    endpoint = an_endpoint()
    endpoint.deliver(deliveries(endpoint, a_slot(), 1, 2))
    endpoint.deliver(deliveries(endpoint, a_slot(), 3))
    assert [endpoint.take(SOON(10)).offset for _ in range(3)] == [1, 2, 3]
    assert endpoint.take_now() is None


def test_take_gives_up_at_its_deadline() -> None:
    with pytest.raises(DeadlineExceeded, match="joe"):
        an_endpoint().take(SOON(5))


def test_a_waiting_receiver_gets_what_is_delivered() -> None:
    endpoint = an_endpoint()
    got: list[int] = []
    thread = in_a_thread(lambda: got.append(endpoint.take(SOON(10_000)).offset))
    endpoint.deliver(deliveries(endpoint, a_slot(), 7))
    thread.join(10)
    assert got == [7]


def test_as_many_waiting_receivers_as_messages_are_served() -> None:
    endpoint = an_endpoint(100)
    got: list[int] = []
    threads = [in_a_thread(lambda: got.append(endpoint.take(SOON(10_000)).offset)) for _ in range(8)]
    for offset in range(8):
        endpoint.deliver(deliveries(endpoint, a_slot(), offset))
    for thread in threads:
        thread.join(10)
    assert sorted(got) == list(range(8))


def test_close_wakes_a_waiting_receiver() -> None:
    endpoint = an_endpoint()
    raised: list[BaseException] = []

    def receive() -> None:
        try:
            endpoint.take(SOON(10_000))
        except Closed as error:
            raised.append(error)

    thread = in_a_thread(receive)
    endpoint.close()
    thread.join(10)
    assert len(raised) == 1


def test_a_failure_reaches_receivers_after_what_was_delivered() -> None:
    endpoint = an_endpoint()
    endpoint.deliver(deliveries(endpoint, a_slot(), 1))
    endpoint.fail(Fenced("somebody else owns it"))
    assert endpoint.take(SOON(10)).offset == 1
    with pytest.raises(Fenced, match="somebody else"):
        endpoint.take(Deadline.never())


def test_discard_takes_one_partition_out_and_keeps_the_order_of_the_rest() -> None:
    endpoint = an_endpoint(10)
    first, second = a_slot(0), a_slot(1)
    endpoint.deliver(deliveries(endpoint, first, 1, 2))
    endpoint.deliver(deliveries(endpoint, second, 10, 11))
    endpoint.deliver(deliveries(endpoint, first, 3))
    endpoint.deliver(deliveries(endpoint, second, 12))
    assert offsets_of(endpoint.discard(first)) == [1, 2, 3]
    assert [endpoint.take(SOON(10)).offset for _ in range(3)] == [10, 11, 12]


def test_discard_of_everything_empties_the_inbox() -> None:
    endpoint = an_endpoint(10)
    endpoint.deliver(deliveries(endpoint, a_slot(0), 1))
    endpoint.deliver(deliveries(endpoint, a_slot(1), 5))
    assert offsets_of(endpoint.discard(None)) == [1, 5]
    assert endpoint.take_now() is None


def test_what_comes_after_a_discard_stands_behind_what_was_kept() -> None:
    endpoint = an_endpoint(10)
    first, second = a_slot(0), a_slot(1)
    endpoint.deliver([*deliveries(endpoint, first, 1), *deliveries(endpoint, second, 10)])
    endpoint.discard(first)
    endpoint.deliver(deliveries(endpoint, first, 1))
    assert [endpoint.take(SOON(10)).feed.slot.number for _ in range(2)] == [1, 0]


def test_discard_beside_receivers_loses_and_doubles_nothing() -> None:
    """What is not discarded is received exactly once, in order, whoever runs first."""
    endpoint = an_endpoint(100_000)
    kept, dropped = a_slot(0), a_slot(1)
    got: list[int] = []

    def receive() -> None:
        while (delivery := endpoint.take(SOON(10_000))).offset >= 0:
            if delivery.feed.slot is kept:
                got.append(delivery.offset)

    thread = in_a_thread(receive)
    for base in range(0, 20_000, 20):
        endpoint.deliver(deliveries(endpoint, kept, *range(base, base + 20)))
        endpoint.deliver(deliveries(endpoint, dropped, *range(5)))
        endpoint.discard(dropped)
    endpoint.deliver(deliveries(endpoint, kept, -1))
    thread.join(20)
    assert got == list(range(20_000))


def test_a_starved_member_is_woken_when_the_inbox_is_half_empty() -> None:
    endpoint = an_endpoint(4)
    woken = threading.Event()
    endpoint.wake_member = woken.set
    endpoint.deliver(deliveries(endpoint, a_slot(), 1, 2, 3, 4))
    endpoint.starved = True
    endpoint.take_now()
    assert not woken.is_set()
    endpoint.take_now()
    assert woken.is_set()


def test_a_receiver_that_finds_nothing_wakes_a_starved_member() -> None:
    endpoint = an_endpoint(4)
    woken = threading.Event()
    endpoint.wake_member = woken.set
    endpoint.starved = True
    with pytest.raises(DeadlineExceeded):
        endpoint.take(SOON(5))
    assert woken.is_set()


def test_with_capacity_zero_only_a_waiting_receiver_is_a_permit() -> None:
    endpoint = an_endpoint(0)
    waiting = threading.Event()
    endpoint.wake_member = waiting.set
    assert endpoint.permits() == 0
    got: list[int] = []
    thread = in_a_thread(lambda: got.append(endpoint.take(SOON(10_000)).offset))
    assert waiting.wait(10)
    assert endpoint.permits() == 1
    endpoint.deliver(deliveries(endpoint, a_slot(), 3))
    thread.join(10)
    assert got == [3]
    assert endpoint.permits() == 0


def test_with_capacity_zero_a_listener_is_a_permit_while_it_is_idle() -> None:
    endpoint = an_endpoint(0)
    endpoint.expect(1)
    assert endpoint.permits() == 1
    endpoint.expect(-1)
    assert endpoint.permits() == 0


def test_on_available_is_called_for_every_delivery_and_failure() -> None:
    endpoint = an_endpoint()
    calls: list[int] = []
    endpoint.on_available = lambda: calls.append(1)
    endpoint.deliver(deliveries(endpoint, a_slot(), 1))
    endpoint.fail(Fenced("gone"))
    assert len(calls) == 2


def test_a_feed_stays_the_same_for_a_slot() -> None:
    endpoint, slot = an_endpoint(), a_slot()
    assert endpoint.feed(slot) is endpoint.feed(slot)
    assert endpoint.feed(slot) is not an_endpoint().feed(slot)
    assert endpoint.feed(a_slot()) is not endpoint.feed(slot)


def test_the_first_acknowledgement_wakes_a_member_that_watches() -> None:
    woken: list[int] = []
    slot = PartitionAcks("persistent://public/default/t", 0, -1, LedgerLayout(1, 10))
    ways: tuple[Callable[[], None], ...] = (
        lambda: slot.ack(1),
        lambda: slot.ack_in_batch((1, 0, 2)),
        lambda: slot.ack_set((1, BatchAckSet(2, 1))),
        lambda: slot.ack_upto(1),
        lambda: slot.ack_upto_in_batch((1, 0, 2)),
    )
    for acknowledge in ways:
        acknowledge()
        assert not woken, "no member watches"
        slot.watch(lambda: woken.append(len(slot.acks) + len(slot.cumulative)))
        acknowledge()
        acknowledge()
        assert len(woken) == 1
        woken.clear()
    assert len(slot.acks) == len(slot.ack_sets) == len(slot.cumulative) == 3
    assert len(slot.acks_in_batch) == len(slot.cumulative_in_batch) == 3
    slot.watch(lambda: woken.append(0))
    slot.unwatch()
    slot.ack(2)
    assert not woken
