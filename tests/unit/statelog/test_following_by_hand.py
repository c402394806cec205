"""Following partitions of a state log, with a reader that a test moves by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import StoreError
from pulsar_on_kafka.kafka.reading.assigned_reader import AssignedReader
from pulsar_on_kafka.kafka.reading.events import Event, KafkaPartition, Records
from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka.statelog.followed_log import FollowedLog
from pulsar_on_kafka_mapping.state.state_topics import SUBSCRIPTIONS, TOPICS, StateTopic
from tests.clocks import PacedClock
from tests.kafka_records import LoggedRecord
from tests.memory_log import CountedLog, MemoryStateLog


class Reader:
    """Gives what is in the log, unless it is stalled or broken. Positions are those of all readers there ever were."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._positions: dict[KafkaPartition, int] = {}

    def add(self, starts: Mapping[KafkaPartition, int]) -> None:
        with self._world.changed:
            if not self._positions:
                self._world.readers += 1
            self._positions.update(starts)
            self._world.followed |= starts.keys()
            self._world.changed.notify_all()

    def drop(self, partitions: Sequence[KafkaPartition]) -> None:
        for which in partitions:
            del self._positions[which]
        self._world.followed -= set(partitions)

    def poll(self, limit: int, timeout_s: float) -> list[Event]:
        world = self._world
        with world.changed:
            if world.broken:
                raise StoreError("simulated")
            found = [] if world.stalled else self._next(limit)
            if not found:
                world.changed.wait(timeout_s)
            return found

    def _next(self, limit: int) -> list[Event]:
        found: list[Event] = []
        for which, position in self._positions.items():
            records = self._world.records(which, position)[:limit]
            if records:
                found.append(Records(which, [LoggedRecord(*which, record) for record in records]))
                self._positions[which] = records[-1].offset + 1
        return found

    def release(self) -> None:
        with self._world.changed:
            self._positions.clear()
            self._world.followed.clear()
            self._world.readers = 0
            self._world.changed.notify_all()


class World:
    def __init__(self) -> None:
        self.clock = PacedClock()
        self.inner = CountedLog(self.clock)
        self.changed = threading.Condition()
        self.stalled = self.broken = False
        self.readers = 0
        self.followed: set[KafkaPartition] = set()
        self.log = FollowedLog(self.inner, [TOPICS], cast("AssignedReader", Reader(self)), self.clock)
        self.written = 0

    def records(self, which: KafkaPartition, position: int) -> list[LogRecord]:
        end = self.inner.end_offset(TOPICS, which[1], soon())
        return [
            each for batch in MemoryStateLog.read(self.inner, TOPICS, which[1], position, end, soon()) for each in batch
        ]

    def write(self, topic: StateTopic = TOPICS) -> int:
        self.written += 1
        offset = self.log.append(topic, 0, b"%d" % self.written, b"v", soon())
        with self.changed:
            self.changed.notify_all()
        return offset

    def read(self, start: int, topic: StateTopic = TOPICS) -> list[int]:
        end = self.log.end_offset(topic, 0, soon())
        return [record.offset for batch in self.log.read(topic, 0, start, end, soon()) for record in batch]

    def write_and_read(self, topic: StateTopic = TOPICS) -> None:
        offset = self.write(topic)
        assert self.read(offset, topic) == [offset]

    def wait_until_followed(self) -> None:
        """Something was heard of the partition."""
        while self.inner.readings:
            self.inner.readings = 0
            self.write_and_read()

    def wait_for(self, happened: Callable[[], object]) -> None:
        with self.changed:
            assert self.changed.wait_for(happened, 10)


def soon() -> Deadline:
    return Deadline.after(10)


@pytest.fixture
def world() -> Iterator[World]:
    found = World()
    yield found
    found.log.close()


def test_what_is_read_once_is_not_followed(world: World) -> None:
    world.write_and_read()
    world.clock.ms += 11_000
    world.write_and_read()
    assert world.inner.readings == 2
    assert world.readers == 0


def test_what_is_read_often_comes_without_a_reading(world: World) -> None:
    world.write_and_read()
    world.wait_until_followed()
    for _ in range(100):
        world.write_and_read()
    assert world.inner.readings == 0
    assert world.readers == 1


def test_topics_that_are_not_to_be_followed_are_read_as_ever(world: World) -> None:
    for _ in range(5):
        world.write_and_read(SUBSCRIPTIONS)
    assert world.inner.readings == 5
    assert world.readers == 0


def test_what_is_older_is_read_from_the_log(world: World) -> None:
    world.write_and_read()
    world.wait_until_followed()
    assert world.read(0) == list(range(world.written))
    assert world.inner.readings == 1


def test_a_reader_that_stalls_is_waited_for_half_a_second_and_then_done_without(world: World) -> None:
    world.write_and_read()
    world.wait_until_followed()
    world.stalled = True
    world.write_and_read()
    assert world.inner.readings == 1
    world.stalled = False
    world.wait_until_followed()
    world.write_and_read()
    assert world.inner.readings == 0


def test_a_reader_that_fails_is_done_without_until_another_one_works(world: World) -> None:
    world.write_and_read()
    world.wait_until_followed()
    world.broken = True
    world.wait_for(lambda: world.readers == 0)
    world.write_and_read()
    assert world.inner.readings == 1
    world.broken = False
    world.wait_for(lambda: world.followed)
    world.wait_until_followed()


def test_what_nobody_reads_any_more_is_left_and_the_reader_closed(world: World) -> None:
    world.write_and_read()
    world.wait_until_followed()
    world.clock.ms += 11_000
    world.wait_for(lambda: world.readers == 0)
    assert world.followed == set()
    world.write_and_read()
    assert world.inner.readings == 1


def test_a_thread_that_follows_nothing_rests(world: World) -> None:
    left, rests = threading.Event(), threading.Event()

    class Watched(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if timeout == threading.TIMEOUT_MAX and left.is_set() and not self.is_set():
                rests.set()
            return super().wait(timeout)

    world.log._follower._worker._wake = Watched()  # nothing else tells a busy thread from one that waits
    world.write_and_read()
    world.wait_until_followed()
    left.set()
    world.clock.ms += 11_000
    world.wait_for(lambda: world.readers == 0)
    assert rests.wait(10)


def test_after_a_long_stop_nothing_that_was_heard_before_counts(world: World) -> None:
    """Tombstones may have come and gone meanwhile, together with what they say is gone."""
    world.write_and_read()
    world.wait_until_followed()
    first = world.written - 1
    world.clock.ms += 11_000
    assert world.read(first) == [first]
    assert world.inner.readings == 1


def test_closing_ends_the_thread_and_reading_goes_on(world: World) -> None:
    world.write_and_read()
    world.wait_until_followed()
    world.log.close()
    assert world.readers == 0
    world.write_and_read()
    assert world.inner.readings == 1
