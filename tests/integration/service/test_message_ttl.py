"""Message TTL on a real broker: what is too old is acknowledged on every subscription, whoever owns its cursor."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from tests.clocks import WRONG_CLOCKS
from tests.integration.command_line import CommandLine
from tests.steps import Unique, receive
from tests.waiting import until
from tests.watched_rounds import WatchedMaintenance

pytestmark = pytest.mark.kafka

PATIENCE_S = 60.0
HOUR_MS = 3_600_000


@pytest.fixture
def maintenance(admin: AdminClient) -> Iterator[WatchedMaintenance]:
    made = WatchedMaintenance(admin.node, every_s=0.5)
    yield made
    made.close(Deadline.after(PATIENCE_S))


def _publish(bootstrap: str, kafka_topic: str, partition: int, ages_ms: list[int]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for age_ms in ages_ms:
        stamp = int(time.time() * 1000) - age_ms
        producer.produce(kafka_topic, str(age_ms).encode(), partition=partition, timestamp=stamp)
    assert producer.flush(PATIENCE_S) == 0


@WRONG_CLOCKS
def test_what_is_too_old_is_acknowledged_everywhere(
    bootstrap: str, client: pulsar.Client, admin: AdminClient, maintenance: WatchedMaintenance, unique: Unique
) -> None:
    topic, untouched = unique(), unique("untouched")
    for name in (topic, untouched):
        admin.create_partitioned_topic(name, 2)
        for subscription in ("idle", "live"):
            admin.create_subscription(name, subscription, from_earliest=True)
        kafka_topic = admin.topic_stats(name).kafka_topic
        _publish(bootstrap, kafka_topic, 0, [HOUR_MS] * 5 + [0] * 3)
        _publish(bootstrap, kafka_topic, 1, [2 * HOUR_MS] * 4)
    consumer = client.subscribe(topic, "live", consumer_type=pulsar.ConsumerType.Shared)
    assert len(receive(consumer, 12)) == 12
    admin.set_policy(topic, "message_ttl_in_seconds", 600)

    def backlogs(name: str) -> dict[str, int]:
        return dict(admin.topic_stats(name).subscriptions)

    until(lambda: backlogs(topic) == {"idle": 3, "live": 3}, "what is too old to expire")
    assert maintenance.wait_for_round(Deadline.after(PATIENCE_S))
    assert backlogs(topic) == {"idle": 3, "live": 3}
    assert backlogs(untouched) == {"idle": 12, "live": 12}
    late = client.subscribe(topic, "idle", consumer_type=pulsar.ConsumerType.Shared)
    assert [message.data() for message in receive(late, 3)] == [b"0"] * 3


@pytest.mark.long
def test_a_namespace_gives_its_topics_a_ttl_which_a_topic_may_refuse(
    bootstrap: str, admin: AdminClient, maintenance: WatchedMaintenance, service_url: str, unique: Unique
) -> None:
    namespace = f"ttl/{unique()}"
    admin.create_namespace(namespace)
    expiring, keeping = f"persistent://{namespace}/expiring", f"persistent://{namespace}/keeping"
    for name in (expiring, keeping):
        admin.create_topic(name)
        admin.create_subscription(name, "s", from_earliest=True)
        _publish(bootstrap, admin.topic_stats(name).kafka_topic, 0, [HOUR_MS] * 4)
    CommandLine(service_url, "topics")("policy", "set", keeping, "message_ttl_in_seconds", "0")
    CommandLine(service_url, "namespaces")("policy", "set", namespace, "message_ttl_in_seconds", "60")
    until(lambda: admin.topic_stats(expiring).subscriptions == {"s": 0}, "everything to expire")
    assert maintenance.wait_for_round(Deadline.after(PATIENCE_S))
    assert admin.topic_stats(keeping).subscriptions == {"s": 4}
    assert "takes a whole number" in CommandLine(service_url, "topics").refused(
        "policy", "set", keeping, "message_ttl_in_seconds", "soon"
    )
