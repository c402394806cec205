"""Reading records whose offsets are told bit by bit and mostly ascend: of leases, which follow what is produced.

A `Fetcher` begins each reading anew. This reader stays where it is, so what is told next is fetched already.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, Final

from layer.deadline import Deadline
from layer.errors import OffsetOutOfRange
from layer.kafka.assigned import AssignedConsumer, end_reached, failure_of, is_final, is_offset_out_of_range
from layer.kafka.fetcher import READ_THROUGH, Fetcher

_BATCH: Final = 1000
_POLL_S: Final = 0.5
_MOST_WAITING_BYTES: Final = 16 * 1024 * 1024

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Place:
    """How far a partition is read; `waiting` has what came while another one was read, from `position` on."""

    position: int
    waiting: deque[Any] = field(default_factory=deque)
    waiting_bytes: int = 0


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
        found = []
        while place.waiting and place.position <= last:
            record = place.waiting.popleft()
            place.waiting_bytes -= len(record)
            place.position = record.offset() + 1
            if record.offset() in wanted:
                found.append(record)
        if found:
            yield found
        while place.position <= last:
            deadline.check(f"{topic}-{partition} to be read to {last}, now at {place.position}")
            found = self._poll(topic, partition, place, wanted, last, deadline)
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

    def _poll(
        self, topic: str, partition: int, place: _Place, wanted: set[int], last: int, deadline: Deadline
    ) -> list[Any]:
        assert self._consumer is not None  # noqa: S101 - opened with the place
        batch = self._consumer.poll_batch(_BATCH, min(_POLL_S, deadline.remaining_s()))
        if len(self._places) == 1 and not place.waiting:
            batch, found = _pass_through(batch, place, wanted, last)
        else:
            found = []
        for record in batch:
            if record.error() is not None:
                self._on_event(topic, record)
            elif record.partition() != partition or place.waiting or record.offset() > last:
                self._keep(record)
            else:
                place.position = record.offset() + 1
                if record.offset() in wanted:
                    found.append(record)
        if place.waiting:  # it goes on behind all that is wanted
            place.position = max(place.position, place.waiting[0].offset())
        return found

    def _keep(self, record: Any) -> None:
        place = self._places.get(record.partition())
        if place is None:
            return  # of a partition that was left meanwhile
        place.waiting.append(record)
        place.waiting_bytes += len(record)
        if sum(each.waiting_bytes for each in self._places.values()) > _MOST_WAITING_BYTES:
            largest = max(self._places, key=lambda number: self._places[number].waiting_bytes)
            _log.info("partition=%d too much was read ahead of it, it is begun anew when it is wanted", largest)
            self.leave(largest)

    def _on_event(self, topic: str, event: Any) -> None:
        error, partition = event.error(), event.partition()
        place = self._places.get(partition)
        if end_reached(error):
            if place is not None and not place.waiting:
                place.position = max(place.position, event.offset())
        elif is_offset_out_of_range(error):
            self.leave(partition)
            raise OffsetOutOfRange(f"reading {topic}-{partition} at {event.offset()}: {error.str()}")
        elif is_final(error):
            raise failure_of(error, f"reading {topic}-{partition}")
        else:
            _log.info("%s-%s: %s", topic, partition, error.str())


def _pass_through(batch: list[Any], place: _Place, wanted: set[int], last: int) -> tuple[list[Any], list[Any]]:
    """What is left of a batch of records of one partition, and what is wanted of the others; nothing is passed of one
    with an event. Others' leases are most of it, so no line of Python is spent on a record."""
    if not batch:
        return batch, []
    kind = type(batch[0])
    if {*map(type, map(kind.error, batch))} != {type(None)}:
        return batch, []
    offsets = list(map(kind.offset, batch))
    count = bisect_right(offsets, last)
    if count:
        place.position = offsets[count - 1] + 1
    return batch[count:], list(compress(batch[:count], map(wanted.__contains__, offsets)))


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
