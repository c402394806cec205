"""The views of a state topic: one of each partition, shared by all callers in a process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.statelog.api import StateLog
from pulsar_on_kafka.statelog.view import F, LogView
from pulsar_on_kafka_mapping.state.state_topics import StateTopic

M = TypeVar("M")
T = TypeVar("T")


class ByPartition(Generic[M]):
    """A map with one object for each partition, created at its first use. Thread-safe."""

    def __init__(self, make: Callable[[int], M]) -> None:
        self._make = make
        self._made: dict[int, M] = {}
        self._lock = threading.Lock()

    def of(self, partition: int) -> M:
        with self._lock:
            made = self._made.get(partition)
            if made is None:
                made = self._made[partition] = self._make(partition)
            return made


class LogViews(ByPartition[LogView[F]]):
    """The views. Memory: the states of the partitions in use, each of which is read from its beginning first."""

    def __init__(self, log: StateLog, topic: StateTopic, empty: Callable[[int], F], clock: Clock) -> None:
        super().__init__(lambda partition: LogView(log, topic, partition, lambda: empty(partition), clock))
        self.topic = topic
        self.empty = empty

    def query(self, place: str, question: Callable[[F], T], deadline: Deadline) -> T:
        """Puts `question` to the state with all records of `place` (a topic's full name, without a partition's suffix),
        at an end that was taken after this call began. Raises the errors of `LogView.query`."""
        return self.of(self.topic.partition_for(place)).query(question, deadline, about=place)

    def query_partition(self, partition: int, question: Callable[[F], T], deadline: Deadline) -> T:
        """The same of everything in one partition."""
        return self.of(partition).query(question, deadline)


def read_once(
    log: StateLog, topic: StateTopic, partition: int, empty: Callable[[], F], clock: Clock, deadline: Deadline
) -> tuple[F, frozenset[str]]:
    """The state of one partition, for a single question, and the entities with unreadable records. Raises the errors of
    `LogView.query_readable`."""
    return LogView(log, topic, partition, empty, clock).query_readable(lambda fold: fold, deadline)


class Looking(Generic[F]):
    """Questions to views without side effects: a missing state topic, which the cluster never used, counts as empty.
    Thread-safe; a topic is looked up until it was found once."""

    def __init__(self, views: LogViews[F], exists: Callable[[StateTopic, Deadline], bool]) -> None:
        self._views = views
        self._exists = exists
        self._seen = False

    def query(self, place: str, question: Callable[[F], T], deadline: Deadline) -> T:
        """Puts a question; see `LogViews.query`."""
        if self._is_there(deadline):
            return self._views.query(place, question, deadline)
        return question(self._views.empty(self._views.topic.partition_for(place)))

    def query_each(self, partitions: Iterable[int], question: Callable[[F], T], deadline: Deadline) -> list[T]:
        """Puts a question to several partitions, see `LogViews.query_partition`; the topic's existence is checked
        once."""
        if self._is_there(deadline):
            return [self._views.query_partition(each, question, deadline) for each in partitions]
        return [question(self._views.empty(each)) for each in partitions]

    def _is_there(self, deadline: Deadline) -> bool:
        self._seen = self._seen or self._exists(self._views.topic, deadline)
        return self._seen
