"""Producers of an incarnation that is deleted stop first; what they left under way is reported."""

from __future__ import annotations

import threading
from typing import Any, cast

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import ClusterClock, SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.producers.admission import AccessMode
from pulsar_on_kafka.broker.metadata.producers.registry import ProducerRegistry
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from tests.memory_log import MemoryStateLog

NEVER = Deadline.never()
DELETED = Topic(TopicName.parse("orders"), "orders", "id", 1, False, LedgerLayout(7))
OTHER = Topic(TopicName.parse("invoices"), "invoices", "id2", 1, False, LedgerLayout(8))


def _registry(log: MemoryStateLog) -> ProducerRegistry:
    unused = cast("Any", None)
    return ProducerRegistry(log, ClusterClock(SystemClock()), unused, unused)


def test_other_topics_producers_go_on_while_those_of_a_deleted_topic_stop() -> None:
    registry = _registry(MemoryStateLog())
    joined = registry.join(DELETED, "a", AccessMode.SHARED, NEVER)
    went_on: list[bool] = []

    def stop(reason: errors.Refused, deadline: Deadline) -> int:
        other = threading.Thread(target=lambda: registry.join(OTHER, "b", AccessMode.SHARED, NEVER), daemon=True)
        other.start()
        other.join(2.0)
        went_on.append(not other.is_alive())
        return 0

    joined.when_thrown_out(stop)
    assert registry.end_incarnation(str(DELETED.name), 7, NEVER) == set()
    assert went_on == [True]
    registry.close(NEVER)


def test_a_process_whose_records_are_still_under_way_is_named() -> None:
    log = MemoryStateLog()
    registry, other = _registry(log), _registry(log)
    joined = registry.join(DELETED, "a", AccessMode.SHARED, NEVER)
    joined.when_thrown_out(lambda reason, deadline: 1)
    assert len(registry.end_incarnation(str(DELETED.name), 7, Deadline.after(0.2))) == 1
    assert len(other.end_incarnation(str(DELETED.name), 7, Deadline.after(0.2))) == 1, "for other processes, too"
    registry.close(NEVER)
