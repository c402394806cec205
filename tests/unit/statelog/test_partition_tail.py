"""A tail that cannot read for a while misses nothing of what it was reading."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka.statelog.tail import PartitionTail
from pulsar_on_kafka_mapping.state.state_topics import DELIVERIES
from tests.memory_log import MemoryStateLog
from tests.memory_reader import memory_reader
from tests.waiting import never, until

DEADLINE = Deadline.never()
PATIENCE_S = 30.0


class Listening:
    """A tail of some partitions of `deliveries`, and what it heard."""

    def __init__(self) -> None:
        self.log = MemoryStateLog()
        self.fail = threading.Event()
        self.wanted: set[int] = set()
        self.heard: list[bytes] = []
        self._news = threading.Condition()
        self.rest_s = 0.0
        self.tail = PartitionTail(
            self.log, DELIVERIES, memory_reader(self.log, DELIVERIES, self.fail), lambda: self.wanted,
            self._hear, name="tail", without="nothing works", rest_s=lambda: self.rest_s,
        )  # fmt: skip

    def _hear(self, records: Sequence[tuple[int, LogRecord]]) -> None:
        with self._news:
            self.heard += [record.key for _, record in records]
            self._news.notify_all()

    def write(self, partition: int, key: bytes) -> None:
        self.log.append(DELIVERIES, partition, key, b"", DEADLINE)

    def until_heard(self, *keys: bytes) -> bool:
        with self._news:
            return self._news.wait_for(lambda: self.heard == list(keys), PATIENCE_S)


def test_what_comes_while_reading_fails_is_heard_later() -> None:
    listening = Listening()
    listening.write(3, b"before")
    listening.wanted = {3}
    listening.tail.look(3, 1)
    listening.write(3, b"first")
    assert listening.until_heard(b"first")
    listening.fail.set()
    until(lambda: not listening.fail.is_set(), "the failure")
    listening.write(3, b"second")
    assert listening.until_heard(b"first", b"second"), listening.heard
    listening.tail.close(Deadline.after(PATIENCE_S))


def test_what_was_dropped_before_begins_at_its_end_again() -> None:
    listening = Listening()
    listening.wanted = {3, 4}
    listening.tail.look(3, 0)
    listening.tail.look(4, 0)
    listening.write(3, b"first")
    assert listening.until_heard(b"first")
    listening.wanted = {4}
    listening.tail.look()
    listening.write(4, b"of 4")
    assert listening.until_heard(b"first", b"of 4")
    listening.write(3, b"unheard")
    listening.wanted = {3, 4}
    listening.tail.look(3, 2)
    listening.write(3, b"last")
    assert listening.until_heard(b"first", b"of 4", b"last"), listening.heard
    listening.tail.close(Deadline.after(PATIENCE_S))


def test_while_everybody_is_patient_it_rests_after_what_it_heard_unless_what_is_wanted_changes() -> None:
    listening = Listening()
    listening.rest_s = 10 * PATIENCE_S
    listening.wanted = {3}
    listening.tail.look(3, 0)
    listening.write(3, b"first")
    assert listening.until_heard(b"first")
    listening.write(3, b"second")
    never(lambda: listening.heard != [b"first"], "something after the first", 0.2)
    listening.rest_s = 0.0
    listening.tail.look()
    assert listening.until_heard(b"first", b"second")
    listening.tail.close(Deadline.after(PATIENCE_S))
