"""A terminated topic: its producers are fenced and no others admitted, whichever process dies in between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import pytest

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import ClusterClock, SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.producers.admission import AccessMode
from pulsar_on_kafka.broker.metadata.producers.registry import ProducerRegistry
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.records.epoch_fences import END_ORIGIN, Fence, take_over_marker
from tests.kafka_records import ReadRecord
from tests.memory_log import MemoryStateLog

NEVER = Deadline.never()
TOPIC = Topic(TopicName.parse("orders"), "orders", "id", 1, False, LedgerLayout(7))


class Log:
    """The topic's only partition."""

    def __init__(self) -> None:
        self.records: list[ReadRecord] = []

    def watermarks(self, _topic: str, _partition: int, _deadline: Deadline) -> tuple[int, int]:
        return 0, len(self.records)

    def start_offsets(self, _topic: str, partitions: Iterable[int], _deadline: Deadline) -> dict[int, int]:
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, _topic: str, partitions: Iterable[int], _deadline: Deadline) -> dict[int, int]:
        return dict.fromkeys(partitions, len(self.records))

    def read(self, _topic: str, _partition: int, start: int, end: int, _deadline: Deadline) -> Iterator[list[Any]]:
        yield self.records[start:end]

    def append(self, epoch: int, partitions: Sequence[int]) -> dict[int, int]:
        self.records.append(ReadRecord(len(self.records), take_over_marker(END_ORIGIN, epoch)))
        return dict.fromkeys(partitions, len(self.records) - 1)

    def append_and_die(self, epoch: int, partitions: Sequence[int]) -> dict[int, int]:
        self.append(epoch, partitions)
        raise ConnectionError


def _registry(state: MemoryStateLog, data: Log) -> ProducerRegistry:
    kafka = cast("Any", data)
    return ProducerRegistry(state, ClusterClock(SystemClock()), kafka, kafka)


def test_a_producer_is_told_why_and_no_other_one_is_admitted() -> None:
    state, data = MemoryStateLog(), Log()
    here, elsewhere = _registry(state, data), _registry(state, data)
    joined = here.join(TOPIC, "a", AccessMode.SHARED, NEVER)
    reasons: list[errors.Refused] = []

    def stop(reason: errors.Refused, _deadline: Deadline) -> int:
        reasons.append(reason)
        return 0

    joined.when_thrown_out(stop)
    assert here.terminate(TOPIC, data.append, NEVER) == {0: 0}
    assert [type(each) for each in reasons] == [errors.TopicIsTerminated]
    for mode in AccessMode:
        with pytest.raises(errors.TopicIsTerminated):
            elsewhere.join(TOPIC, "b", mode, NEVER)
    assert here.connected(TOPIC, NEVER) == []
    for registry in (here, elsewhere):
        registry.close(NEVER)


def test_records_under_way_hold_up_the_end_and_a_second_call_finds_it() -> None:
    state, data = MemoryStateLog(), Log()
    registry = _registry(state, data)
    registry.join(TOPIC, "a", AccessMode.SHARED, NEVER).when_thrown_out(lambda reason, deadline: 1)
    with pytest.raises(errors.DeadlineExceeded, match="try again"):
        registry.terminate(TOPIC, data.append, Deadline.after(0.2))
    assert data.records == []
    with pytest.raises(errors.TopicIsTerminated):
        registry.join(TOPIC, "b", AccessMode.SHARED, NEVER)
    registry.close(NEVER)


def test_the_first_marker_is_the_end_also_where_its_answer_was_lost() -> None:
    state, data = MemoryStateLog(), Log()
    registry = _registry(state, data)
    with pytest.raises(ConnectionError):
        registry.terminate(TOPIC, data.append_and_die, NEVER)
    data.records.append(ReadRecord(1, []))
    assert registry.terminate(TOPIC, data.append, NEVER) == {0: 0}
    assert registry.terminate(TOPIC, data.append, NEVER) == {0: 0}
    assert {fence._replace(epoch=0) for fence in registry.fences(TOPIC, 0, NEVER)} == {Fence(0, 0, END_ORIGIN)}


def test_the_next_incarnation_has_producers_again() -> None:
    state, data = MemoryStateLog(), Log()
    registry = _registry(state, data)
    registry.terminate(TOPIC, data.append, NEVER)
    registry.end_incarnation(str(TOPIC.name), 7, NEVER)
    again = Topic(TOPIC.name, "orders", "id2", 1, False, LedgerLayout(8))
    assert registry.join(again, "a", AccessMode.SHARED, NEVER).epoch > 0
    registry.close(NEVER)
