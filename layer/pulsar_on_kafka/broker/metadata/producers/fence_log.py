"""Writes, searches and cleans the epoch records in `producers` (see `fence_view`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.producers.fence_view import (
    Epoch,
    KnownFences,
    KnownTakeOvers,
    OriginEpoch,
    Unresolved,
)
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.kafka.records import headers_of
from pulsar_on_kafka.statelog.api import StateLog, tombstone
from pulsar_on_kafka_mapping.records.epoch_fences import Claimed, Fence, begun_by
from pulsar_on_kafka_mapping.records.message_record import Headers
from pulsar_on_kafka_mapping.records.record_headers import exclusive_epoch
from pulsar_on_kafka_mapping.state.metadata.producer_records import (
    EpochBounds,
    EpochFence,
    TakeOverBound,
    encode_bounds,
    encode_fence,
    encode_take_over,
)
from pulsar_on_kafka_mapping.state.state_keys import ProducerBoundsKey, ProducerKey, TakeOverKey, encode_key
from pulsar_on_kafka_mapping.state.state_topics import PRODUCERS

_log = logging.getLogger(__name__)

F = TypeVar("F")
FenceKey: TypeAlias = ProducerKey | ProducerBoundsKey | TakeOverKey

MAX_CLEANED: Final = 500
"""The limit of records that one cleaning removes; the next one continues."""
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


class _Fences(Generic[F]):
    """One process's hand in what is known of a topic's fences. Thread-safe."""

    def __init__(
        self,
        log: StateLog,
        data: DataLog,
        offsets: Offsets,
        known: Callable[[str, Callable[[F], Any], Deadline], Any],
    ) -> None:
        """`known` puts a question to what is on record of a topic now (read to the end)."""
        self._log = log
        self._data = data
        self._offsets = offsets
        self._known = known

    def _first_of(
        self,
        topic: Topic,
        partition: int,
        span: tuple[int, int],
        begins: Callable[[Headers | None], bool],
        deadline: Deadline,
    ) -> int | None:
        """Offset of the first record of these offsets with which an epoch begins."""
        for batch in self._data.read(topic.kafka_topic, partition, *span, deadline):
            for record in batch:
                if begins(headers_of(record)):
                    return int(record.offset())
        return None

    @staticmethod
    def _note(action: Callable[[], None]) -> None:
        """Spare other processes the search; one without the right to write leaves it to them."""
        try:
            action()
        except errors.StoreError as failure:
            _log.debug("where an epoch begins could not be recorded: %s", failure)

    def _append(self, key: FenceKey, value: bytes | None, deadline: Deadline) -> None:
        self._log.append(PRODUCERS, PRODUCERS.partition_for(key.topic), encode_key(key), value, deadline)

    def _remove(self, topic: str, gone: Sequence[FenceKey], deadline: Deadline) -> int:
        place = PRODUCERS.partition_for(topic)
        return tombstone(self._log, PRODUCERS, place, [encode_key(key) for key in gone], deadline)


class FenceRecords(_Fences[KnownFences]):
    """Fence records of exclusive epochs."""

    def begin(self, topic: Topic, epoch: Epoch, deadline: Deadline) -> None:
        """Record the bounds of an epoch, before its first record is sent."""
        ends = self._offsets.end_offsets(topic.kafka_topic, range(topic.partitions), deadline)
        self._write_bounds(topic, epoch, [ends[partition] for partition in range(topic.partitions)], deadline)

    def found(self, topic: Topic, partition: int, epoch: Epoch, first: int, deadline: Deadline) -> None:
        """Record where an epoch begins in a partition."""
        key = ProducerKey(str(topic.name), partition, epoch.name, epoch.number)
        self._append(key, encode_fence(EpochFence(topic.layout.incarnation, first)), deadline)

    def over(self, topic: Topic, epoch: Epoch, deadline: Deadline) -> None:
        """No record of this epoch comes any more, and its fences are recorded: take the bounds back."""
        self._append(ProducerBoundsKey(str(topic.name), epoch.name, epoch.number), None, deadline)

    def of_partitions(
        self, topic: Topic, partitions: Sequence[int], deadline: Deadline
    ) -> dict[int, list[tuple[int, int]]]:
        """The beginnings of exclusive epochs in partitions at present: (offset, epoch number).

        Costs one reading of `producers` to its end; and, once after an exclusive producer died before its first
        receipt, a reading of the partition from the end that this producer found.
        """
        life = topic.layout.incarnation
        known = self._known(
            str(topic.name),
            lambda known: {p: (known.first(life, p), known.unresolved(life, p, 0)) for p in partitions},
            deadline,
        )
        for partition, (first, open_ones) in known.items():
            if open_ones:
                log_start, log_end = self._data.watermarks(topic.kafka_topic, partition, deadline)
            for epoch in open_ones:
                offset = self._look_for(topic, partition, epoch, log_start, log_end, deadline)
                if offset is not None:
                    first[epoch.epoch] = offset
        return {p: [(offset, epoch.number) for epoch, offset in first.items()] for p, (first, _) in known.items()}

    def _look_for(
        self, topic: Topic, partition: int, requested: Unresolved, log_start: int, log_end: int, deadline: Deadline
    ) -> int | None:
        def begins(headers: Headers | None) -> bool:
            return exclusive_epoch(headers) == requested.epoch.number

        begin = position = max(requested.not_below, log_start)
        end = log_end if requested.end is None else min(log_end, requested.end)
        while position < end:
            step = min(position + _STEP, end)
            offset = self._first_of(topic, partition, (position, step), begins, deadline)
            if offset is not None:
                self._note(partial(self.found, topic, partition, requested.epoch, offset, deadline))
                return offset
            position = step
            if position - begin >= _WORTH_NOTING:
                self._note(partial(self._raise_bound, topic, partition, requested.epoch, position, deadline))
        return None

    def _raise_bound(self, topic: Topic, partition: int, epoch: Epoch, not_below: int, deadline: Deadline) -> None:
        ends = self._known(str(topic.name), lambda known: known.raised(epoch, partition, not_below), deadline)
        if ends is not None:
            self._write_bounds(topic, epoch, ends, deadline)

    def clean(self, topic: Topic, deadline: Deadline) -> int:
        """Removes up to 500 superfluous records; returns their number."""
        name = str(topic.name)
        log_starts = self._offsets.start_offsets(topic.kafka_topic, range(topic.partitions), deadline)
        keys = self._known(
            name,
            lambda known: list(islice(known.superfluous(name, topic.layout.incarnation, log_starts), MAX_CLEANED)),
            deadline,
        )
        return self._remove(name, keys, deadline)

    def _write_bounds(self, topic: Topic, epoch: Epoch, ends: Iterable[int], deadline: Deadline) -> None:
        key = ProducerBoundsKey(str(topic.name), epoch.name, epoch.number)
        self._append(key, encode_bounds(EpochBounds(topic.layout.incarnation, tuple(ends))), deadline)


class TakeOverFences(_Fences[KnownTakeOvers]):
    """Fence records of replicators and of producer names, which begin with a marker."""

    def begin(
        self,
        topic: Topic,
        origin: str,
        epoch: int,
        partitions: Sequence[int],
        append: Callable[[Sequence[int]], Mapping[int, int]],
        deadline: Deadline,
    ) -> dict[int, int]:
        """Begin an epoch in these partitions; gives the offsets of its markers, which `append` appends. Then removes
        the fences that it makes superfluous."""
        life, place, begun = topic.layout.incarnation, str(topic.name), OriginEpoch(origin, epoch)
        log_starts = self._offsets.start_offsets(topic.kafka_topic, partitions, deadline)
        ends = self._offsets.end_offsets(topic.kafka_topic, partitions, deadline)
        before = self._known(
            place, lambda all_of: {p: all_of.of(life, p, origin).get(begun) for p in partitions}, deadline
        )
        bounds = {p: ends[p] if known is None else min(known.offset, ends[p]) for p, known in before.items()}
        self._record(topic, begun, {p: TakeOverBound(life, at, exact=False) for p, at in bounds.items()}, deadline)
        first = dict(append(partitions))
        for p in partitions:
            if before[p] is not None:  # the answer to an earlier marker of this epoch was lost
                found = self._looked_for(topic, p, begun, (max(bounds[p], log_starts[p]), first[p]), deadline)
                first[p] = first[p] if found is None else found
        self._record(topic, begun, {p: TakeOverBound(life, at, exact=True) for p, at in first.items()}, deadline)
        gone = self._known(
            place,
            lambda known: [key for p in partitions for key in known.superfluous(place, life, p, log_starts[p])],
            deadline,
        )
        self._remove(place, gone, deadline)
        return first

    def has_begun(self, topic: Topic, origin: str, deadline: Deadline) -> bool:
        """An epoch of this origin began, or may have, in a partition of the topic."""
        life = topic.layout.incarnation
        found = self._known(
            str(topic.name), lambda known: any(known.of(life, p, origin) for p in range(topic.partitions)), deadline
        )
        return bool(found)

    def of_partitions(
        self, topic: Topic, partitions: Sequence[int], deadline: Deadline, *, origin: str | None = None
    ) -> dict[int, list[Fence]]:
        """The beginnings of these epochs in partitions at present; those of one `origin`, or of all.

        Costs one reading of `producers` to its end. Where a member of an origin died during its take-over, it also
        costs a reading of the partition from the end that this member found; the progress is recorded.
        """
        life = topic.layout.incarnation
        known = self._known(
            str(topic.name), lambda all_of: {p: all_of.of(life, p, origin) for p in partitions}, deadline
        )
        found: dict[int, list[Fence]] = {p: [] for p in partitions}
        for partition, fences in known.items():
            for epoch, fence in fences.items():
                offset: int | None = fence.offset
                if not fence.exact:
                    offset = self._found(topic, partition, epoch, fences, deadline)
                if offset is not None:
                    found[partition].append(Fence(offset, epoch.number, epoch.origin))
        return found

    def _found(
        self,
        topic: Topic,
        partition: int,
        epoch: OriginEpoch,
        fences: Mapping[OriginEpoch, TakeOverBound],
        deadline: Deadline,
    ) -> int | None:
        """The marker of an epoch, as far as it makes a difference: not behind the one of a higher epoch."""
        log_start, end = self._data.watermarks(topic.kafka_topic, partition, deadline)
        begin = max(fences[epoch].offset, log_start)
        higher = (
            fence.offset
            for other, fence in fences.items()
            if fence.exact and other.origin == epoch.origin and other.number > epoch.number
        )
        end = min(end, min(higher, default=end))
        if begin >= end:
            return None
        offset = self._looked_for(topic, partition, epoch, (begin, end), deadline)
        if offset is not None or end - begin >= _WORTH_NOTING:
            bound = TakeOverBound(topic.layout.incarnation, end if offset is None else offset, exact=offset is not None)
            self._note(partial(self._record, topic, epoch, {partition: bound}, deadline))
        return offset

    def _looked_for(
        self, topic: Topic, partition: int, epoch: OriginEpoch, span: tuple[int, int], deadline: Deadline
    ) -> int | None:
        requested = Claimed(epoch.origin, epoch.number)
        return self._first_of(topic, partition, span, lambda headers: begun_by(headers) == requested, deadline)

    def _record(
        self, topic: Topic, epoch: OriginEpoch, bounds: Mapping[int, TakeOverBound], deadline: Deadline
    ) -> None:
        place = str(topic.name)
        records = [
            (encode_key(TakeOverKey(place, partition, epoch.origin, epoch.number)), encode_take_over(bound))
            for partition, bound in bounds.items()
        ]
        self._log.append_many(PRODUCERS, PRODUCERS.partition_for(place), records, deadline)
