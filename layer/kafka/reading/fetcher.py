"""The fetcher reads ranges of partitions, for any thread: state topics, and records that are wanted again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from pulsar_on_kafka.base.deadline import Deadline, pause
from pulsar_on_kafka.base.errors import Closed, DeadlineExceeded, LayerError, NoLeaderNow, NoSuchTopic
from pulsar_on_kafka.kafka.errors import is_of_old_metadata
from pulsar_on_kafka.kafka.reading.assigned import AssignedReader
from pulsar_on_kafka.kafka.reading.events import End, Failed, KafkaPartition, Records
from pulsar_on_kafka.kafka.records import KafkaRecord

_log = logging.getLogger(__name__)

_BATCH: Final = 1000
READ_THROUGH: Final = 2000
"""A gap below so many records is read through."""
_STALE_S: Final = 2.0
_SILENT_S: Final = 5.0
"""Longer, because a new handle first connects: on a busy machine that alone takes a second."""
_JUST_MADE_S: Final = 2.0
_AGAIN_S: Final = 0.02

_T = TypeVar("_T")
_Question: TypeAlias = Callable[[AssignedReader, KafkaPartition, float], _T]
"""With the longest time to wait, in seconds."""


class Fetcher:
    """Used by one thread at a time (callers queue on a lock), also for questions: a hundred threads that asked one
    handle for offsets at a time were seen to wake each other a thousand times a second, for half an hour
    (librdkafka 2.16).

    Memory: one librdkafka fetch queue, bounded by the `queued.max.messages.kbytes` of its configuration.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self._consumer = AssignedReader(config, "fetcher")
        self._closed = False
        self._assigned_to: object | None = None  # which reading the assignment belongs to
        self._unknown_since_s: dict[str, float] = {}
        """By topic: since when librdkafka does not know a partition that is asked for, or its leader, or is silent."""
        self._lock = threading.RLock()  # reentrant: an abandoned iterator may be finalized in here

    def open(self) -> None:
        """Make the librdkafka handle, which the first reading else does."""
        with self._lock:
            self._reader().open()

    def _reader(self) -> AssignedReader:
        if self._closed:
            raise Closed("the fetcher is closed")
        return self._consumer

    def log_start(self, topic: str, partition: int, deadline: Deadline) -> int:
        """The log start as the leader says now. Patient, and raises, as `watermarks`."""
        return self._asked(AssignedReader.log_start, topic, partition, deadline)

    def log_end(self, topic: str, partition: int, deadline: Deadline) -> int:
        """The high watermark as the leader says now. Patient, and raises, as `watermarks`."""
        return self._asked(AssignedReader.log_end, topic, partition, deadline)

    def watermarks(self, topic: str, partition: int, deadline: Deadline) -> tuple[int, int]:
        """(log start, high watermark) as the leader says now: twice the requests of one of them.

        Brokers, and librdkafka, hear one after the other of a partition that was made just now: one that is not known,
        or has no leader, is asked for again for two seconds.

        Raises:
            NoSuchTopic, NoLeaderNow: so it was for two seconds, or until the deadline. Other StoreErrors at once.
        """
        return self._asked(AssignedReader.watermarks, topic, partition, deadline)

    def _asked(self, ask: _Question[_T], topic: str, partition: int, deadline: Deadline) -> _T:
        where = KafkaPartition(topic, partition)
        patience = deadline.at_most(_JUST_MADE_S)
        while True:
            try:
                return self._asked_once(ask, where, deadline)
            except (NoSuchTopic, NoLeaderNow):
                if patience.passed():
                    raise
            pause(min(_AGAIN_S, patience.remaining_s()))
            with self._lock:
                self._reader().learn(topic, max(0.001, patience.remaining_s()))

    def _asked_once(self, ask: _Question[_T], where: KafkaPartition, deadline: Deadline) -> _T:
        with self._lock:
            began_s = time.monotonic()
            try:
                found = ask(self._reader(), where, _seconds(deadline))
            except LayerError as failure:
                if is_of_old_metadata(failure):
                    self._renew_when_stale(where.topic, began_s, _STALE_S)
                elif isinstance(failure, DeadlineExceeded):
                    self._renew_when_stale(where.topic, began_s, _SILENT_S)
                raise
            self._unknown_since_s.pop(where.topic, None)
            return found

    def _renew_when_stale(self, topic: str, since_s: float, after_s: float) -> None:
        """Go on with another handle once this one has not known a partition of `topic`, or its leader, or not answered,
        for `after_s`. `since_s`: when the call began that heard so.

        What a handle knows of a topic that was made, or grew, while it looked for it may stay as it is until its
        metadata expires (seen with librdkafka 2.16: for more than a minute, while other processes knew better).
        """
        now_s = time.monotonic()
        if now_s - self._unknown_since_s.setdefault(topic, since_s) < after_s:
            return
        self._unknown_since_s.clear()
        _log.info("librdkafka does not know %s or its leaders, or does not answer: asking with a new handle", topic)
        self._release()

    def _release(self) -> None:
        self._consumer.release()
        self._assigned_to = None

    def read(self, topic: str, partition: int, start: int, end: int, deadline: Deadline) -> Iterator[list[KafkaRecord]]:
        """Batches of the records in [start, end), in offset order; compacted offsets are simply missing.

        The fetcher is taken for one batch at a time, never while the caller works on one: an iterator that is left
        unfinished blocks nobody, and one that takes turns with others only fetches again what it had prefetched.

        Raises:
            OffsetOutOfRange: `start` lies below the log start.
            DeadlineExceeded: the position did not reach `end` in time.
        """
        where = KafkaPartition(topic, partition)
        position = start
        reading = object()
        began_s = time.monotonic()
        asked = False
        try:
            while position < end:
                if asked and position == start and deadline.passed():  # nothing came at all
                    with self._lock:
                        self._renew_when_stale(topic, began_s, _SILENT_S)
                asked = True
                deadline.check(f"{where} to be read to {end}, now at {position}")
                with self._lock:
                    if self._assigned_to is not reading:
                        self._assigned_to = reading  # first, so that no finalizer takes the assignment away
                        self._reader().assign({where: position})
                    records, position = self._next(position, end, deadline)
                    if position > start:
                        self._unknown_since_s.pop(topic, None)
                if records:
                    yield records
        finally:
            with self._lock:
                if self._assigned_to is reading:
                    self._assigned_to = None
                    self._consumer.assign({})

    def _next(self, position: int, end: int, deadline: Deadline) -> tuple[list[KafkaRecord], int]:
        """What there is of the assigned partition below `end` (perhaps nothing yet), and the position after it."""
        wanted: list[KafkaRecord] = []
        for event in self._reader().poll(_BATCH, min(deadline.remaining_s(), 0.5)):
            match event:
                case Records(_, records):
                    position = records[-1].offset() + 1
                    wanted += records if position <= end else [each for each in records if each.offset() < end]
                case End(_, offset):
                    position = max(position, offset)
                case Failed(where, failure):
                    if where.topic:  # else it is about a topic that was read before, perhaps
                        raise failure
        return wanted, position

    def read_at(
        self, topic: str, partition: int, offsets: Sequence[int], deadline: Deadline
    ) -> Iterator[list[KafkaRecord]]:
        """The records at exactly these offsets, given in ascending order; the missing ones are simply missing.

        Neighbours are read in one go: a gap below 2,000 records is read through, a wider one is jumped over (a jump
        takes as long as 5,000 small records).
        """
        for run in near_ones(offsets):
            wanted = set(run)
            for batch in self.read(topic, partition, run[0], run[-1] + 1, deadline):
                hits = [record for record in batch if record.offset() in wanted]
                if hits:
                    yield hits

    def offset_at_time(self, topic: str, partition: int, timestamp_ms: int, deadline: Deadline) -> int | None:
        """Offset of the first record whose timestamp is at or above `timestamp_ms`; None when there is none."""
        with self._lock:
            return self._reader().offset_at_time(KafkaPartition(topic, partition), timestamp_ms, _seconds(deadline))

    def close(self) -> None:
        with self._lock:
            self._release()
            self._closed = True


def near_ones(offsets: Sequence[int]) -> Iterator[list[int]]:
    """Parts of ascending offsets within which reading through is cheaper than jumping."""
    run: list[int] = []
    for offset in offsets:
        if run and offset - run[-1] >= READ_THROUGH:
            yield run
            run = []
        run.append(offset)
    if run:
        yield run


def _seconds(deadline: Deadline) -> float:
    return max(0.001, min(deadline.remaining_s(), 3600))
