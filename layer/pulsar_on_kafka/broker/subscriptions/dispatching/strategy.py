"""A strategy chooses the consumer that gets the next messages of a partition. Pure: endpoints in, choice out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, islice
from operator import attrgetter
from typing import Final

from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint, PartitionAcks
from pulsar_on_kafka_mapping.routing.key_hashes import HASHES, KeyHash

ROUND_ROBIN_BATCH: Final = 20
"""Messages that a consumer receives in one turn. Source: Pulsar's `dispatcherMaxRoundRobinBatchSize`."""

MAX_AT_ONCE: Final = 500
"""The limit of one turn for a consumer in another process."""

_POINTS: Final = 100
"""Points of each consumer on the ring. Source: Pulsar's `CONSUMER_CONSISTENT_HASH_REPLICAS`."""
_RING: Final = 1 << 31
_murmur3: Final = HASHES[KeyHash.MURMUR3_32]
_PRIORITY: Final = attrgetter("priority")


def active_consumer(endpoints: Sequence[Endpoint], slot: PartitionAcks) -> Endpoint | None:
    """The active consumer of a partition on an Exclusive or Failover subscription.

    The consumers of the highest priority level (the lowest number) are sorted by name. Partition i takes consumer i
    modulo their count. A topic without partitions takes the consumer on a ring of hashes (`next_on_ring`).
    Source: AbstractDispatcherSingleActiveConsumer.pickAndScheduleActiveConsumer.
    """
    candidates = [endpoint for endpoint in endpoints if not endpoint.closed and not endpoint.draining]
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
        if len(endpoints) == 1:
            permits = endpoints[0].shared_permits()
            return (endpoints[0], permits) if permits > 0 else None
        chosen, permits = self._first_ready(endpoints)
        if chosen is None:
            return None
        self._last = chosen
        most = ROUND_ROBIN_BATCH
        if chosen.is_remote and waiting > most:
            ready = sum(each.priority == chosen.priority and each.shared_permits() > 0 for each in endpoints)
            most = min(MAX_AT_ONCE, max(most, waiting // ready))
        return chosen, min(permits, most)

    def _first_ready(self, endpoints: Sequence[Endpoint]) -> tuple[Endpoint | None, int]:
        """The first consumer of the highest priority level that has permits, after the last one that got a turn, and
        its permits."""
        if not endpoints:
            return None, 0
        start = endpoints.index(self._last) + 1 if self._last in endpoints else 0
        highest = min(map(_PRIORITY, endpoints))
        chosen, most = None, 0
        for endpoint in chain(islice(endpoints, start, None), islice(endpoints, start)):
            if chosen is not None and endpoint.priority >= chosen.priority:
                continue
            permits = endpoint.shared_permits()
            if permits > 0:
                chosen, most = endpoint, permits
                if endpoint.priority == highest:
                    break
        return chosen, most
