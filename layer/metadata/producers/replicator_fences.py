"""Writes, and looks for, where replicators took over (see `known_replicators`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.kafka.records import headers_of
from pulsar_on_kafka.mapping.records.epoch_fences import Claimed, Fence, begun_by
from pulsar_on_kafka.mapping.state.metadata.producer_records import ReplicatorFence, encode_replicator_fence
from pulsar_on_kafka.mapping.state.state_keys import ReplicatorFenceKey, encode_key
from pulsar_on_kafka.mapping.state.state_topics import PRODUCERS
from pulsar_on_kafka.metadata.producers.fence_records import DataLog
from pulsar_on_kafka.metadata.producers.known_replicators import KnownReplicators, ReplicatorEpoch
from pulsar_on_kafka.metadata.topics import Topic
from pulsar_on_kafka.statelog.api import StateLog, tombstone


class ReplicatorFences:
    """One process's hand in it. Thread-safe."""

    def __init__(
        self,
        log: StateLog,
        data: DataLog,
        known: Callable[[str, Callable[[KnownReplicators], Any], Deadline], Any],
    ) -> None:
        """`known` puts a question to what is on record of a topic now (read to the end)."""
        self._log = log
        self._data = data
        self._known = known

    def raise_one(
        self, topic: Topic, partition: int, origin: str, epoch: int, append: Callable[[], int], deadline: Deadline
    ) -> int:
        """Begin an epoch; gives the offset of its marker, which `append` appends. Then tidies what it makes
        superfluous."""
        life = topic.layout.incarnation
        key = ReplicatorFenceKey(str(topic.name), partition, origin, epoch)
        log_start, end = self._data.watermarks(topic.kafka_topic, partition, deadline)
        self._write(key, ReplicatorFence(life, end, exact=False), deadline)
        offset = append()
        self._write(key, ReplicatorFence(life, offset, exact=True), deadline)
        place = str(topic.name)
        gone = self._known(place, lambda known: list(known.superfluous(place, life, partition, log_start)), deadline)
        tombstone(self._log, PRODUCERS, PRODUCERS.partition_for(place), [encode_key(each) for each in gone], deadline)
        return offset

    def of_partition(self, topic: Topic, partition: int, deadline: Deadline) -> list[Fence]:
        """Where replicators took over in a partition as it is now.

        Costs one reading of `producers` to its end; and, where a replicator died while it took over, a reading of the
        partition from where that one found it ending.
        """
        known = self._known(str(topic.name), lambda all_of: all_of.of(topic.layout.incarnation, partition), deadline)
        found = []
        for epoch, fence in known.items():
            offset = fence.offset if fence.exact else self._looked_for(topic, partition, epoch, fence.offset, deadline)
            if offset is not None:
                found.append(Fence(offset, epoch.number, epoch.origin))
        return found

    def _looked_for(
        self, topic: Topic, partition: int, epoch: ReplicatorEpoch, not_below: int, deadline: Deadline
    ) -> int | None:
        log_start, end = self._data.watermarks(topic.kafka_topic, partition, deadline)
        wanted = Claimed(epoch.origin, epoch.number)
        for batch in self._data.read(topic.kafka_topic, partition, max(not_below, log_start), end, deadline):
            for record in batch:
                if begun_by(headers_of(record)) == wanted:
                    return int(record.offset())
        return None

    def _write(self, key: ReplicatorFenceKey, fence: ReplicatorFence, deadline: Deadline) -> None:
        place = PRODUCERS.partition_for(key.topic)
        self._log.append(PRODUCERS, place, encode_key(key), encode_replicator_fence(fence), deadline)
