"""The dispatch rate of a replicator: how many messages of each partition it may copy now. For one thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.broker.metadata.rates.dispatch_rates import RateBuckets
from pulsar_on_kafka.broker.metadata.rates.policy_rates import DispatchRate
from pulsar_on_kafka.broker.subscriptions.dispatching.dispatch_limits import PublishMeter
from pulsar_on_kafka.broker.subscriptions.records.batches import batch_size
from pulsar_on_kafka_mapping.errors import CorruptRecord

_PAUSE_S: Final = 0.2
"""The shortest pause of a partition: what was fetched and not copied is fetched again."""


class ReplicatorRate:
    """The rate of one replicator, for each partition that it copies. Memory: two buckets, and some numbers, for each of
    them while a rate is set. Source: `PersistentReplicator.getAvailablePermits` of Pulsar 4.0.7."""

    def __init__(self, clock: Clock, log_end: Callable[[int], int]) -> None:
        """`log_end` returns the end of a partition's log here; may raise StoreError."""
        self._clock = clock
        self._log_end = log_end
        self._rate: DispatchRate | None = None
        self._buckets: dict[int, RateBuckets] = {}
        self._published: dict[int, PublishMeter] = {}
        self.held: dict[int, float] = {}
        """Partitions that are not read, and since when (monotonic clock)."""
        self.held_back = 0
        """The number of times that a partition was held back."""

    def follow(self, rate: DispatchRate | None) -> None:
        """Apply this rate from now on; a changed one begins with a whole period's messages."""
        if rate != self._rate:
            self._rate = rate
            self._buckets.clear()
            self._published.clear()

    def take(self, partition: int, records: list[Any]) -> list[Any]:
        """The first of these records that may be copied now, which count as copied. If some are left, the partition is
        `held`. A batch goes as a whole."""
        if self._rate is None:
            return records
        buckets, now_s, taken = self._of(partition), self._clock.monotonic(), 0
        messages = size_bytes = 0
        for record in records:
            if buckets.allowed(now_s) <= 0:
                break
            count, size = _messages(record), len(record)
            buckets.delivered(count, size, now_s)
            messages, size_bytes, taken = messages + count, size_bytes + size, taken + 1
        self._published[partition].delivered(taken, messages, size_bytes)
        if taken < len(records):
            self.held[partition] = now_s
            self.held_back += 1
        return records[:taken]

    def released(self) -> list[int]:
        """The held partitions that may be read again; they are not held any more."""
        now_s = self._clock.monotonic()
        found = [
            partition
            for partition, since_s in self.held.items()
            if self._rate is None or (now_s - since_s >= _PAUSE_S and self._of(partition).allowed(now_s) > 0)
        ]
        for partition in found:
            del self.held[partition]
        return found

    def forget(self, partition: int) -> None:
        """The partition is another process's now."""
        for each in (self._buckets, self._published, self.held):
            each.pop(partition, None)

    def _of(self, partition: int) -> RateBuckets:
        rate, now_s = self._rate, self._clock.monotonic()
        assert rate is not None  # noqa: S101 - the callers have checked
        buckets = self._buckets.get(partition)
        if buckets is None:
            buckets = self._buckets[partition] = RateBuckets(rate, now_s)
            self._published[partition] = PublishMeter(lambda: self._log_end(partition))
        if rate.relative:
            buckets.adjust(now_s, published=self._published[partition].per_s(now_s))
        return buckets


def _messages(record: Any) -> int:
    """The number of messages of a record; 1 where its headers cannot be read, as it is copied as it is."""
    try:
        return batch_size(record) or 1
    except CorruptRecord:
        return 1
