"""The cluster's policies are read once a second at most, by those who open topics."""

from __future__ import annotations

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.entities import Entities
from pulsar_on_kafka.broker.metadata.namespaces import CLUSTER_POLICIES_S, NAMESPACE_KEYS, Namespaces
from pulsar_on_kafka.broker.metadata.policies import CLUSTER
from pulsar_on_kafka_mapping.state.state_topics import NAMESPACES
from tests.memory_log import MemoryStateLog
from tests.simulation.turns import ManualClock

NEVER = Deadline.never()
NAMES = [f"acme/n{number}" for number in range(99)]
IN_ANOTHER_PARTITION = next(
    name for name in NAMES if NAMESPACES.partition_for(name) != NAMESPACES.partition_for(CLUSTER)
)


def test_topics_that_are_opened_one_after_the_other_read_them_once_a_second() -> None:
    clock, asked = ManualClock(), list[int]()

    class Log(MemoryStateLog):
        def end_offset(self, topic: object, partition: int, deadline: Deadline) -> int:
            asked.append(partition)
            return super().end_offset(topic, partition, deadline)  # type: ignore[arg-type]

    log = Log(clock)
    namespaces = Namespaces(Entities(log, NAMESPACES, NAMESPACE_KEYS, clock), clock)
    namespaces.create(IN_ANOTHER_PARTITION, NEVER)
    elsewhere = Namespaces(Entities(log, NAMESPACES, NAMESPACE_KEYS, clock), clock)
    elsewhere.change_policies(CLUSTER, lambda _: {"deduplication": True}, NEVER)
    asked.clear()
    for _ in range(10):
        assert namespaces.policies_for_topics(IN_ANOTHER_PARTITION, NEVER) == {"deduplication": True}
    assert asked.count(NAMESPACES.partition_for(CLUSTER)) == 1
    assert asked.count(NAMESPACES.partition_for(IN_ANOTHER_PARTITION)) == 10
    elsewhere.change_policies(CLUSTER, lambda _: {}, NEVER)
    clock.seconds += int(CLUSTER_POLICIES_S)
    assert namespaces.policies_for_topics(IN_ANOTHER_PARTITION, NEVER) == {}
    namespaces.change_policies(CLUSTER, lambda _: {"deduplication": False}, NEVER)
    assert namespaces.policies_for_topics(IN_ANOTHER_PARTITION, NEVER) == {"deduplication": False}, "its own change"
