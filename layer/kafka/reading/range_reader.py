"""Many short ranges of many partitions, read together: librdkafka asks a broker for all of them with one request.

Those of one partition are read one after the other, in the order of their offsets and without going anywhere in between
where they lie next to each other: to ask for another offset takes longer than to read on for a while.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Closed, DeadlineExceeded, LayerError, OffsetOutOfRange
from pulsar_on_kafka.kafka import handles
from pulsar_on_kafka.kafka.errors import is_no_such_topic, translate
from pulsar_on_kafka.kafka.events import ErrorEvents
from pulsar_on_kafka.kafka.reading.batches import next_batch
from pulsar_on_kafka.kafka.records import KafkaRecord
from pulsar_on_kafka.kafka.rights import on_topic

AT_ONCE: Final = 100
"""Partitions that are read at the same time, at most."""
_BATCH: Final = 1000
_POLL_S: Final = 0.5
_LEARN_S: Final = 1.0
_NEAR_BYTES: Final = 64 * 1024
"""What is read in vain, at most, to come from one range to the next one: no more than one answer of a broker has."""
_GUESSED_BYTES: Final = 1024
"""Of a record, as long as none of its partition was read."""
STUCK_S: Final = 5.0
"""What is being read is given up when nothing came for so long."""


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
    """Of the value of the last record that was read."""
    on_the_way: bool = False
    """It was come to by reading on: `position` may lie ahead of where the partition is read."""

    def reaches(self, following: _Reading) -> bool:
        """Whether reading on is the quickest way to the range that follows, none of which was passed."""
        gap = following.position - self.position
        return gap >= 0 and gap * self.record_bytes <= _NEAR_BYTES


class RangeReader:
    """For one thread. Memory: one librdkafka fetch queue and one answer of a broker, bounded by its configuration, and
    the name of each topic that was read."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self._handle: Consumer | None = None
        self._closed = False
        self._known: set[str] = set()
        """Topics whose leaders librdkafka was told of."""
        self._waiting: dict[tuple[str, int], deque[_Reading]] = {}
        self._active: dict[tuple[str, int], _Reading] = {}
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
                self._waiting.setdefault((topic, partition), deque()).append(_Reading(number, start, end))
        for where, readings in self._waiting.items():
            self._waiting[where] = deque(sorted(readings, key=lambda reading: reading.position))
        consumer = self._consumer()
        heard_s = time.monotonic()
        try:
            while self._active or self._waiting:
                if self._fill(consumer):
                    heard_s = time.monotonic()
                batch = next_batch(consumer, _BATCH, min(_POLL_S, deadline.remaining_s()))
                if batch:
                    heard_s = time.monotonic()
                self._take(batch, take)
                self._finish(consumer)
                if deadline.passed() or time.monotonic() - heard_s > STUCK_S:
                    late = DeadlineExceeded("no records in time")
                    self._fail(list(self._active if not deadline.passed() else self._waiting), late)
                    self._finish(consumer)
        finally:
            if handles.is_ours(consumer):
                consumer.unassign()
        return self._failed

    def close(self) -> None:
        """A second call does nothing."""
        if self._handle is not None and handles.is_ours(self._handle):
            self._handle.close()
            handles.release(self._handle)
        self._handle, self._closed = None, True

    # Inside -------------------------------------------------------------------------------------------------------

    def _consumer(self) -> Consumer:
        if self._closed:
            raise Closed("the reader of ranges is closed")
        if self._handle is None:
            self._handle = Consumer({**self._config, "error_cb": ErrorEvents("reader of ranges")})
            handles.track(self._handle)
        return self._handle

    def _fill(self, consumer: Consumer) -> bool:
        """Begin with as many ranges as there is room for, one of each partition; whether any was begun."""
        free = AT_ONCE - len(self._active)
        begun: list[TopicPartition] = []
        for where, readings in self._waiting.items():
            if len(begun) >= free:
                break
            if where not in self._active:
                self._active[where] = readings[0]
                begun.append(TopicPartition(*where, readings[0].position))
        if begun:
            self._learn(consumer, {where.topic for where in begun})
            consumer.incremental_assign(begun)
        return bool(begun)

    def _learn(self, consumer: Consumer, topics: set[str]) -> None:
        """librdkafka looks for the leaders of topics that are new to it once a second: have it know them now."""
        for topic in topics - self._known:
            with suppress(KafkaException):  # reading tells what is wrong
                consumer.list_topics(topic, timeout=_LEARN_S)
                self._known.add(topic)

    def _take(self, batch: Iterable[Any], take: Callable[[int, list[KafkaRecord]], None]) -> None:
        found: dict[int, list[KafkaRecord]] = {}
        for record in batch:
            where = record.topic(), record.partition()
            reading = self._active.get(where)
            error = record.error()
            if error is not None:
                self._hear(record, error, reading)
                continue
            offset = record.offset()
            while reading is not None and offset >= max(reading.position, reading.end):
                reading.position = reading.end
                reading = self._read_on(where, reading)
            if reading is not None and offset >= reading.position:
                reading.position = offset + 1
                reading.record_bytes = len(record.value() or b"")
                found.setdefault(reading.number, []).append(record)
                if reading.position >= reading.end:
                    self._read_on(where, reading)
        for number, records in found.items():
            take(number, records)

    def _read_on(self, where: tuple[str, int], done: _Reading) -> _Reading | None:
        """What is read next of this partition from where it is; None when that is nothing: see `_finish`."""
        readings = self._waiting[where]
        if len(readings) < 2 or not done.reaches(readings[1]):
            return None
        readings.popleft()
        following = readings[0]
        following.record_bytes, following.on_the_way = done.record_bytes, True
        self._active[where] = following
        return following

    def _hear(self, event: Any, error: KafkaError, reading: _Reading | None) -> None:
        topic, partition = event.topic(), event.partition()
        if error.code() == KafkaError._PARTITION_EOF:
            if reading is None or (event.offset() < reading.position and not reading.on_the_way):
                return
            reading.position = max(reading.position, event.offset())
            if reading.position < reading.end:
                ended = OffsetOutOfRange(f"{topic}-{partition} ends at {event.offset()}, before {reading.end}")
                self._fail_now((topic, partition), ended)
        elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            pass  # librdkafka looks for a coordinator that is never used here
        elif is_no_such_topic(error) or error.fatal() or not error.retriable():
            failure = translate(error, f"reading {topic}-{partition}", on_topic("Read", topic or ""))
            if not isinstance(failure, LayerError):
                raise failure
            if isinstance(failure, OffsetOutOfRange):
                self._fail_now((topic, partition), failure)
                return
            concerned = [w for w in self._active if w[0] == topic and partition in (w[1], -1)]
            self._fail(concerned or (list(self._active) if error.fatal() else []), failure)

    def _fail_now(self, where: tuple[str, int], failure: LayerError) -> None:
        """The range of this partition that is being read will not be; see `_finish`."""
        reading = self._active.get(where)
        if reading is not None:
            self._failed[reading.number] = failure
            reading.position = reading.end

    def _fail(self, partitions: Iterable[tuple[str, int]], failure: LayerError) -> None:
        """None of the ranges of these partitions will be read; see `_finish`."""
        for where in partitions:
            for reading in self._waiting[where]:
                self._failed[reading.number] = failure
            self._waiting[where].clear()

    def _finish(self, consumer: Consumer) -> None:
        """Let go of what was read, or failed."""
        over: list[TopicPartition] = []
        for where, reading in list(self._active.items()):
            readings = self._waiting[where]
            if readings and reading.position < reading.end:
                continue
            del self._active[where]
            over.append(TopicPartition(*where))
            if readings:
                readings.popleft()
        for where in [where for where, readings in self._waiting.items() if not readings]:
            del self._waiting[where]
        if over:
            consumer.incremental_unassign(over)
