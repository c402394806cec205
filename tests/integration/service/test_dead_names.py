"""Names of topics and subscriptions that are gone leave nothing in the state topics, and come back as new ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.entities import Versioned
from pulsar_on_kafka.embedded import EmbeddedBroker
from pulsar_on_kafka.service.housekeeping.cursors import CursorHousekeeping
from pulsar_on_kafka.service.housekeeping.deleted_names import DeadNames
from pulsar_on_kafka.service.housekeeping.past_incarnations import DeadLives, HeartbeatHousekeeping
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.state_topics import CURSORS, TOPICS
from tests.steps import payloads, receive, send

pytestmark = pytest.mark.kafka

ORDERS = "persistent://public/default/orders"
BILLS = "persistent://public/default/bills"
AUDIT = "persistent://public/default/audit"


def _soon() -> Deadline:
    return Deadline.after(60)


@pytest.fixture
def node(own_broker: EmbeddedBroker) -> Iterator[Any]:
    with AdminClient(f"kafka://{own_broker.bootstrap}") as admin:
        yield admin.node


def _dead_names(node: Any, **late: int) -> DeadNames:
    return DeadNames(
        node.log, node.clock, node.topics.records, node.subscriptions, node.registrations, node.producers,
        node.has_state_topic, **late,
    )  # fmt: skip


def _kept_house(node: Any) -> int:
    """A day later: whatever is there is old."""
    log, clock = node.log, node.clock
    late = {"kept_ms": -60_000}
    work = (
        CursorHousekeeping(log, clock, node.topics, node.subscriptions, node.admin, **late),
        HeartbeatHousekeeping(log, clock, node.producers, **late),
        DeadLives(log, clock, node.topics, **late),
        _dead_names(node, **late),
    )
    return sum(each.run(partition, _soon()) for partition in range(CURSORS.partitions) for each in work)


def _on_record(node: Any) -> tuple[set[str], set[tuple[str, str]]]:
    topics = {name for number in range(TOPICS.partitions) for name in node.topics.records.on_record(number, _soon())}
    names = {name for number in range(TOPICS.partitions) for name in node.subscriptions.on_record(number, _soon())}
    return topics, names


def _claims(node: Any, topic: str) -> Versioned | None:
    found: Versioned | None = node.producers._entities.read(topic, _soon())
    return found


def test_names_that_are_gone_leave_nothing_and_come_back_as_new(own_broker: EmbeddedBroker, node: Any) -> None:
    client = pulsar.Client(f"kafka://{own_broker.bootstrap}", stand_in=False)
    with closing(client), AdminClient(f"kafka://{own_broker.bootstrap}") as admin:
        for topic in (ORDERS, BILLS, AUDIT):
            consumer = client.subscribe(topic, "worker", consumer_type=pulsar.ConsumerType.Shared)
            send(client, topic, 20)
            for message in receive(consumer, 20)[::2]:
                consumer.acknowledge(message, wait=True)
            consumer.close()
        exclusive = client.create_producer(BILLS, access_mode=pulsar.ProducerAccessMode.Exclusive)
        exclusive.send(b"mine")
        exclusive.close()
        worker = node.subscriptions.find(node.topics.find(TopicName.parse(ORDERS), _soon()), "worker", _soon())
        first = worker.topic.layout.incarnation
        admin.create_subscription(AUDIT, "another")
        admin.unsubscribe(AUDIT, "another")
        admin.delete_topic(ORDERS, force=True)
        admin.delete_topic(BILLS, force=True)
        before = _on_record(node)
        assert before == (
            {ORDERS, BILLS, AUDIT},
            {(ORDERS, "worker"), (BILLS, "worker"), (AUDIT, "worker"), (AUDIT, "another")},
        )
        young = _dead_names(node)
        assert sum(young.run(partition, _soon()) for partition in range(CURSORS.partitions)) == 0
        assert _on_record(node) == before
        _kept_house(node)
        assert _on_record(node) == ({AUDIT}, {(AUDIT, "worker")})
        assert _claims(node, AUDIT) is not None, "it lives"
        assert _claims(node, ORDERS) is None
        assert _claims(node, BILLS) is not None, "an epoch was given, and a higher one must follow"
        assert _kept_house(node) == 0

        node.subscriptions.release(worker, "whoever closes late", _soon())
        node.subscriptions.remember(worker, {"said": "late"}, True, _soon())
        node.subscriptions.delete(worker, _soon())
        node.producers.dismiss_session(ORDERS, "dead", _soon())
        assert _on_record(node) == ({AUDIT}, {(AUDIT, "worker")})

        consumer = client.subscribe(
            ORDERS, "worker", pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest
        )
        send(client, ORDERS, 3, start=100)
        assert payloads(receive(consumer, 3)) == ["100", "101", "102"]
        again = node.topics.find(TopicName.parse(ORDERS), _soon())
        assert again.layout.incarnation > first
        assert payloads(receive(client.subscribe(AUDIT, "worker", pulsar.ConsumerType.Shared), 10)) == [
            str(number) for number in range(1, 20, 2)
        ]


def test_registrations_without_consumers_or_of_a_deleted_topic_leave_nothing(
    own_broker: EmbeddedBroker, node: Any
) -> None:
    with AdminClient(f"kafka://{own_broker.bootstrap}") as admin:
        for topic in (ORDERS, BILLS):
            admin.create_partitioned_topic(topic, 2)
        orders, bills = (node.topics.find(TopicName.parse(topic), _soon()) for topic in (ORDERS, BILLS))
        node.registrations.add(orders, "kept", ["a"], _soon())
        node.registrations.add(orders, "left", ["a"], _soon())
        assert node.registrations.remove(orders, "left", ["a"], _soon()).names == ()
        node.registrations.add(bills, "kept", ["a"], _soon())
        admin.delete_topic(BILLS, force=True)
        _kept_house(node)
        left = {name for number in range(TOPICS.partitions) for name in node.registrations.on_record(number, _soon())}
        assert left == {(ORDERS, "kept")}
        assert node.registrations.add(orders, "left", ["b"], _soon()).names == ("b",)
        assert _on_record(node)[0] == {ORDERS}
