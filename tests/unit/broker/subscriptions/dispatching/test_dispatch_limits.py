"""Dispatch rates of a subscription and its topic, in simulated time."""

from __future__ import annotations

import random
from math import inf

import pytest

from pulsar_on_kafka.broker.metadata.rates.dispatch_rates import TopicDispatchRates
from pulsar_on_kafka.broker.metadata.rates.policy_rates import DispatchRate
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import SubscriptionType
from pulsar_on_kafka.broker.subscriptions.dispatching.dispatch_limits import PartitionLimit
from tests.seeds import for_each_seed
from tests.unit.broker.subscriptions.dispatching.served import Record, Served, records

KINDS = [SubscriptionType.SHARED, SubscriptionType.KEY_SHARED, SubscriptionType.FAILOVER]


def messages(count: int, period_s: int = 1, *, relative: bool = False) -> DispatchRate:
    return DispatchRate(count, -1, period_s, relative)


def limit(served: Served, own: DispatchRate | None = None, of_topic: DispatchRate | None = None) -> None:
    served.handle.policies = served.handle.policies._replace(dispatch_rate=of_topic, subscription_dispatch_rate=own)


def held_back(served: Served, partition: int = 0) -> list[int]:
    found = served.owned[partition].limit
    assert isinstance(found, PartitionLimit)
    return found.held_back


@pytest.mark.parametrize("kind", KINDS)
def test_a_subscription_gets_what_its_rate_allows(kind: SubscriptionType) -> None:
    served = Served(kind)
    consumer = served.consumer("c")
    limit(served, messages(5))
    served.publish(*records(20, b"k"))
    assert served.received(consumer, 0.0) == [0, 1, 2, 3, 4]
    assert served.received(consumer, 0.0) == []
    assert not served.dispatcher.has_undelivered()
    assert not served.dispatcher.has_waiting()
    assert served.dispatcher.limits.next_due() == pytest.approx(served.clock.seconds + 0.2)
    assert served.received(consumer, 0.2) == [5]
    assert served.received(consumer, 1.0) == [6, 7, 8, 9, 10]
    limit(served)
    assert served.received(consumer, 0.0) == list(range(11, 20))
    assert served.dispatcher.limits.next_due() == inf


@pytest.mark.parametrize("kind", KINDS)
def test_a_period_of_a_minute(kind: SubscriptionType) -> None:
    served = Served(kind)
    consumer = served.consumer("c")
    limit(served, messages(1, 60))
    served.publish(*records(3, b"k"))
    assert served.received(consumer, 0.0) == [0]
    assert served.received(consumer, 59.0) == []
    assert served.received(consumer, 1.1) == [1]
    served.turn()
    served.turn()
    assert held_back(served) == [2, 0, 0, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_goes_as_a_whole_and_leaves_a_debt(kind: SubscriptionType) -> None:
    served = Served(kind)
    consumer = served.consumer("c")
    limit(served, messages(2))
    served.publish(Record(b"k", batch=6), Record(b"k", batch=6))
    assert served.received(consumer, 0.0) == [0] * 6
    assert served.received(consumer, 2.4) == []
    assert served.received(consumer, 0.2) == [1] * 6


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_are_limited(kind: SubscriptionType) -> None:
    served = Served(kind)
    consumer = served.consumer("c", capacity=1)
    limit(served, DispatchRate(-1, 15, 1, relative=False))
    served.publish(*records(5, b"k"))
    assert served.received(consumer, 0.0) == [0]
    assert served.received(consumer, 0.0) == [1]  # 5 of the 15 bytes were left, and a message has 10
    assert served.received(consumer, 0.0) == []
    assert held_back(served) == [0, 1, 0, 0]
    assert served.received(consumer, 0.5) == [2]


def test_redeliveries_count_as_well() -> None:
    served = Served()
    consumer = served.consumer("c")
    limit(served, messages(2))
    served.publish(*records(2))
    assert served.received(consumer, 0.0) == [0, 1]
    served.refuse(consumer, 0, 1)
    assert served.received(consumer, 0.0) == []
    assert served.received(consumer, 0.5) == [0]
    assert served.received(consumer, 0.5) == [1]


@pytest.mark.parametrize("kind", KINDS)
def test_each_partition_has_the_rate(kind: SubscriptionType) -> None:
    served = Served(kind, partitions=2)
    consumer = served.consumer("c")
    limit(served, messages(1))
    for partition in range(2):
        served.publish(*records(3, b"k"), partition=partition)
    served.turn()
    assert sorted(delivery.feed.slot.number for delivery in consumer.queue) == [0, 1]


def test_subscriptions_of_a_process_share_the_rate_of_the_topic() -> None:
    rates = TopicDispatchRates()
    first, second = (Served(dispatch_rates=rates) for _ in range(2))
    consumers = [served.consumer("c") for served in (first, second)]
    for served in (first, second):
        limit(served, of_topic=messages(4))
        served.publish(*records(10))
    assert first.received(consumers[0], 0.0) == [0, 1, 2, 3]
    assert second.received(consumers[1], 0.0) == []
    assert held_back(second) == [0, 0, 1, 0]
    second.clock.seconds = first.clock.seconds = 1_001.0
    assert second.received(consumers[1], 0.0) == [0, 1, 2, 3]
    assert first.received(consumers[0], 0.0) == []


def test_subscriptions_of_other_processes_take_their_part_of_the_rate_of_the_topic() -> None:
    rates = TopicDispatchRates()
    served = Served(dispatch_rates=rates)
    consumer = served.consumer("c")
    rates.set_subscriptions({"orders": 4})
    limit(served, of_topic=messages(8))
    served.publish(*records(10))
    assert len(served.received(consumer, 0.0)) == 2
    rates.set_subscriptions({"orders": 1})
    served.turn()
    assert len(served.received(consumer, 0.5)) == 4


def test_a_part_below_one_message_in_a_period_gives_one_after_several() -> None:
    rates = TopicDispatchRates()
    served = Served(dispatch_rates=rates)
    consumer = served.consumer("c")
    rates.set_subscriptions({"orders": 4})
    limit(served, of_topic=messages(1))
    served.publish(*records(10))
    assert served.received(consumer, 0.0) == [0]
    assert served.received(consumer, 3.9) == []
    assert served.received(consumer, 0.2) == [1]


def test_the_lower_of_both_rates_counts() -> None:
    served = Served()
    consumer = served.consumer("c")
    limit(served, messages(3), messages(7))
    served.publish(*records(20))
    assert len(served.received(consumer, 0.0)) == 3
    limit(served, messages(30), messages(7))
    assert len(served.received(consumer, 0.0)) == 4


def test_a_relative_rate_comes_on_top_of_what_is_published() -> None:
    served = Served()
    consumer = served.consumer("c", capacity=10_000)
    limit(served, messages(1, relative=True))
    served.publish(*records(100))
    assert len(served.received(consumer, 0.0)) == 1
    served.write(*records(200))
    served.turn(10.0)  # 200 messages in ten seconds were measured
    before = len(served.received(consumer))
    assert before <= 21
    assert 18 <= len(served.received(consumer, 1.0)) <= 21


@for_each_seed(range(60))
def test_whatever_happens_no_message_is_lost_and_the_rate_is_kept(seed: int) -> None:
    rng = random.Random(seed)
    served = Served(rng.choice(KINDS[:2]))
    rate, received, began_s = rng.randint(1, 5), [], served.clock.seconds
    limit(served, messages(rate))
    consumers = [served.consumer(f"c{number}", capacity=rng.randint(1, 9)) for number in range(rng.randint(1, 3))]
    served.publish(*(Record(b"%d" % rng.randrange(4)) for _ in range(40)))
    while served.clock.seconds < began_s + 20:
        for consumer in consumers:
            for offset in served.received(consumer, rng.random() / 2):
                received.append(offset)
                if rng.random() < 0.2:
                    served.refuse(consumer, offset)
                else:
                    served.ack(offset)
        assert len(received) <= rate * (served.clock.seconds - began_s + 1) + 1e-6
    limit(served)
    while served.owned[0].cursor.next_unacked < 40:
        for consumer in consumers:
            served.ack(*served.received(consumer, 0.1))
