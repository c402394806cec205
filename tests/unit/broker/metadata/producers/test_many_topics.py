"""The claims of a process with producers of many topics: requests per partition of `producers`, not per topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from pulsar_on_kafka.base.clock import ClusterClock, SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import AppendFailed, ProducerExcluded
from pulsar_on_kafka.broker.metadata.producers.admission import AccessMode
from pulsar_on_kafka.broker.metadata.producers.membership import Membership
from pulsar_on_kafka.broker.metadata.producers.registry import ProducerRegistry
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.state_topics import PRODUCERS, StateTopic
from tests.memory_log import MemoryStateLog

NEVER = Deadline.never()
TOPICS = [Topic(TopicName.parse(f"t{i}"), f"t{i}", f"id{i}", 1, False, LedgerLayout(i + 1)) for i in range(200)]


class CountingLog(MemoryStateLog):
    def __init__(self) -> None:
        super().__init__()
        self.appends: list[int] = []
        self.ends = 0
        self.broken: int | None = None

    def append_many(
        self, topic: StateTopic, partition: int, records: Sequence[tuple[bytes, bytes | None]], deadline: Deadline
    ) -> list[int]:
        if partition == self.broken:
            raise AppendFailed(f"partition {partition} has no leader")
        self.appends.append(len(records))
        return super().append_many(topic, partition, records, deadline)

    def end_offset(self, topic: StateTopic, partition: int, deadline: Deadline) -> int:
        self.ends += 1
        return super().end_offset(topic, partition, deadline)


def _registry(log: MemoryStateLog) -> ProducerRegistry:
    unused = cast("Any", None)
    registry = ProducerRegistry(log, ClusterClock(SystemClock()), unused, unused)
    registry._keeper = cast("Any", type("Still", (), {"start": lambda _: None, "wake": lambda _: None})())
    return registry


def _joined(registry: ProducerRegistry) -> list[Membership]:
    return [registry.join(topic, None, AccessMode.SHARED, NEVER) for topic in TOPICS]


def test_heartbeats_of_a_partition_are_one_append() -> None:
    log = CountingLog()
    registry = _registry(log)
    joined = _joined(registry)
    log.appends.clear()
    registry._keep_alive([*(str(topic.name) for topic in TOPICS), "left"])
    assert len(log.appends) == PRODUCERS.partitions
    assert sum(log.appends) == len(TOPICS)
    assert all(membership.is_sure() for membership in joined)


def test_a_partition_that_fails_holds_up_no_other_one() -> None:
    log = CountingLog()
    registry = _registry(log)
    _joined(registry)
    log.appends.clear()
    log.broken = PRODUCERS.partition_for(str(TOPICS[0].name))
    with pytest.raises(AppendFailed, match="no leader"):
        registry._keep_alive([str(topic.name) for topic in TOPICS])
    assert len(log.appends) == PRODUCERS.partitions - 1


def test_one_admission_reads_the_heartbeat_of_another_session_once() -> None:
    log = CountingLog()
    other, registry = _registry(log), _registry(log)
    for number in range(50):
        other.join(TOPICS[0], f"p{number}", AccessMode.SHARED, NEVER)
    registry._clock = cast("Any", _Later(registry._clock))
    log.ends = 0
    registry.join(TOPICS[0], "mine", AccessMode.SHARED, NEVER)
    assert log.ends < 10


class _Later:
    """A clock after the deadlines of all claims, so that only a heartbeat could keep them valid."""

    def __init__(self, clock: Any) -> None:
        self._clock = clock

    def now_ms(self) -> int:
        return int(self._clock.now_ms()) + 20_000

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)


def test_a_look_sees_a_producer_fall_after_looks_that_found_it_standing() -> None:
    log = CountingLog()
    registry, other = _registry(log), _registry(log)
    joined = registry.join(TOPICS[0], "p", AccessMode.SHARED, NEVER)
    beside = registry.join(TOPICS[1], "p", AccessMode.SHARED, NEVER)
    told: list[Exception] = []

    def stop(reason: Exception, deadline: Deadline) -> int:
        told.append(reason)
        return 0

    joined.when_thrown_out(stop)
    beside.when_thrown_out(lambda reason, deadline: pytest.fail("another topic's producer was fenced"))
    registry._look(NEVER)
    registry._look(NEVER)
    assert told == []
    other.dismiss_session(str(TOPICS[0].name), registry._session, NEVER)
    registry._look(NEVER)
    assert [type(each) for each in told] == [ProducerExcluded]
    again = registry.join(TOPICS[0], "p", AccessMode.SHARED, NEVER)
    registry._look(NEVER)
    assert again.stands(registry.claims_of(str(TOPICS[0].name), NEVER))
