"""Limits of producers and consumers across processes, for programs of the SDK."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from tests.steps import Unique

pytestmark = pytest.mark.kafka


def test_consumers_of_other_processes_count(
    admin: AdminClient, client: pulsar.Client, process: Callable[..., pulsar.Client], unique: Unique
) -> None:
    topic, other = unique(), process()
    admin.create_partitioned_topic(topic, 2)
    admin.set_policy(topic, "max_consumers_per_subscription", 2)
    mine = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    other.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    for third in (client, other):
        with pytest.raises(pulsar.ConsumerBusy, match="max consumers limit"):
            third.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    client.subscribe(topic, "another").close()
    mine.close()
    other.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)


def test_consumers_of_one_partition_do_not_count_on_another(
    admin: AdminClient, client: pulsar.Client, process: Callable[..., pulsar.Client], unique: Unique
) -> None:
    topic, other = unique(), process()
    admin.create_partitioned_topic(topic, 2)
    admin.set_policy(topic, "max_consumers_per_topic", 1)
    other.subscribe(f"{topic}-partition-0", "s", consumer_type=pulsar.ConsumerType.Shared)
    client.subscribe(f"{topic}-partition-1", "s", consumer_type=pulsar.ConsumerType.Shared)
    for subscription in ("s", "another"):
        with pytest.raises(pulsar.ConsumerBusy, match="max consumers limit"):
            client.subscribe(f"{topic}-partition-0", subscription, consumer_type=pulsar.ConsumerType.Shared)


def test_producers_of_other_processes_count(
    admin: AdminClient, client: pulsar.Client, process: Callable[..., pulsar.Client], unique: Unique
) -> None:
    topic, other = unique(), process()
    admin.create_topic(topic)
    admin.set_policy(topic, "max_producers_per_topic", 2)
    named = other.create_producer(topic, producer_name="named")
    client.create_producer(topic)
    for third in (client, other):
        with pytest.raises(pulsar.ProducerBusy, match="max producers limit"):
            third.create_producer(topic)
    named.close()
    other.create_producer(topic)
