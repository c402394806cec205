"""A generated producer name that was fenced is claimed by name, also where its topic does not deduplicate any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from pulsar_on_kafka.base.clock import ClusterClock, SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.producers.admission import AccessMode
from pulsar_on_kafka.broker.metadata.producers.fences import Fences
from pulsar_on_kafka.broker.metadata.producers.registry import ProducerRegistry
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.publishing.admission import Application
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.records.record_headers import PRODUCER
from tests.kafka_records import ReadRecord
from tests.memory_log import MemoryStateLog

NEVER = Deadline.never()
TOPIC = Topic(TopicName.parse("orders"), "orders", "id", 1, False, LedgerLayout(7))


class Offsets:
    def start_offsets(self, topic: str, partitions: Sequence[int], deadline: Deadline) -> Mapping[int, int]:
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, topic: str, partitions: Sequence[int], deadline: Deadline) -> Mapping[int, int]:
        return dict.fromkeys(partitions, 5)


def gateway(log: MemoryStateLog) -> ProducerRegistry:
    return ProducerRegistry(log, ClusterClock(SystemClock()), cast("Any", None), Offsets())


def application(**wants: Any) -> Application:
    return Application(schema=cast("Any", None), options=cast("Any", None), **wants)


@pytest.mark.parametrize(
    ("wants", "deduplicated", "fenced", "lasting"),
    [
        ({"name": "p"}, False, False, True),
        ({"name": None, "former_name": "p", "may_reopen": True}, True, False, True),
        ({"name": None, "former_name": "p", "may_reopen": True}, False, False, False),
        ({"name": None, "former_name": "p", "may_reopen": True}, False, True, True),
        ({"name": None, "may_reopen": True}, False, True, False),
        ({"name": None}, True, True, False),
    ],
)
def test_which_names_are_claimed(wants: dict[str, Any], deduplicated: bool, fenced: bool, lasting: bool) -> None:
    found = application(**wants).is_lasting(deduplicated=deduplicated, is_fenced=lambda name: fenced and name == "p")
    assert found is lasting


def test_what_a_fenced_name_stores_after_the_policy_was_taken_back_is_not_void() -> None:
    log = MemoryStateLog()
    first, second = gateway(log), gateway(log)
    shared = first.join(TOPIC, None, AccessMode.SHARED, NEVER)  # of programs that gave no name
    own = second.join(TOPIC, "p", AccessMode.SHARED, NEVER, own_epoch=True)
    own.leave(NEVER)
    again = first.join(TOPIC, "p", AccessMode.SHARED, NEVER, own_epoch=True)
    first.take_over_name(TOPIC, "p", again.epoch, [0], lambda partitions: dict.fromkeys(partitions, 5), NEVER)
    again.leave(NEVER)
    returning = application(name=None, former_name="p", may_reopen=True)

    def is_fenced(name: str) -> bool:
        return first.is_fenced(TOPIC, name, NEVER)

    name = "p" if returning.is_lasting(deduplicated=False, is_fenced=is_fenced) else None
    joined = first.join(TOPIC, name, AccessMode.SHARED, NEVER)
    fences = Fences(first.fences(TOPIC, 0, NEVER))
    epochs = [shared.epoch, joined.epoch]
    records = [ReadRecord(6 + i, [(PRODUCER, b"0:%d:p" % epoch)]) for i, epoch in enumerate(epochs)]
    assert fences.void_in([6, 7], records) == [0], "the shared epoch's record alone"
    first.close(NEVER)
    second.close(NEVER)
