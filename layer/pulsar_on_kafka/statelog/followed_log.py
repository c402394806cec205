"""A state log that tails busy topics in the background, so that reads return without a round trip.

An ordinary reading assigns a consumer, waits for a fetch, and waits for other readings. Where the same partition is
read many times a second, as by an owner that waits for its own records, one thread of the process follows it instead,
and a reading takes the received records. This is transparent: records that the thread does not have (older ones, or
those that its consumer does not get within half a second) are read as usual.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from pulsar_on_kafka.base.clock import Clock, Moment
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.worker import Worker
from pulsar_on_kafka.kafka.reading.assigned_reader import AssignedReader
from pulsar_on_kafka.kafka.reading.events import EndOfLog, Event, Failed, KafkaPartition, Records
from pulsar_on_kafka.statelog.api import Group, LogRecord, StateLog, log_record
from pulsar_on_kafka_mapping.state.state_topics import StateTopic

_log: Final = logging.getLogger(__name__)

MAX_RECORDS: Final = 5_000
MAX_BYTES: Final = 4 * 1024 * 1024


class Window:
    """Every record that the log has in [base, reached). One thread puts, any may take.

    Memory: `max_records` records of `max_bytes` (keys and values), or one record that is larger; the oldest go.
    """

    def __init__(self, start: int, *, max_records: int = MAX_RECORDS, max_bytes: int = MAX_BYTES) -> None:
        """`start` is the offset that is read first."""
        self.start = start
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._base = start
        self._reached = -1
        """Nothing was received yet: waiting for the first record is slower than an ordinary reading."""
        self._records: deque[LogRecord] = deque()
        self._bytes = 0
        self._over = False
        self._moved = threading.Condition()

    def put(self, records: Sequence[LogRecord], reached: int) -> None:
        """Add the records that follow in the log, and up to where (exclusive) it was read by now."""
        with self._moved:
            for record in records:
                self._records.append(record)
                self._bytes += _size(record)
            while len(self._records) > self._max_records or (self._bytes > self._max_bytes and len(self._records) > 1):
                gone = self._records.popleft()
                self._bytes -= _size(gone)
                self._base = gone.offset + 1
            self._reached = max(self._reached, reached)
            self._moved.notify_all()

    def end(self) -> None:
        with self._moved:
            self._over = True
            self._moved.notify_all()

    def take(self, start: int, end: int, patience: Deadline) -> list[LogRecord] | None:
        """The records in [start, end), as soon as all of them were read.

        None: they cannot be had here, because some are older than what is kept, nothing was read yet, reading has
        ended, or did not come that far within `patience`.
        """
        with self._moved:
            while True:
                if self._over or self._reached < 0 or start < self._base:
                    return None
                if self._reached >= end:
                    return self._between(start, end)
                if not self._moved.wait(patience.remaining_s()):
                    return None

    def _between(self, start: int, end: int) -> list[LogRecord]:
        """The records of [start, end), found by going back from the newest: a caller nearly always takes the last that
        came."""
        found: list[LogRecord] = []
        for record in reversed(self._records):
            if record.offset < start:
                break
            if record.offset < end:
                found.append(record)
        found.reverse()
        return found


def _size(record: LogRecord) -> int:
    return len(record.key) + len(record.value or b"")


_BATCH: Final = 500
_POLL_S: Final = 0.1
_PATIENCE_S: Final = 0.5
READ_OFTEN_S: Final = 10.0
"""A partition that is read a second time within this is followed, until it was not read for as long."""


class FollowedLog:
    """A `StateLog`; everything but reading is the log's own affair. Thread-safe; the log stays its owner's.

    Memory: a `Window` for each partition that is followed, and librdkafka's fetch queue.
    """

    def __init__(self, log: StateLog, topics: Sequence[StateTopic], reader: AssignedReader, clock: Clock) -> None:
        """`topics`: whose partitions may be followed, by a `reader` of its own."""
        self._log = log
        self._topics = frozenset(topic.name for topic in topics)
        self._clock = clock
        self._lock = threading.Lock()
        self._read: dict[KafkaPartition, Moment] = {}
        """The time of the last reading."""
        self._follower = _Follower(reader, self._still_required)

    def append(self, topic: StateTopic, partition: int, key: bytes, value: bytes | None, deadline: Deadline) -> int:
        return self._log.append(topic, partition, key, value, deadline)

    def append_many(
        self, topic: StateTopic, partition: int, records: Sequence[tuple[bytes, bytes | None]], deadline: Deadline
    ) -> list[int]:
        return self._log.append_many(topic, partition, records, deadline)

    def append_apart(self, groups: Sequence[Group], deadline: Deadline) -> None:
        self._log.append_apart(groups, deadline)

    def now_ms(self) -> int:
        return self._log.now_ms()

    def end_offset(self, topic: StateTopic, partition: int, deadline: Deadline) -> int:
        return self._log.end_offset(topic, partition, deadline)

    def start_offset(self, topic: StateTopic, partition: int, deadline: Deadline) -> int:
        return self._log.start_offset(topic, partition, deadline)

    def read_at(
        self, topic: StateTopic, partition: int, offsets: Sequence[int], deadline: Deadline
    ) -> Mapping[int, LogRecord]:
        return self._log.read_at(topic, partition, offsets, deadline)

    def kafka_name(self, topic: StateTopic) -> str:
        return self._log.kafka_name(topic)

    def read(
        self, topic: StateTopic, partition: int, start: int, end: int, deadline: Deadline
    ) -> Iterator[list[LogRecord]]:
        which = KafkaPartition(self.kafka_name(topic), partition)
        if start >= end or topic.name not in self._topics:
            yield from self._log.read(topic, partition, start, end, deadline)
            return
        often = self._is_read_often(which)
        if not often:  # perhaps this process was stopped for long, and tombstones came and went meanwhile
            self._follower.leave(which)
        found = self._follower.take(which, start, end, deadline) if often else None
        if found is None:
            yield from self._log.read(topic, partition, start, end, deadline)
            if often:
                self._follower.follow(which, end)
        elif found:
            yield found

    def _is_read_often(self, which: KafkaPartition) -> bool:
        now = Moment.of(self._clock)
        with self._lock:
            before = self._read.get(which)
            self._read[which] = now
        return before is not None and before.seconds_until(now) < READ_OFTEN_S

    def _still_required(self, which: KafkaPartition) -> bool:
        with self._lock:
            before = self._read.get(which)
        return before is not None and before.seconds_until(Moment.of(self._clock)) < READ_OFTEN_S

    def close(self) -> None:
        """End following; a second call does nothing."""
        self._follower.close()


class _Follower:
    """The thread, which is there from the first `follow` on, and its consumer, as long as something is followed."""

    def __init__(self, reader: AssignedReader, still_required: Callable[[KafkaPartition], bool]) -> None:
        self._reader = reader
        self._still_required = still_required
        self._lock = threading.Lock()
        self._windows: dict[KafkaPartition, Window] = {}
        self._changed = threading.Event()
        self._worker = Worker(
            "pok-state-tail",
            self._read_required,
            "state topics are read slowly",
            last=lambda: self._give_up(self._windows.copy()),
        )

    # Any thread ---------------------------------------------------------------------------------------------------

    def take(self, which: KafkaPartition, start: int, end: int, deadline: Deadline) -> list[LogRecord] | None:
        """`Window.take` of this partition, None without a window. A window that does not come that far in time is given
        up."""
        with self._lock:
            window = self._windows.get(which)
        if window is None:
            return None
        patience = deadline.at_most(_PATIENCE_S)
        found = window.take(start, end, patience)
        if found is None and patience.passed():
            _log.info("%s: following stopped below offset %d, reading instead", which, end)
            self._give_up({which: window})
        return found

    def follow(self, which: KafkaPartition, start: int) -> None:
        """Follow a partition from `start` on, unless it is followed already."""
        with self._lock:
            if self._worker.ended or which in self._windows:
                return
            self._windows[which] = Window(start)
        self._changed.set()
        self._worker.start()
        self._worker.wake()

    def leave(self, which: KafkaPartition) -> None:
        with self._lock:
            window = self._windows.get(which)
        if window is not None:
            self._give_up({which: window})

    def close(self) -> None:
        self._worker.end()
        self._changed.set()
        self._worker.close(Deadline.never())

    def _give_up(self, windows: Mapping[KafkaPartition, Window]) -> None:
        if not windows:
            return  # nothing changed: the thread, which is woken below, would wake itself for ever
        with self._lock:
            for which, window in windows.items():
                window.end()
                if self._windows.get(which) is window:
                    del self._windows[which]
        self._changed.set()

    # Its own thread -----------------------------------------------------------------------------------------------

    def _read_required(self) -> float:
        """Reads the wanted partitions until none is, or this is closed; returns the wait for the next ones."""
        self._changed.set()  # it begins with looking, also after a failure
        read: dict[KafkaPartition, Window] = {}
        try:
            while not self._worker.ended:
                if self._changed.is_set():
                    self._changed.clear()
                    self._assign(read)
                if not read:
                    return math.inf
                events = self._reader.poll(_BATCH, _POLL_S)
                if events:
                    self._worker.well()
                    self._hand_on(events, read)
                else:
                    self._leave(read)
        finally:
            self._give_up(read)
            self._reader.release()
        return 0.0

    def _assign(self, read: dict[KafkaPartition, Window]) -> None:
        with self._lock:
            requested = self._windows.copy()
        gone = [which for which, window in read.items() if requested.get(which) is not window]
        new = {which: window for which, window in requested.items() if read.get(which) is not window}
        if gone:
            self._reader.drop(gone)
        for which in gone:
            del read[which]
        if new:
            self._reader.add({which: window.start for which, window in new.items()})
            read.update(new)

    def _leave(self, read: Mapping[KafkaPartition, Window]) -> None:
        unwanted = {which: window for which, window in read.items() if not self._still_required(which)}
        if unwanted:
            self._give_up(unwanted)

    def _hand_on(self, events: Sequence[Event], read: Mapping[KafkaPartition, Window]) -> None:
        for event in events:
            window = read.get(event.where)
            match event:
                case Failed():
                    if window is None:
                        event.raise_or_log(_log, "following state topics")
                    else:
                        _log.info("following stopped: %s", event.failure)
                        self._give_up({event.where: window})
                case Records(_, records) if window is not None:
                    found = [log_record(record) for record in records]
                    window.put(found, found[-1].offset + 1)
                case EndOfLog(_, offset) if window is not None:
                    window.put((), offset)
