"""Delivery reports after a pause, while the claims cannot be read: all of a second wait once, within seconds."""

from __future__ import annotations

from typing import Any

from pulsar_on_kafka.base.clock import ClusterClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import ConnectFailed, LayerError
from pulsar_on_kafka.broker.metadata.producers.admission import AccessMode
from pulsar_on_kafka.broker.metadata.producers.registry import ProducerRegistry
from pulsar_on_kafka.broker.publishing.deduplication import Deduplication
from pulsar_on_kafka_mapping.state.state_topics import StateTopic
from tests.clocks import SetClock
from tests.memory_log import MemoryStateLog
from tests.producer_stage import OPENED

NEVER = Deadline.never()


class Log(MemoryStateLog):
    """A log whose broker may be away: each request then takes its deadline's time."""

    def __init__(self, clock: SetClock) -> None:
        super().__init__(clock)
        self.clock = clock
        self.is_away = False
        self.waits = 0

    def end_offset(self, topic: StateTopic, partition: int, deadline: Deadline) -> int:
        if self.is_away:
            self.waits += 1
            self.clock.seconds += deadline.remaining_s()
            raise ConnectFailed("no broker of `producers` answers")
        return super().end_offset(topic, partition, deadline)


def test_reports_of_many_producers_wait_once_where_the_claims_cannot_be_read() -> None:
    clock = SetClock(100.0)
    unused: Any = None
    log = Log(clock)
    registry = ProducerRegistry(log, ClusterClock(clock), unused, unused)
    producers = []
    for name in ("p", "q", "r"):
        membership = registry.join(OPENED, name, AccessMode.SHARED, NEVER, own_epoch=True)
        producers.append(Deduplication(OPENED, name, membership, unused, lasting=False))

    def reports() -> list[LayerError | None]:
        return [producer.why_void() for _ in range(300) for producer in producers]

    registry._keeper.close(NEVER)
    log.is_away = True
    assert reports() == [None] * 900
    clock.seconds += 60.0
    began_s = clock.seconds
    assert {str(failure) for failure in reports()} == {"no broker of `producers` answers"}
    assert (log.waits, clock.seconds - began_s <= 5.0) == (1, True)
    log.is_away = False
    clock.seconds += 2.0
    assert reports() == [None] * 900
