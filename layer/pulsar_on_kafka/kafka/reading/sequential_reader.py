"""Reads records at mostly ascending offsets that arrive over time: those of leases, which follow the producers.

A `Fetcher` begins each reading anew. This reader keeps its position, so the next records are fetched already.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.kafka.reading.assigned_reader import AssignedReader
from pulsar_on_kafka.kafka.reading.events import EndOfLog, Failed, KafkaPartition, OutOfRange, Records
from pulsar_on_kafka.kafka.reading.fetcher import READ_THROUGH, Fetcher, near_ones

_BATCH: Final = 1000
_POLL_S: Final = 0.5
_MAX_WAITING_BYTES: Final = 16 * 1024 * 1024

_log = logging.getLogger(__name__)


class _Run:
    __slots__ = ("offsets", "records")

    def __init__(self, records: list[Any]) -> None:
        self.records = records
        self.offsets: list[int] = list(map(type(records[0]).offset, records))


@dataclass(slots=True)
class _Place:
    """Progress of reading one partition; `waiting` has records that came and are not read yet, none of them below
    `position`."""

    position: int
    waiting: deque[_Run] = field(default_factory=deque)
    waiting_bytes: int = 0
    end: int = 0
    """Up to where everything has come that is there: the log's end, where it was reached."""

    def apply(self, event: Records | EndOfLog) -> None:
        if isinstance(event, EndOfLog):
            self.end = max(self.end, event.offset)
        else:
            self.waiting.append(_Run(event.records))
            self.waiting_bytes += sum(map(len, event.records))

    def read(self, requested: set[int], last: int) -> list[Any]:
        """The wanted records among those up to the offset `last`. Others' leases are most of them, so no line of Python
        is spent on a record."""
        found: list[Any] = []
        while self.waiting and self.position <= last:
            run = self.waiting[0]
            count = bisect_right(run.offsets, last)
            passed, offsets = run.records[:count], run.offsets[:count]
            found += compress(passed, map(requested.__contains__, offsets))
            self.waiting_bytes -= sum(map(len, passed))
            if count < len(run.offsets):
                self.position = run.offsets[count]
                del run.records[:count], run.offsets[:count]
            else:
                self.position = offsets[-1] + 1
                self.waiting.popleft()
        if not self.waiting:
            self.position = max(self.position, self.end)
        return found


class AscendingReader:
    """Reads one topic. Driven by exactly one thread.

    Memory: librdkafka's fetch queue, and 16 MiB of what came while another partition was read.
    """

    def __init__(self, reader: AssignedReader, fetcher: Fetcher, topic: str) -> None:
        """Both are this reader's own; `fetcher` reads what lies behind."""
        self._reader = reader
        self._fetcher = fetcher
        self._topic = topic
        self._places: dict[int, _Place] = {}

    def read_at(self, topic: str, partition: int, offsets: Sequence[int], deadline: Deadline) -> Iterator[list[Any]]:
        """The records at exactly these offsets, given in ascending order; the missing ones are simply missing.

        Raises:
            OffsetOutOfRange: one of them lies below the log start.
            DeadlineExceeded: the position did not get beyond them in time.
        """
        place = self._places.get(partition)
        behind = [] if place is None else [offset for offset in offsets if offset < place.position]
        if behind:
            yield from self._fetcher.read_at(topic, partition, behind, deadline)
        for run in near_ones(offsets[len(behind) :]):
            yield from self._read_on(partition, run, deadline)

    def log_start(self, topic: str, partition: int, deadline: Deadline) -> int:
        """The log start, from `Fetcher.log_start`."""
        return self._fetcher.log_start(topic, partition, deadline)

    def leave(self, partition: int | None = None) -> None:
        """Do not fetch this partition (None: any) ahead any more."""
        left = self._places.keys() & ({*self._places} if partition is None else {partition})
        if left:
            self._reader.drop(map(self._where, left))
        for each in left:
            del self._places[each]

    def close(self) -> None:
        self._places.clear()
        self._reader.release()
        self._fetcher.close()

    def _where(self, partition: int) -> KafkaPartition:
        return KafkaPartition(self._topic, partition)

    def _read_on(self, partition: int, offsets: list[int], deadline: Deadline) -> Iterator[list[Any]]:
        place = self._at(partition, offsets[0])
        requested, last = set(offsets), offsets[-1]
        found = place.read(requested, last)
        if found:
            yield found
        while place.position <= last:
            deadline.check(f"{self._where(partition)} to be read to {last}, now at {place.position}")
            self._poll(place, last, deadline)
            found = place.read(requested, last)
            if found:
                yield found

    def _at(self, partition: int, offset: int) -> _Place:
        """The place of a partition, which is being fetched from a little before `offset` at most."""
        place = self._places.get(partition)
        if place is not None and offset - place.position < READ_THROUGH:
            return place
        if place is None:
            self._reader.add({self._where(partition): offset})
        else:
            self._reader.seek({self._where(partition): offset})
        place = self._places[partition] = _Place(offset)
        return place

    def _poll(self, place: _Place, last: int, deadline: Deadline) -> None:
        """Polls, and queues the records at their places. From a single partition no unwanted record is taken: it waits
        in librdkafka's queue, where Python's garbage collector does not traverse it."""
        most = min(_BATCH, last + 1 - place.position) if len(self._places) == 1 else _BATCH
        failed: list[Failed] = []
        for event in self._reader.poll(most, min(_POLL_S, deadline.remaining_s())):
            if isinstance(event, Failed):
                failed.append(event)
            elif event.where.partition in self._places:  # else it was left meanwhile
                self._places[event.where.partition].apply(event)
        for event in failed:  # now that nothing is lost of what came for other partitions
            if isinstance(event, OutOfRange):
                self.leave(event.where.partition)
                raise event.failure
            event.raise_or_log(_log, "leases")
        if sum(each.waiting_bytes for each in self._places.values()) > _MAX_WAITING_BYTES:
            others = {number: each for number, each in self._places.items() if each is not place}
            if others:
                largest = max(others, key=lambda number: others[number].waiting_bytes)
                _log.info("partition=%d too much was prefetched, reading restarts when it is needed", largest)
                self.leave(largest)
