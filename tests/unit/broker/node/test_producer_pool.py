"""The producers that a process's topics share."""

from __future__ import annotations

from collections import Counter

from pulsar_on_kafka.broker.node.producer_pool import FURTHER_PRODUCERS, MAX_TOPICS_OF_FIRST, TopicNumbers
from pulsar_on_kafka.kafka.settings import KafkaSettings

TOPICS = [f"public.default.t{number}" for number in range(10_000)]


def test_few_topics_share_one_producer() -> None:
    numbers = TopicNumbers()
    assert {numbers.of(topic) for topic in TOPICS[:MAX_TOPICS_OF_FIRST]} == {0}


def test_further_topics_are_spread_and_each_keeps_its_producer() -> None:
    numbers = TopicNumbers()
    first = {topic: numbers.of(topic) for topic in TOPICS}
    assert {topic: numbers.of(topic) for topic in reversed(TOPICS)} == first
    counts = Counter(first.values())
    assert set(counts) == set(range(1 + FURTHER_PRODUCERS))
    assert max(counts.values()) < 1.2 * (len(TOPICS) - MAX_TOPICS_OF_FIRST) / FURTHER_PRODUCERS


def _queue(settings: KafkaSettings, share: int) -> tuple[int, int]:
    made = settings.producer(compression="none", message_timeout_ms=0, linger_ms=0, queue_share=share)
    return int(made["queue.buffering.max.messages"]), int(made["queue.buffering.max.kbytes"])


def test_all_queues_together_hold_less_than_twice_the_limit() -> None:
    settings = KafkaSettings("localhost:9092")
    whole, shared = _queue(settings, 1), _queue(settings, 1 + FURTHER_PRODUCERS)
    assert [FURTHER_PRODUCERS * each for each in shared] < list(whole)
    assert whole == (1_000_000, 1_048_576)


def test_a_shared_queue_has_room_for_the_largest_message_unless_the_user_wants_less() -> None:
    limits = {"queue.buffering.max.kbytes": "20000", "queue.buffering.max.messages": "7"}
    small = KafkaSettings("localhost:9092", limits)
    assert _queue(small, 1) == (7, 20_000)
    assert _queue(small, 8) == (7, 16_384)
    assert _queue(KafkaSettings("localhost:9092", {"queue.buffering.max.kbytes": "100"}), 8)[1] == 100
