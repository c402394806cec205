"""A broker that lets the first member of a group wait for others, as Kafka does by default (ours does not)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.embedded import BrokerOptions, EmbeddedBroker
from tests.brokers import available
from tests.steps import EARLIEST, Missing, Unique, nothing_comes, payloads, receive, send

DELAY_MS = 2000
"""Kafka's default is 3000."""
KINDS = tuple(pulsar.ConsumerType)

pytestmark = [pytest.mark.kafka, pytest.mark.long]


@pytest.fixture(scope="module")
def kafka_broker(missing: Missing) -> Iterator[EmbeddedBroker]:
    options = BrokerOptions(heap_mb=512, extra={"group.initial.rebalance.delay.ms": str(DELAY_MS)})
    with available(missing, EmbeddedBroker(options)) as broker:
        yield broker


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_what_is_acknowledged_after_the_wait_is_kept(
    client: pulsar.Client, unique: Unique, kind: pulsar.ConsumerType
) -> None:
    topic = unique()
    send(client, topic, 3)
    consumer = client.subscribe(topic, "s", kind, initial_position=EARLIEST)
    consumer.acknowledge(receive(consumer, 3)[0])
    consumer.close()
    again = client.subscribe(topic, "s", kind)
    assert payloads(receive(again, 2)) == ["1", "2"]
    assert nothing_comes(again)


def test_unsubscribing_while_the_group_is_joined_leaves_nothing(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    send(client, topic, 2)
    client.subscribe(topic, "s", pulsar.ConsumerType.Shared, initial_position=EARLIEST).unsubscribe()
    assert admin.list_subscriptions(topic) == []
    again = client.subscribe(topic, "s", pulsar.ConsumerType.Failover, initial_position=EARLIEST)
    assert payloads(receive(again, 2)) == ["0", "1"]


def test_closing_while_the_group_is_joined_frees_the_subscription(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    client.subscribe(topic, "s").close()
    send(client, topic, 1)
    assert payloads(receive(client.subscribe(topic, "s"), 1)) == ["0"]


def test_a_non_persistent_topic_gives_what_was_sent_while_the_group_was_joined(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = f"non-persistent://public/default/{unique()}"
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    assert admin.list_subscriptions(topic) == ["s"]
    send(client, topic, 2)
    assert payloads(receive(consumer, 2)) == ["0", "1"]
