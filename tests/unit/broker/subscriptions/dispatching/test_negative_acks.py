"""Put-off messages come again, or are forgotten meanwhile."""

from __future__ import annotations

import random

import pytest
from pyroaring import BitMap64

from pulsar_on_kafka.broker.subscriptions.dispatching.negative_acks import NegativeAcks
from pulsar_on_kafka.broker.subscriptions.records.ack_timeouts import AckTimeouts
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import (
    Delivery,
    DeliveryRules,
    Endpoint,
    PartitionAcks,
    PartitionConsumer,
)
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from tests.seeds import for_each_seed


def a_consumer(name: str = "joe") -> Endpoint:
    return Endpoint(name, 1000, delivery_type=Delivery)


def due(nacks: NegativeAcks, now_s: float) -> list[tuple[int, str, list[int]]]:
    return [(p, e.name if e is not None else "", list(offsets)) for p, e, offsets in nacks.due(now_s)]


def test_a_time_at_which_nothing_is_due_any_more_wakes_nobody() -> None:
    nacks, joe, ann = NegativeAcks(), a_consumer(), a_consumer("ann")
    nacks.add(10.0, 1.0, 0, 7, joe)
    nacks.add(20.0, 1.0, 1, 8, ann)
    nacks.forget_consumer(joe, 0)
    assert nacks.next_due() == pytest.approx(21.0, abs=0.0101)
    nacks.forget_partition(1)
    assert nacks.next_due() is None
    nacks.add(30.0, 1.0, 0, 7, joe)
    assert due(nacks, 32.0) == [(0, "joe", [7])]
    assert nacks.next_due() is None


def test_nothing_comes_before_its_time_nor_much_later() -> None:
    nacks, joe = NegativeAcks(), a_consumer()
    nacks.add(10.0, 1.0, 0, 7, joe)
    assert due(nacks, 10.999) == []
    assert nacks.next_due() == pytest.approx(11.0, abs=0.0101)
    assert due(nacks, 11.0101) == [(0, "joe", [7])]
    assert due(nacks, 99) == []
    assert nacks.next_due() is None


def test_what_is_due_together_comes_in_order() -> None:
    nacks, joe, ann = NegativeAcks(), a_consumer("joe"), a_consumer("ann")
    for offset in (5, 3, 9, 4):
        nacks.add(0.0, 1.0, 0, offset, joe)
    nacks.add(0.0, 1.0, 0, 1, ann)
    nacks.add(0.0, 1.0, 2, 8, None)
    assert due(nacks, 2.0) == [(0, "joe", [3, 4, 5, 9]), (0, "ann", [1]), (2, "", [8])]


def test_a_second_negative_ack_changes_nothing() -> None:
    nacks, joe = NegativeAcks(), a_consumer()
    nacks.add(0.0, 1.0, 0, 7, joe)
    nacks.add(0.0, 50.0, 0, 7, joe)
    assert due(nacks, 1.1) == [(0, "joe", [7])]
    nacks.add(2.0, 1.0, 0, 7, joe)
    assert due(nacks, 3.1) == [(0, "joe", [7])]


def test_what_a_consumer_held_is_forgotten_with_it_and_may_be_refused_by_the_next_one() -> None:
    nacks, joe, ann = NegativeAcks(), a_consumer("joe"), a_consumer("ann")
    nacks.add(0.0, 60.0, 0, 7, joe)
    nacks.forget_consumer(joe, 0)
    nacks.add(0.0, 1.0, 0, 7, ann)
    assert due(nacks, 100) == [(0, "ann", [7])]


@pytest.mark.parametrize("former", [True, False], ids=["a consumer", "nobody"])
def test_who_holds_a_message_by_now_may_refuse_it_whatever_was_put_off_before(former: bool) -> None:
    nacks, joe, ann = NegativeAcks(), a_consumer("joe"), a_consumer("ann")
    nacks.add(0.0, 60.0, 0, 7, joe if former else None)
    nacks.add(0.0, 1.0, 0, 7, ann)
    assert due(nacks, 2.0) == [(0, "ann", [7])]
    assert due(nacks, 100) == []


def test_a_partition_is_forgotten() -> None:
    nacks, joe = NegativeAcks(), a_consumer()
    nacks.add(0.0, 1.0, 0, 7, joe)
    nacks.add(0.0, 1.0, 1, 8, joe)
    nacks.forget_partition(0)
    assert nacks.waiting(0) == {}
    assert due(nacks, 100) == [(1, "joe", [8])]


def test_a_hundred_thousand_put_off_messages_are_few_bitmaps() -> None:
    nacks, joe = NegativeAcks(), a_consumer()
    for offset in range(100_000):
        nacks.add(offset / 50_000, 60.0, 0, offset, joe)
    assert sum(len(offsets) for offsets in nacks.waiting(0).values()) == 100_000
    assert len(nacks.waiting(0)) <= 6


@for_each_seed(range(200))
def test_each_comes_once_at_its_time(seed: int) -> None:
    rng = random.Random(seed)
    nacks, joe = NegativeAcks(), a_consumer()
    expected: dict[tuple[int, int], float] = {}
    now = 0.0
    for _ in range(300):
        now += rng.random() / 10
        for partition, _, offsets in nacks.due(now):
            for offset in offsets:
                assert expected.pop((partition, offset)) <= now + 1e-9
        late = [wanted for wanted in expected.values() if wanted * 1.02 + 0.11 < now]
        assert not late, f"seed {seed}"
        partition, offset, delay = rng.randrange(3), rng.randrange(20), rng.choice((0.0, 0.05, 0.5, 3.0))
        if (partition, offset) not in expected:
            expected[partition, offset] = now + delay
        nacks.add(now, delay, partition, offset, joe)
    left = {(p, offset) for p in range(3) for offsets in nacks.waiting(p).values() for offset in offsets}
    assert left == set(expected)


def test_a_consumer_is_forgotten_in_one_partition_alone() -> None:
    nacks, joe, ann = NegativeAcks(), a_consumer("joe"), a_consumer("ann")
    for partition, consumer in ((0, joe), (1, joe), (0, ann)):
        nacks.add(0.0, 1.0, partition, 10 + partition if consumer is joe else 20, consumer)
    nacks.forget_consumer(joe, 0)
    assert list(nacks.offsets(0)) == [20]
    assert due(nacks, 100) == [(1, "joe", [11]), (0, "ann", [20])]
    assert not nacks.offsets(0)
    assert not nacks.offsets(7)


def test_what_a_consumer_put_off_waits_on_for_nobody_when_it_is_gone() -> None:
    nacks, joe, ann = NegativeAcks(), a_consumer("joe"), a_consumer("ann")
    nacks.add(0.0, 1.0, 0, 1, joe)
    nacks.add(0.0, 1.0, 0, 2, None)
    nacks.add(0.0, 5.0, 0, 3, joe)
    nacks.add(0.0, 5.0, 1, 4, joe)
    nacks.add(0.0, 1.0, 0, 5, ann)
    nacks.add(0.0, 5.0, 0, 6, joe)  # which is redelivered by now
    assert nacks.any_without_holder(0)
    assert not nacks.any_without_holder(1)
    assert list(nacks.disown(joe, 0, BitMap64([1, 3, 7]))) == [1, 3]
    assert list(nacks.offsets(0)) == [1, 2, 3, 5]
    assert sorted(due(nacks, 1.1)) == [(0, "", [1, 2]), (0, "ann", [5])]
    assert sorted(due(nacks, 5.1)) == [(0, "", [3]), (1, "joe", [4])]


def test_what_waits_is_told_by_partition_and_time() -> None:
    nacks, joe, ann = NegativeAcks(), a_consumer("joe"), a_consumer("ann")
    for partition, offset, consumer in ((0, 1, joe), (0, 2, ann), (1, 3, joe)):
        nacks.add(0.0, 1.0, partition, offset, consumer)
    nacks.add(0.0, 2.0, 0, 4, joe)
    assert nacks.waiting(0) == {1.0: BitMap64([1, 2]), 2.0: BitMap64([4])}
    assert nacks.waiting(1) == {1.0: BitMap64([3])}
    assert nacks.waiting(2) == {}


def test_of_what_was_refused_by_two_the_last_one_counts_and_the_rest_stays() -> None:
    nacks, joe, ann = NegativeAcks(), a_consumer("joe"), a_consumer("ann")
    nacks.add(0.0, 60.0, 1, 7, joe)
    nacks.add(0.0, 60.0, 0, 8, ann)
    nacks.add(0.0, 60.0, 0, 7, joe)
    nacks.add(0.0, 1.0, 0, 7, ann)
    assert due(nacks, 2.0) == [(0, "ann", [7])]
    assert sorted(due(nacks, 61.0)) == [(0, "ann", [8]), (1, "joe", [7])]


def test_times_are_rounded_up_to_a_hundredth_of_the_delay() -> None:
    nacks, joe = NegativeAcks(), a_consumer()
    nacks.add(0.005, 10.0, 0, 1, joe)
    assert nacks.next_due() == 10.1
    nacks.add(0.0005, 0.0, 0, 2, joe)
    assert nacks.next_due() == 0.001


# Ack time-outs --------------------------------------------------------------------------------------------------------


class Watched:
    """An inbox that is watched, and what was received from it."""

    def __init__(self, timeout_s: float = 10.0) -> None:
        self.timeouts = AckTimeouts(timeout_s)
        endpoint = Endpoint("joe", 10, delivery_type=Delivery, rules=DeliveryRules(ack_timeouts=self.timeouts))
        self.inbox = endpoint.queue
        self.feeds = [
            PartitionConsumer(PartitionAcks("t", number, number, LedgerLayout(1, 10)), endpoint) for number in range(3)
        ]

    def receive(self, *offsets: int, partition: int = 0) -> None:
        for offset in offsets:
            self.inbox.append(Delivery(None, self.feeds[partition], offset, 0))  # type: ignore[arg-type]
        for _ in offsets:
            self.inbox.popleft()

    def expired(self, now_s: float) -> dict[int, list[int]]:
        return {number: list(offsets) for number, offsets in self.timeouts.expired(now_s).items() if offsets}


def test_what_was_received_expires_between_the_timeout_and_a_tenth_more() -> None:
    watched = Watched()
    watched.receive(1, 2)
    watched.receive(5, partition=2)
    assert watched.expired(100.0) == {}
    assert watched.expired(109.9) == {}
    assert watched.expired(111.0) == {0: [1, 2], 2: [5]}
    assert watched.expired(200.0) == {}


def test_what_lies_in_the_inbox_does_not_expire() -> None:
    watched = Watched()
    watched.inbox.append(Delivery(None, watched.feeds[0], 1, 0))  # type: ignore[arg-type]
    assert watched.expired(0.0) == {}
    assert watched.timeouts.next_due(0.0, receives=False) is None
    assert watched.expired(1000.0) == {}


def test_what_is_received_again_gets_its_time_anew() -> None:
    watched = Watched()
    watched.receive(1, 2)
    assert watched.expired(0.0) == {}
    watched.receive(1)
    assert watched.expired(5.0) == {}
    assert watched.expired(11.0) == {0: [2]}
    assert watched.expired(16.0) == {0: [1]}


def test_what_comes_again_for_another_reason_is_forgotten() -> None:
    watched = Watched()
    watched.receive(1, 2, 3)
    watched.receive(1, partition=1)
    assert watched.expired(0.0) == {}
    watched.timeouts.forget(0, BitMap64([2]))
    watched.timeouts.forget_partition(1)
    assert watched.expired(20.0) == {0: [1, 3]}
