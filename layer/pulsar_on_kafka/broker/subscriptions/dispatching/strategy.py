"""A strategy chooses the consumer that gets the next messages of a partition. Pure: endpoints in, choice out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint, PartitionAcks
from pulsar_on_kafka_mapping.routing.key_hashes import HASHES, KeyHash

ROUND_ROBIN_BATCH: Final = 20
"""Messages that a consumer receives in one turn. Source: Pulsar's `dispatcherMaxRoundRobinBatchSize`."""

MAX_AT_ONCE: Final = 500
"""The limit of one turn for a consumer in another process."""

MAX_UNACKED_PER_SUBSCRIPTION: Final = 200_000
"""Pulsar's `maxUnackedMessagesPerSubscription`; here for the partitions that this process owns."""

_POINTS: Final = 100
"""Points of each consumer on the ring. Source: Pulsar's `CONSUMER_CONSISTENT_HASH_REPLICAS`."""
_RING: Final = 1 << 31
_murmur3: Final = HASHES[KeyHash.MURMUR3_32]


def active_consumer(endpoints: Sequence[Endpoint], slot: PartitionAcks) -> Endpoint | None:
    """The active consumer of a partition on an Exclusive or Failover subscription.

    The consumers of the highest priority level (the lowest number) are sorted by name. Partition i takes consumer i
    modulo their count. A topic without partitions takes the consumer on a ring of hashes (`next_on_ring`).
    Source: AbstractDispatcherSingleActiveConsumer.pickAndScheduleActiveConsumer.
    """
    candidates = [endpoint for endpoint in endpoints if not endpoint.closed]
    if not candidates:
        return None
    highest = min(endpoint.priority for endpoint in candidates)
    ranked = sorted((e for e in candidates if e.priority == highest), key=lambda endpoint: endpoint.name)
    if slot.partition_field >= 0:
        return ranked[slot.partition_field % len(ranked)]
    return ranked[next_on_ring(slot.topic_name, [endpoint.name for endpoint in ranked])]


def next_on_ring(topic_name: str, names: Sequence[str]) -> int:
    """The index of the consumer whose point follows the topic's on a ring of hashes; of several, the last. A consumer
    that joins or leaves changes the active consumer of few topics.

    Source: AbstractDispatcherSingleActiveConsumer.makeHashRing.
    """
    if len(names) == 1:
        return 0
    topic = _murmur3(topic_name.encode())
    distances = [min((point - topic) % _RING for point in _points(name)) for name in names]
    return min(range(len(names)), key=lambda number: (distances[number], -number))


@lru_cache(maxsize=1000)
def _points(name: str) -> tuple[int, ...]:
    """A consumer's points on the ring, cached for the last 1,000 names, 4 KiB each."""
    return tuple(_murmur3(f"{name}{number}".encode()) for number in range(_POINTS))


class RoundRobin:
    """Turns of a Shared subscription: by priority level, then one batch each.

    Source: PersistentDispatcherMultipleConsumers.
    """

    def __init__(self) -> None:
        self._last: Endpoint | None = None

    def next(self, endpoints: Sequence[Endpoint], waiting: int = 0) -> tuple[Endpoint, int] | None:
        """The next consumer, and how many messages it may receive; None if no consumer has permits.

        A consumer in another process receives its share of the `waiting` messages in one turn, to read long runs.
        """
        ready = [(endpoint, permits) for endpoint in endpoints if (permits := endpoint.shared_permits()) > 0]
        if not ready:
            return None
        if len(endpoints) == 1:
            return ready[0]
        level = min(endpoint.priority for endpoint, _ in ready)
        turn = [entry for entry in ready if entry[0].priority == level]
        order = {id(endpoint): number for number, endpoint in enumerate(endpoints)}
        last = order.get(id(self._last), -1)
        chosen = next((entry for entry in turn if order[id(entry[0])] > last), turn[0])
        self._last = chosen[0]
        most = ROUND_ROBIN_BATCH
        if chosen[0].is_remote:
            most = min(MAX_AT_ONCE, max(most, waiting // len(turn)))
        return chosen[0], min(chosen[1], most)


class UnackedLimit:
    """The limit of unacknowledged messages of a subscription. It stops new messages, not redeliveries, until half of
    the limit is unacknowledged.

    Source: PersistentDispatcherMultipleConsumers.blockedDispatcherOnUnackedMsgs.
    """

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = endpoints
        self._blocked = False

    @property
    def is_blocked(self) -> bool:
        """The limit was reached at the last call of `is_reached`."""
        return self._blocked

    def is_reached(self) -> bool:
        unacked = sum(endpoint.unacked for endpoint in self._endpoints)
        limit = MAX_UNACKED_PER_SUBSCRIPTION
        self._blocked = unacked >= (limit // 2 if self._blocked else limit)
        return self._blocked
