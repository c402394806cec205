"""Dispatch limits: a subscription delivers no more than its rate and its topic's rate allow, on each partition.

A partition whose rate is used up is passed over until the next message may go. Others are not affected. All of it runs
in the member's thread. Source: PersistentDispatcherMultipleConsumers.calculateToRead of Pulsar 4.0.7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.broker.metadata.rates.dispatch_rates import (
    UNLIMITED,
    RateBuckets,
    SharedBuckets,
)
from pulsar_on_kafka.broker.metadata.rates.policy_rates import DispatchRate
from pulsar_on_kafka.broker.subscriptions.dispatching.subscription_context import SubscriptionHandle
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition

_STEP_S: Final = 0.02
"""The shortest time between two steps for a rate: several messages go at once where it is high."""
_PUBLISHED_S: Final = 10.0
"""The interval at which the publish rate of a partition is measured, for rates relative to it."""


class PublishMeter:
    """Measures the publish rate of one partition by its log's end. Records count with the average number of messages
    and bytes that were delivered of a record. Memory: six numbers."""

    def __init__(self, log_end: Callable[[], int]) -> None:
        """`log_end` may raise StoreError."""
        self._log_end = log_end
        self._end = -1
        self._measured_s = -inf
        self._records_per_s = 0.0
        self._entries = self._messages = self._bytes = 0

    def delivered(self, entries: int, messages: int, size_bytes: int) -> None:
        self._entries += entries
        self._messages += messages
        self._bytes += size_bytes

    def per_s(self, now_s: float) -> tuple[float, float]:
        """Messages and bytes a second in the last interval; 0 before the first one has passed."""
        if now_s - self._measured_s >= _PUBLISHED_S:
            try:
                end = self._log_end()
            except errors.StoreError:  # the last rate counts until the next interval is over
                end = self._end
            if self._end >= 0:
                self._records_per_s = max(0, end - self._end) / (now_s - self._measured_s)
            self._end, self._measured_s = end, now_s
        entries = max(1, self._entries)
        return self._records_per_s * self._messages / entries, self._records_per_s * self._bytes / entries


class PartitionLimit:
    """The limit of one owned partition: the rate of its subscription, and that of its topic."""

    def __init__(self, clock: Clock, shared: SharedBuckets, published: PublishMeter) -> None:
        self.allowed = UNLIMITED
        self._clock = clock
        self._shared = shared
        self._own: RateBuckets | None = None
        self._of_topic: DispatchRate | None = None
        self._published = published
        self._per_s = (0.0, 0.0)
        """Messages and bytes that are published in a second."""
        self._wait_s = 0.0
        self.held_back = [0, 0, 0, 0]
        """The numbers of times that the partition was held back: by the subscription's rate of messages and of bytes,
        and by the topic's."""
        self._is_counted = False
        """The present time is counted there."""
        shared.users.add(self)

    def follow(self, of_topic: DispatchRate | None, own: DispatchRate | None, now_s: float) -> None:
        """Apply these rates from now on; a changed one begins with a whole period's messages."""
        self._of_topic = of_topic
        if own is None:
            self._own = None
        elif self._own is None or self._own.rate != own:
            self._own = RateBuckets(own, now_s)

    def begin(self, now_s: float, *, waits: bool) -> bool:
        """Find what may be delivered now; `waits`: the partition has messages to deliver. True: it begins to be held
        back."""
        allowed, wait_s, by = UNLIMITED, 0.0, -1
        relative = (self._own is not None and self._own.rate.relative) or (
            self._of_topic is not None and self._of_topic.relative
        )
        self._per_s = published = self._published.per_s(now_s) if relative else (0.0, 0.0)
        if self._own is not None:
            self._own.adjust(now_s, published=published)
            allowed, wait_s = self._own.allowed(now_s), self._own.wait_s(now_s)
            if not allowed:
                by = int(self._own.waits_for_bytes(now_s))
        if self._of_topic is not None:
            of_topic, topic_wait_s, bytes_wait = self._shared.allowed(self._of_topic, now_s, published)
            if not of_topic and by < 0:
                by = 2 + bytes_wait
            allowed, wait_s = min(allowed, of_topic), max(wait_s, topic_wait_s)
        self.allowed, self._wait_s = allowed, wait_s
        begins = waits and allowed <= 0 and not self._is_counted
        if begins:
            self.held_back[by] += 1
        self._is_counted = allowed <= 0 and (begins or self._is_counted)
        return begins

    def delivered(self, entries: int, messages: int, size_bytes: int) -> None:
        """Count what was delivered. A batch goes as a whole, and may leave a debt."""
        now_s = self._clock.monotonic()
        self._published.delivered(entries, messages, size_bytes)
        allowed = self.allowed - messages
        if self._own is not None:
            self._own.delivered(messages, size_bytes, now_s)
            allowed = min(allowed, self._own.allowed(now_s))
        if self._of_topic is not None:
            self._shared.delivered(messages, size_bytes, now_s)
            allowed = min(allowed, self._shared.allowed(self._of_topic, now_s, self._per_s)[0])
        self.allowed = allowed

    def due_s(self, now_s: float) -> float:
        """The time at which the next messages may go."""
        return now_s + max(self._wait_s, _STEP_S)


class DispatchLimits:
    """The limits of the partitions that a member owns. `owned` is the owner's own dictionary, seen from here.

    Memory: a `PartitionLimit` for each partition while a rate is set.
    """

    def __init__(
        self,
        handle: SubscriptionHandle,
        clock: Clock,
        owned: Mapping[int, OwnedPartition],
        log_end: Callable[[int], int],
    ) -> None:
        """`log_end` may raise StoreError."""
        self._handle = handle
        self._clock = clock
        self._owned = owned
        self._log_end = log_end
        self.active = False
        """Whether any rate was set at the last call of `begin`."""

    def begin(self) -> None:
        """Apply the policies, and find what each partition may deliver now."""
        of_topic, own = self._handle.policies.dispatch_rate, self._handle.policies.subscription_dispatch_rate
        if of_topic is None and own is None:
            if self.active:
                self.active = False
                for owned in self._owned.values():
                    owned.limit = None
            return
        self.active = True
        now_s = self._clock.monotonic()
        for owned in self._owned.values():
            limit = owned.limit
            if not isinstance(limit, PartitionLimit):
                limit = owned.limit = self._new(owned.number)
            limit.follow(of_topic, own, now_s)
            if limit.begin(now_s, waits=owned.has_any_waiting):
                owned.meter.held_back += 1

    def _new(self, partition: int) -> PartitionLimit:
        shared = self._handle.dispatch_rates.of(self._handle.kafka_topic, partition)
        return PartitionLimit(self._clock, shared, PublishMeter(lambda: self._log_end(partition)))

    def held_back(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Each partition with a rate, and its `PartitionLimit.held_back`."""
        for number, owned in self._owned.items():
            if isinstance(owned.limit, PartitionLimit):
                by_own_messages, by_own_bytes, by_messages, by_bytes = owned.limit.held_back
                yield number, by_own_messages, by_own_bytes, by_messages, by_bytes

    def next_due(self) -> float:
        """The time at which a partition with messages may deliver again; infinite without one."""
        if not self.active:
            return inf
        now_s = self._clock.monotonic()
        return min(
            (
                owned.limit.due_s(now_s)
                for owned in self._owned.values()
                if owned.limit is not None and owned.is_held_back and owned.has_any_waiting
            ),
            default=inf,
        )
