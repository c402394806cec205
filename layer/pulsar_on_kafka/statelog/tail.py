"""A thread that reads partitions of a state topic as they grow, as long as they have users.

It begins at a partition's end at the first use, and reads only wanted partitions; without any it waits, and before the
first use the thread does not exist. Earlier records are not read. After a failure it continues from its position,
unless retention deleted that: senders of lost requests resend them.

`FollowedLog` has a thread of another kind: its windows must be complete, so it drops them instead.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.worker import Worker
from pulsar_on_kafka.kafka.reading.assigned_reader import AssignedReader
from pulsar_on_kafka.kafka.reading.events import EndOfLog, Event, Failed, KafkaPartition, OutOfRange, Records
from pulsar_on_kafka.statelog.api import LogRecord, StateLog, log_record
from pulsar_on_kafka_mapping.state.state_topics import StateTopic

_log = logging.getLogger(__name__)

Hear = Callable[[Sequence[tuple[int, LogRecord]]], None]
"""Called by the thread with records and their partitions, each partition's in the order of the log. Returns at once."""

_BATCH: Final = 500
_POLL_S: Final = 0.1
_END_TIMEOUT_S: Final = 10.0


class PartitionTail:
    """The tail of a state topic. Thread-safe. Memory: one batch of 500 records, and librdkafka's fetch queue.

    A failure is logged once, and retried every second; every 30 s where a right is missing.
    """

    def __init__(
        self,
        log: StateLog,
        topic: StateTopic,
        reader: AssignedReader,
        requested: Callable[[], set[int]],
        receive: Hear,
        *,
        name: str,
        without: str,
        rest_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`reader` belongs to it alone. `requested` returns the partitions to read; call `look` after a change.
        `without` describes in words the work that stops while reading fails; `rest_s` returns how many seconds reading
        may pause after the last records."""
        self._log = log
        self._topic = topic
        self._reader = reader
        self._required = requested
        self._on_records = receive
        self._rest_s = rest_s
        self._lock = threading.Lock()
        self._starts: dict[int, int] = {}
        """The start of partitions that are to be read, not from their end, and not being read yet."""
        self._positions: dict[int, int] = {}
        """The position behind the last record of each partition that is being read."""
        self._resume: dict[int, int] = {}
        """The same of those that were being read when reading failed."""
        self._changed = threading.Event()
        self._worker = Worker(name, self._follow, without)

    # Any thread ---------------------------------------------------------------------------------------------------

    def look(self, partition: int | None = None, start: int | None = None) -> None:
        """Handles a change of the wanted partitions. `partition` is to be read from `start` on, if it is not being read
        already."""
        with self._lock:
            if self._worker.ended:
                return
            if partition is not None and start is not None:
                self._starts[partition] = min(start, self._starts.get(partition, start))
        self._worker.start()
        self._changed.set()

    def close(self, deadline: Deadline) -> None:
        """End the thread; a second call does nothing."""
        self._worker.end()
        self._changed.set()
        self._worker.close(deadline)

    # Its own thread -----------------------------------------------------------------------------------------------

    def _follow(self) -> float:
        self._changed.set()  # it begins with looking, also after a failure
        reading: set[int] = set()
        try:
            while not self._worker.ended:
                if self._changed.is_set():
                    self._changed.clear()
                    self._read_these(self._required(), reading)
                if not reading:
                    self._changed.wait()
                    continue
                events = self._reader.poll(_BATCH, _POLL_S)
                if events:
                    self._worker.well()
                    self._hand_on(events)
                    rest_s = self._rest_s()
                    if rest_s:
                        self._changed.wait(rest_s)
        finally:
            self._resume.update((partition, self._positions[partition]) for partition in reading)
            self._reader.release()
        return 0.0

    def _where(self, partition: int) -> KafkaPartition:
        return KafkaPartition(self._log.kafka_name(self._topic), partition)

    def _read_these(self, requested: set[int], reading: set[int]) -> None:
        dropped = reading - requested
        if dropped:
            self._reader.drop(map(self._where, dropped))
            reading -= dropped
            for partition in dropped:
                self._positions.pop(partition, None)
        for partition in requested - reading:
            start = self._positions[partition] = self._start(partition)
            self._reader.add({self._where(partition): start})
            reading.add(partition)
        with self._lock:
            self._starts = {partition: start for partition, start in self._starts.items() if partition not in reading}
        self._resume.clear()

    def _start(self, partition: int) -> int:
        with self._lock:
            start = self._starts.get(partition, self._resume.get(partition))
        if start is None:
            start = self._end(partition)
        with self._lock:  # another caller may have requested an earlier one meanwhile
            return min(start, self._starts.get(partition, start))

    def _end(self, partition: int) -> int:
        return self._log.end_offset(self._topic, partition, Deadline.after(_END_TIMEOUT_S))

    def _hand_on(self, events: Iterable[Event]) -> None:
        received: list[tuple[int, LogRecord]] = []
        for event in events:
            match event:
                case Records((_, partition), records):
                    received += [(partition, log_record(record)) for record in records]
                    self._positions[partition] = received[-1][1].offset + 1
                case OutOfRange(where):
                    _log.warning("%s: what was to be read is gone, going on at its end", where)
                    self._reader.seek({where: self._end(where.partition)})
                case EndOfLog():
                    pass
                case Failed():
                    event.raise_or_log(_log, f"following {self._log.kafka_name(self._topic)}")
        if received:
            self._on_records(received)
