"""Many short ranges of many partitions, read together: librdkafka requests all of them from a broker at once.

Ranges of one partition are read in the order of their offsets, and neighbouring ones without a new request: requesting
another offset takes longer than reading on for a while.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Closed, DeadlineExceeded, LayerError, OffsetOutOfRange
from pulsar_on_kafka.kafka.reading.assigned_reader import AssignedReader
from pulsar_on_kafka.kafka.reading.events import EndOfLog, Event, Failed, GaveUp, KafkaPartition, OutOfRange, Records
from pulsar_on_kafka.kafka.records import KafkaRecord

AT_ONCE: Final = 100
"""Partitions that are read at the same time, at most."""
_BATCH: Final = 1000
_POLL_S: Final = 0.5
_NEAR_BYTES: Final = 64 * 1024
"""The limit of bytes read in vain between two ranges: no more than one broker's reply contains."""
_GUESSED_BYTES: Final = 1024
"""The assumed size of a record, until one of its partition was read."""
STUCK_S: Final = 5.0
"""A reading is abandoned after this time without records."""


class OffsetRange(NamedTuple):
    """[start, end) of a partition."""

    kafka_topic: str
    partition: int
    start: int
    end: int


@dataclass(slots=True)
class _Reading:
    number: int
    position: int
    end: int
    record_bytes: int = _GUESSED_BYTES
    """The size of the value of the last record that was read."""
    on_the_way: bool = False
    """Whether it was reached by reading on: `position` may lie ahead of the partition's position."""

    def reaches(self, following: _Reading) -> bool:
        """Whether reading on is the quickest way to the following range, of which no record was passed."""
        gap = following.position - self.position
        return gap >= 0 and gap * self.record_bytes <= _NEAR_BYTES


class RangeReader:
    """Reads ranges, in one thread. Memory: one librdkafka fetch queue and one reply of a broker, bounded by its
    configuration."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._reader = AssignedReader(config, "reader of ranges")
        self._closed = False
        self._waiting: dict[KafkaPartition, deque[_Reading]] = {}
        self._active: dict[KafkaPartition, _Reading] = {}
        self._failed: dict[int, LayerError] = {}

    def read(
        self, ranges: Sequence[OffsetRange], take: Callable[[int, list[KafkaRecord]], None], deadline: Deadline
    ) -> dict[int, LayerError]:
        """Hand `take` each range's records, by its place in `ranges`, in the order of its offsets and in any number of
        calls; offsets that are not there any more are simply missing.

        Returns:
            Why the others were not read to their end, by place: their partition is gone, has no leader, ends or begins
            elsewhere, or time was over. What was taken of them is worth nothing.
        """
        self._failed = {}
        self._active = {}
        self._waiting = {}
        for number, (topic, partition, start, end) in enumerate(ranges):
            if start < end:
                self._waiting.setdefault(KafkaPartition(topic, partition), deque()).append(_Reading(number, start, end))
        for where, readings in self._waiting.items():
            self._waiting[where] = deque(sorted(readings, key=lambda reading: reading.position))
        if self._closed:
            raise Closed("the reader of ranges is closed")
        received_s = time.monotonic()
        try:
            while self._active or self._waiting:
                if self._fill():
                    received_s = time.monotonic()
                events = self._reader.poll(_BATCH, min(_POLL_S, deadline.remaining_s()))
                if events:
                    received_s = time.monotonic()
                self._apply(events, take)
                self._finish()
                if deadline.passed() or time.monotonic() - received_s > STUCK_S:
                    late = DeadlineExceeded("no records in time")
                    self._fail(list(self._active if not deadline.passed() else self._waiting), late)
                    self._finish()
        finally:
            self._reader.drop_all()
        return self._failed

    def close(self) -> None:
        """A second call does nothing."""
        self._closed = True
        self._reader.release()

    def _fill(self) -> bool:
        """Begin with as many ranges as there is room for, one of each partition; whether any was begun."""
        free = AT_ONCE - len(self._active)
        begun: dict[KafkaPartition, int] = {}
        for where, readings in self._waiting.items():
            if len(begun) >= free:
                break
            if where not in self._active:
                self._active[where] = readings[0]
                begun[where] = readings[0].position
        if begun:
            self._reader.add(begun)
        return bool(begun)

    def _apply(self, events: Iterable[Event], take: Callable[[int, list[KafkaRecord]], None]) -> None:
        found: dict[int, list[KafkaRecord]] = {}
        for event in events:
            match event:
                case Records(where, records):
                    self._take(where, records, found)
                case EndOfLog(where, offset):
                    self._end(where, offset)
                case OutOfRange(where, failure):
                    self._fail_now(where, failure)
                case GaveUp(_, failure):
                    self._fail(list(self._active), failure)
                case Failed(where, failure):
                    topic, partition = where
                    concerned = [w for w in self._active if w.topic == topic and partition in (w.partition, -1)]
                    self._fail(concerned, failure)
        for number, records in found.items():
            take(number, records)

    def _take(self, where: KafkaPartition, records: list[Any], found: dict[int, list[KafkaRecord]]) -> None:
        reading = self._active.get(where)
        for record in records:
            offset = record.offset()
            while reading is not None and offset >= max(reading.position, reading.end):
                reading.position = reading.end
                reading = self._read_on(where, reading)
            if reading is None:
                return
            if offset >= reading.position:
                reading.position = offset + 1
                reading.record_bytes = len(record.value() or b"")
                found.setdefault(reading.number, []).append(record)
                if reading.position >= reading.end:
                    reading = self._read_on(where, reading)

    def _read_on(self, where: KafkaPartition, done: _Reading) -> _Reading | None:
        """The next reading of this partition from its position; None without one: see `_finish`."""
        readings = self._waiting[where]
        if len(readings) < 2 or not done.reaches(readings[1]):
            return None
        readings.popleft()
        following = readings[0]
        following.record_bytes, following.on_the_way = done.record_bytes, True
        self._active[where] = following
        return following

    def _end(self, where: KafkaPartition, offset: int) -> None:
        reading = self._active.get(where)
        if reading is None or (offset < reading.position and not reading.on_the_way):
            return
        reading.position = max(reading.position, offset)
        if reading.position < reading.end:
            self._fail_now(where, OffsetOutOfRange(f"{where} ends at {offset}, before {reading.end}"))

    def _fail_now(self, where: KafkaPartition, failure: LayerError) -> None:
        """The range of this partition that is being read will not be; see `_finish`."""
        reading = self._active.get(where)
        if reading is not None:
            self._failed[reading.number] = failure
            reading.position = reading.end

    def _fail(self, partitions: Iterable[KafkaPartition], failure: LayerError) -> None:
        """None of the ranges of these partitions will be read; see `_finish`."""
        for where in partitions:
            for reading in self._waiting[where]:
                self._failed[reading.number] = failure
            self._waiting[where].clear()

    def _finish(self) -> None:
        over: list[KafkaPartition] = []
        for where, reading in list(self._active.items()):
            readings = self._waiting[where]
            if readings and reading.position < reading.end:
                continue
            del self._active[where]
            over.append(where)
            if readings:
                readings.popleft()
        for where in [where for where, readings in self._waiting.items() if not readings]:
            del self._waiting[where]
        if over:
            self._reader.drop(over)
