"""The state log in memory: the same contract without a broker, with compaction as a step that a test may take."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from pulsar_on_kafka.base.clock import Clock, SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Closed, OffsetOutOfRange
from pulsar_on_kafka.statelog.api import Group, LogRecord, check_partition
from pulsar_on_kafka_mapping.state.instances import DEFAULT_INSTANCE
from pulsar_on_kafka_mapping.state.state_topics import StateTopic

_BATCH: Final = 1000
_DROPPED_SHARE: Final = 0.5


@dataclass(slots=True)
class _Partition:
    records: list[LogRecord] = field(default_factory=list)
    start: int = 0
    end: int = 0
    cleaned_ms: dict[bytes, int] = field(default_factory=dict)
    """When compaction last took a record of this key."""

    def newest_offsets(self) -> dict[bytes, int]:
        return {record.key: record.offset for record in self.records}

    def oldest_offsets(self) -> dict[bytes, int]:
        return {record.key: record.offset for record in reversed(self.records)}


class MemoryStateLog:
    """Thread-safe. Deadlines are never waited for: everything is there at once."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._partitions: dict[tuple[str, int], _Partition] = {}
        self._closed = False

    def append(self, topic: StateTopic, partition: int, key: bytes, value: bytes | None, deadline: Deadline) -> int:
        return self.append_many(topic, partition, [(key, value)], deadline)[0]

    def append_many(
        self, topic: StateTopic, partition: int, records: Sequence[tuple[bytes, bytes | None]], deadline: Deadline
    ) -> list[int]:
        deadline.check(f"append to {self.kafka_name(topic)}-{partition}")
        with self._lock:
            log = self._partition(topic, partition)
            first = log.end
            now_ms = self._clock.now_ms()
            log.records.extend(
                LogRecord(offset, key, value, now_ms) for offset, (key, value) in enumerate(records, first)
            )
            log.end = first + len(records)
            return list(range(first, log.end))

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def kafka_name(self, topic: StateTopic) -> str:
        return DEFAULT_INSTANCE.state_topic(topic)

    def append_apart(self, groups: Sequence[Group], deadline: Deadline) -> None:
        for topic, partition, records in groups:
            self.append_many(topic, partition, records, deadline)

    def end_offset(self, topic: StateTopic, partition: int, deadline: Deadline) -> int:
        with self._lock:
            return self._partition(topic, partition).end

    def start_offset(self, topic: StateTopic, partition: int, deadline: Deadline) -> int:
        with self._lock:
            return self._partition(topic, partition).start

    def read(
        self, topic: StateTopic, partition: int, start: int, end: int, deadline: Deadline
    ) -> Iterator[list[LogRecord]]:
        position = start
        while position < end:
            deadline.check(f"{self.kafka_name(topic)}-{partition} to be read to {end}, now at {position}")
            with self._lock:
                log = self._partition(topic, partition)
                if position < log.start:
                    raise OffsetOutOfRange(
                        f"{self.kafka_name(topic)}-{partition} starts at {log.start}, not at {position}"
                    )
                batch = _slice(log.records, position, end)[:_BATCH]
            position = batch[-1].offset + 1 if len(batch) == _BATCH else end
            if batch:
                yield batch

    def read_at(
        self, topic: StateTopic, partition: int, offsets: Sequence[int], deadline: Deadline
    ) -> dict[int, LogRecord]:
        wanted = set(offsets)
        with self._lock:
            log = self._partition(topic, partition)
            return {record.offset: record for record in log.records if record.offset in wanted}

    def close(self) -> None:
        with self._lock:
            self._closed = True

    # What Kafka does behind everybody's back ----------------------------------------------------------------------

    def compact(self, rng: random.Random, horizon: int | None = None, *, thoroughly: bool = False) -> None:
        """Drop some of the records, or all (`thoroughly`), that have a later one with their key (below `horizon`).

        Harder than Kafka, which goes from the start: any of them, anywhere.
        """
        kept_share = 0.0 if thoroughly else rng.random()
        with self._lock:
            for log in self._partitions.values():
                reach = log.end if horizon is None else horizon
                newest = {record.key: record.offset for record in log.records if record.offset < reach}
                kept = []
                for record in log.records:
                    if newest.get(record.key, -1) <= record.offset or rng.random() < kept_share:
                        kept.append(record)
                    else:
                        log.cleaned_ms[record.key] = self._clock.now_ms()
                log.records = kept

    def drop_tombstones(self, rng: random.Random, horizon: int, cleaned_before_ms: float | None = None) -> None:
        """Drop some of the tombstones below offset `horizon` under whose key nothing else is left, and of whose key
        compaction took nothing since `cleaned_before_ms`.

        Kafka counts `delete.retention.ms` from the cleaning that met the tombstone, and that one took what stood
        before it (KIP-534): who read such a record just before has all that time to meet the tombstone.
        """
        with self._lock:
            for log in self._partitions.values():
                newest, oldest = log.newest_offsets(), log.oldest_offsets()
                log.records = [
                    record
                    for record in log.records
                    if record.value is not None
                    or record.offset >= horizon
                    or (cleaned_before_ms is not None and log.cleaned_ms.get(record.key, -1) >= cleaned_before_ms)
                    or not newest[record.key] == oldest[record.key] == record.offset
                    or rng.random() >= _DROPPED_SHARE
                ]

    def delete_before(self, topic: StateTopic, partition: int, start: int) -> None:
        """Move the log start to `start`, as retention does."""
        with self._lock:
            log = self._partition(topic, partition)
            log.start = max(log.start, min(start, log.end))
            log.records = _slice(log.records, log.start, log.end)

    def _partition(self, topic: StateTopic, partition: int) -> _Partition:
        if self._closed:
            raise Closed("the state log is closed")
        check_partition(topic, partition)
        return self._partitions.setdefault((topic.name, partition), _Partition())


class CountedLog(MemoryStateLog):
    """Counts what is asked of it."""

    ends_asked = 0
    readings = 0

    def end_offset(self, topic: StateTopic, partition: int, deadline: Deadline) -> int:
        self.ends_asked += 1
        return super().end_offset(topic, partition, deadline)

    def read(
        self, topic: StateTopic, partition: int, start: int, end: int, deadline: Deadline
    ) -> Iterator[list[LogRecord]]:
        self.readings += 1
        yield from super().read(topic, partition, start, end, deadline)


def _slice(records: list[LogRecord], start: int, end: int) -> list[LogRecord]:
    """The records in [start, end), found by bisection."""
    return records[_first_at(records, start) : _first_at(records, end)]


def _first_at(records: list[LogRecord], offset: int) -> int:
    low, high = 0, len(records)
    while low < high:
        middle = (low + high) // 2
        if records[middle].offset < offset:
            low = middle + 1
        else:
            high = middle
    return low
