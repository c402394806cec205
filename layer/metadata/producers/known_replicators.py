"""Known take-overs of replicators in a topic's partitions, and which of their records nobody needs. Pure.

A replicator that takes over from one that may still write records a *bound* (where the partition ended), appends its
marker, and records where that lies, under one key, before it copies anything. Who finds a bound alone looks for the
marker from there on, so all agree where the epoch begins, whoever dies in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pulsar_on_kafka.mapping.state.metadata.producer_records import ReplicatorFence
from pulsar_on_kafka.mapping.state.state_keys import ReplicatorFenceKey


class ReplicatorEpoch(NamedTuple):
    """An epoch of a replicator. The later one of two with one origin has the higher number."""

    origin: str
    number: int


class KnownReplicators:
    """Replicators' take-overs in one topic, in all its lives. Memory: one entry for each epoch and partition that is on
    record."""

    def __init__(self) -> None:
        self._of: dict[int, dict[ReplicatorEpoch, ReplicatorFence]] = {}

    def put(self, key: ReplicatorFenceKey, fence: ReplicatorFence | None) -> None:
        of_partition = self._of.setdefault(key.partition, {})
        if fence is None:
            of_partition.pop(ReplicatorEpoch(key.origin, key.epoch), None)
        else:
            of_partition[ReplicatorEpoch(key.origin, key.epoch)] = fence

    def of(self, life: int, partition: int) -> dict[ReplicatorEpoch, ReplicatorFence]:
        """Those of one life of the topic."""
        found = self._of.get(partition, {})
        return {epoch: fence for epoch, fence in found.items() if fence.topic_incarnation == life}

    def superfluous(self, topic: str, life: int, partition: int, log_start: int) -> Iterator[ReplicatorFenceKey]:
        """Keys whose records nobody needs: of former lives, and before the log's start all but each origin's newest."""
        for epoch, fence in self._of.get(partition, {}).items():
            later = (
                other.number > epoch.number
                and other.origin == epoch.origin
                and begun.exact
                and begun.offset < log_start
                for other, begun in self.of(life, partition).items()
            )
            if fence.topic_incarnation < life or (fence.topic_incarnation == life and any(later)):
                yield ReplicatorFenceKey(topic, partition, epoch.origin, epoch.number)
