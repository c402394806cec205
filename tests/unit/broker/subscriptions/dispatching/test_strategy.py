"""The next messages of a partition go to a consumer by the strategy."""

from __future__ import annotations

from collections import Counter

import pytest

from pulsar_on_kafka.broker.metadata.subscriptions.subscription import SubscriptionType
from pulsar_on_kafka.broker.subscriptions.dispatching.strategy import (
    MAX_AT_ONCE,
    ROUND_ROBIN_BATCH,
    RoundRobin,
    active_consumer,
    next_on_ring,
)
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Delivery, DeliveryRules, Endpoint, PartitionAcks
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout

TOPIC = "persistent://public/default/orders"


def a_consumer(name: str, capacity: int = 1000, priority: int = 0) -> Endpoint:
    return Endpoint(name, capacity, delivery_type=Delivery, rules=DeliveryRules(priority))


def partition(number: int) -> PartitionAcks:
    return PartitionAcks(f"{TOPIC}-partition-{number}", number, number, LedgerLayout(6))


def topic_without_partitions(number: int = 0) -> PartitionAcks:
    return PartitionAcks(f"{TOPIC}-{number}", 0, -1, LedgerLayout(1))


def names(endpoints: list[Endpoint], turns: int) -> list[str]:
    robin = RoundRobin()
    found = [robin.next(endpoints) for _ in range(turns)]
    return [turn[0].name for turn in found if turn is not None]


def test_consumers_take_turns() -> None:
    assert names([a_consumer("a"), a_consumer("b"), a_consumer("c")], 6) == ["a", "b", "c", "a", "b", "c"]


def test_a_turn_is_a_small_batch_among_several_and_everything_for_one() -> None:
    robin = RoundRobin()
    found = robin.next([a_consumer("a"), a_consumer("b")])
    assert found is not None
    assert found[1] == ROUND_ROBIN_BATCH
    alone = robin.next([a_consumer("a", 700)])
    assert alone is not None
    assert alone[1] == 700


def test_a_turn_is_never_more_than_the_consumer_takes() -> None:
    found = RoundRobin().next([a_consumer("a", 3), a_consumer("b", 3)])
    assert found is not None
    assert found[1] == 3


def test_a_full_consumer_is_passed_over() -> None:
    full, idle = a_consumer("a"), a_consumer("b")
    full.unacked = full.max_unacked
    assert names([full, idle], 3) == ["b", "b", "b"]


def test_nobody_has_room() -> None:
    full = a_consumer("a")
    full.close()
    assert RoundRobin().next([full]) is None
    assert RoundRobin().next([]) is None


def test_lower_levels_get_messages_only_when_higher_ones_are_full() -> None:
    first, second = a_consumer("a", priority=0), a_consumer("b", priority=1)
    assert names([second, first], 2) == ["a", "a"]
    first.unacked = first.max_unacked
    assert names([second, first], 2) == ["b", "b"]


def test_turns_go_on_when_the_last_one_left() -> None:
    a, b, c = a_consumer("a"), a_consumer("b"), a_consumer("c")
    robin = RoundRobin()
    robin.next([a, b, c])
    robin.next([a, b, c])
    found = robin.next([a, c])
    assert found is not None
    assert found[0].name in ("a", "c")
    counts = Counter(turn[0].name for _ in range(100) if (turn := robin.next([a, c])) is not None)
    assert counts == {"a": 50, "c": 50}


class OfAnotherProcess(Endpoint):
    is_remote = True


def test_one_of_another_process_gets_its_share_of_what_waits_at_once() -> None:
    def turn_of(waiting: int, capacity: int = 1000) -> int:
        elsewhere = OfAnotherProcess("a", capacity, delivery_type=Delivery)
        found = RoundRobin().next([elsewhere, a_consumer("b")], waiting)
        assert found is not None
        assert found[0] is elsewhere
        return found[1]

    assert [turn_of(waiting) for waiting in (0, 40, 41, 42, 800)] == [20, 20, 20, 21, 400]
    assert turn_of(100_000) == MAX_AT_ONCE
    assert turn_of(100_000, 30) == 30
    here = RoundRobin().next([a_consumer("b"), OfAnotherProcess("a", 1000, delivery_type=Delivery)], 800)
    assert here is not None
    assert here[1] == ROUND_ROBIN_BATCH


def test_a_consumer_with_one_free_place_takes_its_turn() -> None:
    assert names([a_consumer("a", 1), a_consumer("b", 1)], 3) == ["a", "b", "a"]


def test_partitions_of_a_failover_subscription_go_to_consumers_by_name() -> None:
    consumers = [a_consumer("c"), a_consumer("a"), a_consumer("b")]
    chosen = [active_consumer(consumers, partition(number)) for number in range(6)]
    assert [consumer.name for consumer in chosen if consumer is not None] == ["a", "b", "c", "a", "b", "c"]


def test_topics_without_partitions_go_to_the_consumers_that_pulsar_gives_them() -> None:
    """What Murmur3Hash32, Murmur3_32Hash and a TreeMap of Pulsar 4.0.7 say."""
    consumers = [a_consumer(name) for name in ("worker-é", "c", "a", "b")]
    chosen = [active_consumer(consumers, topic_without_partitions(number)) for number in range(24)]
    short = "".join(consumer.name[0] for consumer in chosen if consumer is not None)
    assert short == "cbcwbacbwwwwwababbacwbww"


def test_who_joins_takes_few_topics_and_gives_none_to_another() -> None:
    few = ["a", "b", "c", "d"]
    more = [*few, "e"]
    topics = [f"{TOPIC}-{number}" for number in range(500)]
    before = [few[next_on_ring(topic, few)] for topic in topics]
    after = [more[next_on_ring(topic, more)] for topic in topics]
    assert {now for was, now in zip(before, after, strict=True) if was != now} == {"e"}
    assert all(50 <= count <= 200 for count in Counter(after).values())


def test_of_two_with_the_same_name_the_later_one_is_active() -> None:
    consumers = [a_consumer("a"), a_consumer("a")]
    assert active_consumer(consumers, topic_without_partitions()) is consumers[1]
    assert active_consumer(consumers, partition(0)) is consumers[0]


@pytest.mark.parametrize("slot", [partition(0), partition(1), topic_without_partitions()])
def test_only_the_highest_priority_level_is_active(slot: PartitionAcks) -> None:
    consumers = [a_consumer("a", priority=5), a_consumer("z", priority=1)]
    assert active_consumer(consumers, slot) is consumers[1]


@pytest.mark.parametrize("slot", [partition(0), topic_without_partitions()])
def test_a_closed_consumer_is_never_active(slot: PartitionAcks) -> None:
    a, b = a_consumer("a"), a_consumer("b")
    a.close()
    assert active_consumer([a, b], slot) is b
    b.close()
    assert active_consumer([a, b], slot) is None


def test_which_types_share_a_partition() -> None:
    assert [kind.value for kind in SubscriptionType if kind.is_shared] == ["Shared", "Key_Shared"]
