"""Writes, looks for and cleans what `producers` says of epochs (see `known_fences`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, Protocol

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.kafka.records import headers_of
from pulsar_on_kafka.mapping.records.epoch_fences import Claimed, Fence, begun_by
from pulsar_on_kafka.mapping.records.record_headers import exclusive_epoch
from pulsar_on_kafka.mapping.state.metadata.producer_records import (
    EpochBounds,
    EpochFence,
    ReplicatorFence,
    encode_bounds,
    encode_fence,
    encode_replicator_fence,
)
from pulsar_on_kafka.mapping.state.state_keys import ProducerBoundsKey, ProducerKey, ReplicatorFenceKey, encode_key
from pulsar_on_kafka.mapping.state.state_topics import PRODUCERS
from pulsar_on_kafka.metadata.producers.known_fences import (
    Epoch,
    KnownFences,
    KnownReplicators,
    ReplicatorEpoch,
    Unresolved,
)
from pulsar_on_kafka.metadata.topics import Topic
from pulsar_on_kafka.statelog.api import StateLog, tombstone

_log = logging.getLogger(__name__)

MOST_CLEANED: Final = 500
"""Records that one cleaning removes; the next one goes on."""
_STEP: Final = 50_000
"""Offsets between two notes of how far a search has come, so that one that runs out of time is not in vain."""
_WORTH_NOTING: Final = 1000


class Offsets(Protocol):
    """Start and end offsets of partitions. Source: `kafka.admin.KafkaAdmin`."""

    def start_offsets(self, topic: str, partitions: Sequence[int], deadline: Deadline) -> Mapping[int, int]: ...

    def end_offsets(self, topic: str, partitions: Sequence[int], deadline: Deadline) -> Mapping[int, int]: ...


class DataLog(Protocol):
    """The records of a data topic. Source: `kafka.reading.fetcher.Fetcher`."""

    def watermarks(self, topic: str, partition: int, deadline: Deadline) -> tuple[int, int]: ...

    def read(self, topic: str, partition: int, start: int, end: int, deadline: Deadline) -> Iterable[list[Any]]: ...


class FenceRecords:
    """Those of exclusive epochs: one process's hand in it. Thread-safe."""

    def __init__(
        self,
        log: StateLog,
        data: DataLog,
        offsets: Offsets,
        known: Callable[[str, Callable[[KnownFences], Any], Deadline], Any],
    ) -> None:
        """`known` puts a question to what is on record of a topic now (read to the end)."""
        self._log = log
        self._data = data
        self._offsets = offsets
        self._known = known

    def begin(self, topic: Topic, epoch: Epoch, deadline: Deadline) -> None:
        """Record the bounds of an epoch, before its first record is sent."""
        ends = self._offsets.end_offsets(topic.kafka_topic, range(topic.partitions), deadline)
        self._write_bounds(topic, epoch, [ends[partition] for partition in range(topic.partitions)], deadline)

    def found(self, topic: Topic, partition: int, epoch: Epoch, first: int, deadline: Deadline) -> None:
        """Record where an epoch begins in a partition."""
        key = ProducerKey(str(topic.name), partition, epoch.name, epoch.number)
        self._append(topic, key, encode_fence(EpochFence(topic.layout.incarnation, first)), deadline)

    def over(self, topic: Topic, epoch: Epoch, deadline: Deadline) -> None:
        """No record of this epoch comes any more, and its fences are recorded: take the bounds back."""
        self._append(topic, ProducerBoundsKey(str(topic.name), epoch.name, epoch.number), None, deadline)

    def of_partition(self, topic: Topic, partition: int, deadline: Deadline) -> list[tuple[int, int]]:
        """Where exclusive epochs begin in a partition as it is now: (offset, epoch number).

        Costs one reading of `producers` to its end; and, once after an exclusive producer died before its first
        receipt, a reading of the partition from where that one found it ending.
        """
        name, life = str(topic.name), topic.layout.incarnation
        first, open_ones = self._known(
            name, lambda known: (known.first(life, partition), known.unresolved(life, partition, 0)), deadline
        )
        if open_ones:
            log_start, log_end = self._data.watermarks(topic.kafka_topic, partition, deadline)
            for epoch in open_ones:
                offset = self._look_for(topic, partition, epoch, log_start, log_end, deadline)
                if offset is not None:
                    first[epoch.epoch] = offset
        return [(offset, epoch.number) for epoch, offset in first.items()]

    def _look_for(
        self, topic: Topic, partition: int, wanted: Unresolved, log_start: int, log_end: int, deadline: Deadline
    ) -> int | None:
        begin = position = max(wanted.not_below, log_start)
        end = log_end if wanted.end is None else min(log_end, wanted.end)
        while position < end:
            step = min(position + _STEP, end)
            offset = self._first_of(topic, partition, wanted.epoch.number, position, step, deadline)
            if offset is not None:
                self._note(partial(self.found, topic, partition, wanted.epoch, offset, deadline))
                return offset
            position = step
            if position - begin >= _WORTH_NOTING:
                self._note(partial(self._raise_bound, topic, partition, wanted.epoch, position, deadline))
        return None

    def _first_of(
        self, topic: Topic, partition: int, epoch: int, start: int, end: int, deadline: Deadline
    ) -> int | None:
        for batch in self._data.read(topic.kafka_topic, partition, start, end, deadline):
            for record in batch:
                if exclusive_epoch(headers_of(record)) == epoch:
                    return int(record.offset())
        return None

    def _raise_bound(self, topic: Topic, partition: int, epoch: Epoch, not_below: int, deadline: Deadline) -> None:
        ends = self._known(str(topic.name), lambda known: known.raised(epoch, partition, not_below), deadline)
        if ends is not None:
            self._write_bounds(topic, epoch, ends, deadline)

    @staticmethod
    def _note(action: Callable[[], None]) -> None:
        """Spare others the search; whoever may not write leaves it to them."""
        try:
            action()
        except errors.StoreError as failure:
            _log.debug("where an exclusive epoch begins could not be recorded: %s", failure)

    def clean(self, topic: Topic, deadline: Deadline) -> int:
        """Remove up to 500 records that nobody needs any more; gives how many it removed."""
        name = str(topic.name)
        log_starts = self._offsets.start_offsets(topic.kafka_topic, range(topic.partitions), deadline)
        keys = self._known(
            name,
            lambda known: list(islice(known.superfluous(name, topic.layout.incarnation, log_starts), MOST_CLEANED)),
            deadline,
        )
        place = PRODUCERS.partition_for(name)
        return tombstone(self._log, PRODUCERS, place, [encode_key(key) for key in keys], deadline)

    def _write_bounds(self, topic: Topic, epoch: Epoch, ends: Iterable[int], deadline: Deadline) -> None:
        key = ProducerBoundsKey(str(topic.name), epoch.name, epoch.number)
        self._append(topic, key, encode_bounds(EpochBounds(topic.layout.incarnation, tuple(ends))), deadline)

    def _append(
        self, topic: Topic, key: ProducerKey | ProducerBoundsKey, value: bytes | None, deadline: Deadline
    ) -> None:
        self._log.append(PRODUCERS, PRODUCERS.partition_for(str(topic.name)), encode_key(key), value, deadline)


class ReplicatorFences:
    """Where replicators took over: one process's hand in it. Thread-safe."""

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
