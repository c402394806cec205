"""Reading records whose offsets are told bit by bit and mostly ascend: of leases, which follow what is produced.

A `Fetcher` begins each reading anew. This reader stays where it is, so what is told next is fetched already.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import OffsetOutOfRange
from pulsar_on_kafka.kafka.reading.assigned import (
    AssignedConsumer,
    end_reached,
    failure_of,
    is_final,
    is_offset_out_of_range,
)
from pulsar_on_kafka.kafka.reading.fetcher import READ_THROUGH, Fetcher

_BATCH: Final = 1000
_POLL_S: Final = 0.5
_MOST_WAITING_BYTES: Final = 16 * 1024 * 1024

_log = logging.getLogger(__name__)


class _Run:
    """Records of one partition that came one after the other."""

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

    def add(self, records: list[Any]) -> None:
        self.waiting.append(_Run(records))
        self.waiting_bytes += sum(map(len, records))

    def read(self, wanted: set[int], last: int) -> list[Any]:
        """What is wanted of what came up to the offset `last`. Others' leases are most of it, so no line of Python is
        spent on a record."""
        found: list[Any] = []
        while self.waiting and self.position <= last:
            run = self.waiting[0]
            count = bisect_right(run.offsets, last)
            passed, offsets = run.records[:count], run.offsets[:count]
            found += compress(passed, map(wanted.__contains__, offsets))
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

    def __init__(self, open_consumer: Callable[[], AssignedConsumer], fetcher: Fetcher) -> None:
        """Both are opened by the first reading. `fetcher`, which is this reader's own, reads what lies behind."""
        self._open_consumer = open_consumer
        self._fetcher = fetcher
        self._consumer: AssignedConsumer | None = None
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
        for run in _runs(offsets[len(behind) :]):
            yield from self._read_on(topic, partition, run, deadline)

    def watermarks(self, topic: str, partition: int, deadline: Deadline) -> tuple[int, int]:
        """(log start, high watermark) as the leader says now."""
        return self._fetcher.watermarks(topic, partition, deadline)

    def leave(self, partition: int | None = None) -> None:
        """Do not fetch this partition (None: any) ahead any more."""
        left = self._places.keys() & ({*self._places} if partition is None else {partition})
        if left and self._consumer is not None:
            self._consumer.drop(left)
        for each in left:
            del self._places[each]

    def close(self) -> None:
        self._places.clear()
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()
        self._fetcher.close()

    # Inside -------------------------------------------------------------------------------------------------------

    def _read_on(self, topic: str, partition: int, offsets: list[int], deadline: Deadline) -> Iterator[list[Any]]:
        place = self._at(partition, offsets[0])
        wanted, last = set(offsets), offsets[-1]
        found = place.read(wanted, last)
        if found:
            yield found
        while place.position <= last:
            deadline.check(f"{topic}-{partition} to be read to {last}, now at {place.position}")
            self._poll(topic, place, last, deadline)
            found = place.read(wanted, last)
            if found:
                yield found

    def _at(self, partition: int, offset: int) -> _Place:
        """The place of a partition, which is being fetched from a little before `offset` at most."""
        if self._consumer is None:
            self._consumer = self._open_consumer()
        place = self._places.get(partition)
        if place is not None and offset - place.position < READ_THROUGH:
            return place
        if place is None:
            self._consumer.add({partition: offset})
        else:
            self._consumer.seek({partition: offset})
        place = self._places[partition] = _Place(offset)
        return place

    def _poll(self, topic: str, place: _Place, last: int, deadline: Deadline) -> None:
        """Have what comes wait at its place. Of the only partition nothing is taken that is not wanted yet: it waits in
        librdkafka's queue, where Python's garbage collector does not walk through it."""
        assert self._consumer is not None  # noqa: S101 - opened with the place
        most = min(_BATCH, last + 1 - place.position) if len(self._places) == 1 else _BATCH
        batch = self._consumer.poll_batch(most, min(_POLL_S, deadline.remaining_s()))
        records, events = _split(batch)
        for partition, run in _by_partition(records):
            if partition in self._places:  # else it was left meanwhile
                self._places[partition].add(run)
        for event in events:
            self._on_event(topic, event)
        if sum(each.waiting_bytes for each in self._places.values()) > _MOST_WAITING_BYTES:
            others = {number: each for number, each in self._places.items() if each is not place}
            if others:
                largest = max(others, key=lambda number: others[number].waiting_bytes)
                _log.info("partition=%d too much was read ahead of it, it is begun anew when it is wanted", largest)
                self.leave(largest)

    def _on_event(self, topic: str, event: Any) -> None:
        error, partition = event.error(), event.partition()
        place = self._places.get(partition)
        if end_reached(error):
            if place is not None:
                place.end = max(place.end, event.offset())
        elif is_offset_out_of_range(error):
            self.leave(partition)
            raise OffsetOutOfRange(f"reading {topic}-{partition} at {event.offset()}: {error.str()}")
        elif is_final(error):
            raise failure_of(error, f"reading {topic}-{partition}")
        else:
            _log.info("%s-%s: %s", topic, partition, error.str())


def _split(batch: list[Any]) -> tuple[list[Any], list[Any]]:
    """Records, and events."""
    if not batch or {*map(type, map(type(batch[0]).error, batch))} == {type(None)}:
        return batch, []
    return [each for each in batch if each.error() is None], [each for each in batch if each.error() is not None]


def _by_partition(records: list[Any]) -> Iterable[tuple[int, list[Any]]]:
    if not records:
        return ()
    partitions = list(map(type(records[0]).partition, records))
    numbers = set(partitions)
    if len(numbers) == 1:
        return ((partitions[0], records),)
    return ((number, list(compress(records, map(number.__eq__, partitions)))) for number in numbers)


def _runs(offsets: Sequence[int]) -> Iterator[list[int]]:
    """Parts within which reading through is cheaper than jumping."""
    run: list[int] = []
    for offset in offsets:
        if run and offset - run[-1] >= READ_THROUGH:
            yield run
            run = []
        run.append(offset)
    if run:
        yield run
