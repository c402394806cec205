"""Publish rates: the producers of a process share the rate of each partition, also with other processes.

A process learns what others store by Kafka's order: the offset of its own record shows how many records lie between. It
counts those with the average size of its own, and waits for them. So processes that are always held back share the
rate, and exceed it by a tenth at most, after one period's messages of each. One process alone has the whole rate.
Source: `PublishRateLimiterImpl` of Pulsar 4.0.7.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from weakref import WeakValueDictionary

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.reentry import ReentryGuard
from pulsar_on_kafka.base.scheduler import Scheduler
from pulsar_on_kafka.broker.metadata.rates.policy_rates import PUBLISH_PERIOD_S, PublishRate
from pulsar_on_kafka.broker.metadata.rates.token_bucket import TokenBucket

MAX_DEBT_PERIODS: Final = 10
MAX_DEBT_RECORDS: Final = 100
"""The longest wait for records of others: the larger of these. Programs of Kafka can store more than the rate."""


class PartitionRate:
    """The rate of one partition. Pure, not thread-safe. Memory: two buckets and four numbers."""

    def __init__(self, rate: PublishRate, now_s: float) -> None:
        self._messages = _bucket(rate.messages, now_s)
        self._bytes = _bucket(rate.size_bytes, now_s)
        self._sent_records = 0
        self._sent_messages = 0
        self._sent_bytes = 0
        self._highest: int | None = None
        """The highest offset of a record of this process; None before the first one."""

    def sent(self, messages: int, size_bytes: int, now_s: float) -> None:
        """A record of this process is on its way."""
        self._sent_records += 1
        self._sent_messages += messages
        self._sent_bytes += size_bytes
        if self._messages is not None:
            self._messages.consume(messages, now_s)
        if self._bytes is not None:
            self._bytes.consume(size_bytes, now_s)

    def stored(self, offset: int, now_s: float) -> None:
        """A record of this process has this offset. Offsets below the highest one were counted as others'."""
        highest, self._highest = self._highest, offset if self._highest is None else max(offset, self._highest)
        if highest is None or not self._sent_records:
            return
        others = offset - highest - 1 if offset > highest else -1
        for bucket, sent in ((self._messages, self._sent_messages), (self._bytes, self._sent_bytes)):
            if bucket is not None:
                average = sent / self._sent_records
                bucket.consume_earlier(
                    others * average, now_s, max(MAX_DEBT_PERIODS * bucket.rate, MAX_DEBT_RECORDS * average)
                )

    def wait_s(self, now_s: float) -> float:
        """The time until the next record may be sent; 0.0: now."""
        return max(0.0 if each is None else each.wait_s(now_s) for each in (self._messages, self._bytes))


def _bucket(rate: int, now_s: float) -> TokenBucket | None:
    return TokenBucket(rate, PUBLISH_PERIOD_S, now_s) if rate > 0 else None


class TopicRate:
    """The rate of one topic in this process. Thread-safe. Memory: a `PartitionRate` for each partition in use."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = ReentryGuard()
        self._rate: PublishRate | None = None
        self._partitions: dict[int, PartitionRate] = {}

    def follow(self, rate: PublishRate | None) -> None:
        """Apply this rate from now on; a changed one begins with a whole period's messages."""
        with self._lock:
            if rate != self._rate:
                self._rate = rate
                self._partitions.clear()

    def sent(self, partition: int, messages: int, size_bytes: int) -> None:
        with self._lock:
            found = self._of(partition)
            if found is not None:
                found.sent(messages, size_bytes, self._clock.monotonic())

    def stored(self, partition: int, offset: int) -> None:
        with self._lock:
            found = self._of(partition)
            if found is not None:
                found.stored(offset, self._clock.monotonic())

    def wait_s(self, partition: int) -> float:
        """See `PartitionRate.wait_s`."""
        with self._lock:
            found = self._of(partition)
            return 0.0 if found is None else found.wait_s(self._clock.monotonic())

    def _of(self, partition: int) -> PartitionRate | None:
        if self._rate is None:
            return None
        found = self._partitions.get(partition)
        if found is None:
            found = self._partitions[partition] = PartitionRate(self._rate, self._clock.monotonic())
        return found


class PublishRates:
    """The publish rates of a process's topics on one cluster. Thread-safe. Memory: those of topics with producers."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._topics: WeakValueDictionary[str, TopicRate] = WeakValueDictionary()
        self._timer = Scheduler("pok-publish-rate")
        self._lock = ReentryGuard()
        self._closed = False

    def of(self, kafka_topic: str) -> TopicRate:
        """The rate that all producers of the topic share, while any of them holds it."""
        with self._lock:
            found = self._topics.get(kafka_topic)
            if found is None:
                found = self._topics[kafka_topic] = TopicRate(self.clock)
            return found

    def call_at(self, due_s: float, action: Callable[[], None]) -> None:
        """`Scheduler.call_at` in the thread for this; after `close` nothing is called."""
        if not self._closed:
            self._timer.call_at(due_s, action)

    def close(self) -> None:
        self._closed = True
        self._timer.close()
