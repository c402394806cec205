"""Dispatch rates of partitions: the buckets of one rate, and those that subscriptions of a process share.

Source: `DispatchRateLimiterAsyncTokenBucketImpl` of Pulsar 4.0.7.
"""

from __future__ import annotations

import threading
from typing import Final
from weakref import WeakSet, WeakValueDictionary

from pulsar_on_kafka.broker.metadata.rates.policy_rates import DispatchRate
from pulsar_on_kafka.broker.metadata.rates.token_bucket import TokenBucket

UNLIMITED: Final = 2**62
"""Messages that may be delivered where no rate limits them."""


class RateBuckets:
    """The buckets of one dispatch rate for one partition. Pure, not thread-safe. Memory: two buckets."""

    def __init__(self, rate: DispatchRate, now_s: float) -> None:
        self.rate = rate
        self._messages = TokenBucket(rate.messages, rate.period_s, now_s) if rate.messages > 0 else None
        self._bytes = TokenBucket(rate.size_bytes, rate.period_s, now_s) if rate.size_bytes > 0 else None

    def adjust(self, now_s: float, *, share: float = 1.0, published: tuple[float, float] = (0.0, 0.0)) -> None:
        """Set the part of the rate that counts here, and what is published in a second (messages, bytes), which comes
        on top of a relative rate."""
        rate = self.rate
        extra = published if rate.relative else (0.0, 0.0)
        for bucket, own, more in (
            (self._messages, rate.messages, extra[0]),
            (self._bytes, rate.size_bytes, extra[1]),
        ):
            if bucket is not None:
                required = share * (own + more * rate.period_s)
                if required != bucket.rate:
                    bucket.set_rate(required, now_s)

    def allowed(self, now_s: float) -> int:
        """The number of messages that may be delivered now. The last one may exceed the bytes."""
        if self._bytes is not None and not self._bytes.available(now_s):
            return 0
        return UNLIMITED if self._messages is None else self._messages.available(now_s)

    def delivered(self, messages: int, size_bytes: int, now_s: float) -> None:
        if self._messages is not None:
            self._messages.consume(messages, now_s)
        if self._bytes is not None:
            self._bytes.consume(size_bytes, now_s)

    def wait_s(self, now_s: float) -> float:
        """The time until the next message may be delivered; 0.0: now."""
        return max(0.0 if each is None else each.wait_s(now_s) for each in (self._messages, self._bytes))

    def waits_for_bytes(self, now_s: float) -> bool:
        """Whether the bytes are used up, not only the messages."""
        return self._bytes is not None and self._bytes.wait_s(now_s) > 0


class SharedBuckets:
    """The buckets of a topic's rate for one partition, which its subscriptions in this process share. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buckets: RateBuckets | None = None
        self.users: WeakSet[object] = WeakSet()
        """The subscriptions whose owner of the partition is this process."""
        self.subscriptions = 1
        """The number of the topic's subscriptions with consumers in any process."""

    def allowed(self, rate: DispatchRate, now_s: float, published: tuple[float, float]) -> tuple[int, float, bool]:
        """The number of messages that may be delivered now by this rate, the time until the next one may be, and
        whether the bytes are used up."""
        with self._lock:
            buckets = self._buckets
            if buckets is None or buckets.rate != rate:
                buckets = self._buckets = RateBuckets(rate, now_s)
            here = max(1, len(self.users))
            buckets.adjust(now_s, share=here / max(here, self.subscriptions), published=published)
            return buckets.allowed(now_s), buckets.wait_s(now_s), buckets.waits_for_bytes(now_s)

    def delivered(self, messages: int, size_bytes: int, now_s: float) -> None:
        with self._lock:
            if self._buckets is not None:
                self._buckets.delivered(messages, size_bytes, now_s)


class TopicDispatchRates:
    """The dispatch rates of topics in this process. Thread-safe. Memory: those of partitions that it owns."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._partitions: WeakValueDictionary[tuple[str, int], SharedBuckets] = WeakValueDictionary()
        self._subscriptions: dict[str, int] = {}

    def of(self, kafka_topic: str, partition: int) -> SharedBuckets:
        """The buckets of one partition, which are shared while any caller holds them."""
        with self._lock:
            found = self._partitions.get((kafka_topic, partition))
            if found is None:
                found = self._partitions[kafka_topic, partition] = SharedBuckets()
                found.subscriptions = self._subscriptions.get(kafka_topic, 1)
            return found

    def set_subscriptions(self, counts: dict[str, int]) -> None:
        """The numbers of subscriptions with consumers, by Kafka topic; other topics are forgotten."""
        with self._lock:
            self._subscriptions = counts
            for (kafka_topic, _), buckets in list(self._partitions.items()):
                buckets.subscriptions = counts.get(kafka_topic, 1)
