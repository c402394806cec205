"""Looking at transactions where there never were any."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.transactions.records.views import LookingOnly, TransactionViews
from pulsar_on_kafka_mapping.state.state_topics import StateTopic
from tests.memory_log import MemoryStateLog

NEVER = Deadline.never()


class Cluster:
    def __init__(self) -> None:
        self.there = False
        self.asked: list[StateTopic] = []

    def has_state_topic(self, topic: StateTopic, deadline: Deadline) -> bool:
        self.asked.append(topic)
        return self.there


class NoReading(MemoryStateLog):
    """A log in memory that must not be read: reading makes a topic."""

    def end_offset(self, topic: StateTopic, partition: int, deadline: Deadline) -> int:
        pytest.fail(f"{topic.name} was read")


def test_what_is_not_there_is_empty_and_not_read() -> None:
    clock = SystemClock()
    looking = LookingOnly(TransactionViews(NoReading(clock), clock), Cluster().has_state_topic)
    assert looking.coordinators.query_each([5], lambda state: (state.coordinator, state.unfinished), NEVER) == [(5, 0)]
    assert looking.coordinators.query_each(range(16), lambda state: state.coordinator, NEVER) == list(range(16))
    assert looking.buffers.query("persistent://a/b/c", lambda entries: entries.count(), NEVER) == 0
    assert looking.pending_acks.query("persistent://a/b/c", lambda log: log.count(), NEVER) == 0


def test_what_is_there_is_read_and_not_asked_for_twice() -> None:
    clock, cluster = SystemClock(), Cluster()
    looking = LookingOnly(TransactionViews(MemoryStateLog(clock), clock), cluster.has_state_topic)
    looking.coordinators.query_each([0], lambda state: None, NEVER)
    cluster.there = True
    for _ in range(3):
        looking.coordinators.query_each(range(16), lambda state: None, NEVER)
    assert len(cluster.asked) == 2
