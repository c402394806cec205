"""An assigned reader of the log in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import cast

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import ConnectFailed
from pulsar_on_kafka.kafka.reading.assigned_reader import AssignedReader
from pulsar_on_kafka.kafka.reading.events import Event, KafkaPartition, Records
from pulsar_on_kafka_mapping.state.state_topics import StateTopic
from tests.kafka_records import LoggedRecord
from tests.memory_log import MemoryStateLog

DEADLINE = Deadline.never()


def memory_reader(log: MemoryStateLog, topic: StateTopic, fail: threading.Event) -> AssignedReader:
    """Fails once whenever `fail` is set."""
    return cast("AssignedReader", _Reader(log, topic, fail))


class _Reader:
    """Reads the log in memory, until it is told to fail."""

    def __init__(self, log: MemoryStateLog, topic: StateTopic, fail: threading.Event) -> None:
        self._log = log
        self._topic = topic
        self._fail = fail
        self._positions: dict[KafkaPartition, int] = {}

    def add(self, starts: Mapping[KafkaPartition, int]) -> None:
        self._positions.update(starts)

    def drop(self, partitions: Iterable[KafkaPartition]) -> None:
        for partition in list(partitions):
            del self._positions[partition]

    def poll(self, limit: int, timeout_s: float) -> list[Event]:
        if self._fail.is_set():
            self._fail.clear()
            raise ConnectFailed("no broker answers")
        found: list[Event] = []
        for where, position in self._positions.items():
            end = self._log.end_offset(self._topic, where.partition, DEADLINE)
            for batch in self._log.read(self._topic, where.partition, position, end, DEADLINE):
                found.append(Records(where, [LoggedRecord(*where, record) for record in batch]))
            self._positions[where] = end
        if not found:
            self._fail.wait(0.01)
        return found

    def release(self) -> None:
        self._positions.clear()
