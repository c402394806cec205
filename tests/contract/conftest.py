"""All state logs, and a state topic of each test's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from pulsar_on_kafka.base.clock import ClusterClock, SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.embedded import Broker
from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka.kafka.producer import KafkaProducer
from pulsar_on_kafka.kafka.reading.assigned_reader import AssignedReader
from pulsar_on_kafka.kafka.reading.fetcher import Fetcher
from pulsar_on_kafka.kafka.settings import KafkaSettings
from pulsar_on_kafka.statelog.api import StateLog
from pulsar_on_kafka.statelog.followed_log import FollowedLog
from pulsar_on_kafka.statelog.kafka_log import FETCH_QUEUE_KBYTES, KafkaStateLog
from pulsar_on_kafka_mapping.state.instances import Instance
from pulsar_on_kafka_mapping.state.state_topics import Cleanup, PartitionedBy, StateTopic
from tests.memory_log import MemoryStateLog
from tests.steps import Unique


class Connected(NamedTuple):
    """A state log on Kafka with the clients that it borrows."""

    log: KafkaStateLog
    producer: KafkaProducer
    admin: KafkaAdmin

    def close(self) -> None:
        self.log.close()
        self.producer.close(Deadline.after(5))
        self.admin.close()


class DayAhead(SystemClock):
    """Of a machine whose clock is wrong."""

    def now_ms(self) -> int:
        return super().now_ms() + 86_400_000


def connect(bootstrap: str, message_timeout_ms: int = 30_000) -> Connected:
    settings = KafkaSettings(bootstrap)
    config = settings.producer(compression="none", message_timeout_ms=message_timeout_ms, linger_ms=0)
    producer = KafkaProducer(config, served_by_waiting=True)
    admin = KafkaAdmin(settings.common())
    fetcher = Fetcher(settings.reader(fetch_queue_kbytes=FETCH_QUEUE_KBYTES))
    log = KafkaStateLog(fetcher, lambda: producer, admin, ClusterClock(DayAhead()), instance=Instance())
    return Connected(log, producer, admin)


def following(connected: Connected, bootstrap: str, *topics: StateTopic) -> FollowedLog:
    config = KafkaSettings(bootstrap).tail(client_id="tail", fetch_queue_kbytes=FETCH_QUEUE_KBYTES)
    return FollowedLog(connected.log, topics, AssignedReader(config, "tests"), SystemClock())


@pytest.fixture(scope="session")
def connected(kafka_broker: Broker) -> Iterator[Connected]:
    found = connect(kafka_broker.bootstrap)
    yield found
    found.close()


@pytest.fixture(
    params=[
        "memory",
        pytest.param("kafka", marks=pytest.mark.kafka),
        pytest.param("followed", marks=pytest.mark.kafka),
    ]
)
def log(request: pytest.FixtureRequest, state_topic: StateTopic) -> Iterator[StateLog]:
    if request.param == "memory":
        yield MemoryStateLog()
        return
    found: Connected = request.getfixturevalue("connected")
    if request.param == "kafka":
        yield found.log
        return
    log = following(found, request.getfixturevalue("kafka_broker").bootstrap, state_topic)
    yield log
    log.close()


@pytest.fixture
def state_topic(unique: Unique) -> StateTopic:
    return a_state_topic(unique("state"))


def a_state_topic(name: str, partitions: int = 2, **configs: str) -> StateTopic:
    given = {"cleanup.policy": "compact", "delete.retention.ms": "60000"}
    given |= {option.replace("_", "."): value for option, value in configs.items()}
    return StateTopic(name, partitions, Cleanup.COMPACT, PartitionedBy.TOPIC, "tests", "gone", given)
