"""A replicated subscription is consumed in one cluster after the other, on three real brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Final

import pytest

import pulsar_on_kafka as pulsar
from tests.clusters.cluster import Cluster
from tests.clusters.conftest import HUB
from tests.steps import nothing_comes, receive
from tests.waiting import until

ALL: Final = ("west", "east", HUB)
SUBSCRIPTION: Final = "s"
EACH: Final = 60


@pytest.fixture
def three(west: Cluster, east: Cluster, hub: Cluster, namespace: str) -> Iterator[tuple[Cluster, Cluster, Cluster]]:
    """Each copies the namespace to both others, and tells them of replicated subscriptions."""
    hub.admin.create_namespace(namespace)
    clusters = (west, east, hub)
    with ExitStack() as stack:
        for each in clusters:
            each.admin.set_policy(namespace, "replication_clusters", list(ALL))
            stack.callback(each.admin.remove_policy, namespace, "replication_clusters")
        for each in clusters:
            stack.enter_context(each.replicating())
            stack.enter_context(each.syncing())
        yield clusters


def subscribe(cluster: Cluster, topic: str) -> pulsar.Consumer:
    return cluster.client.subscribe(
        topic, SUBSCRIPTION, pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest,
        replicate_subscription_state_enabled=True,
    )  # fmt: skip


def backlog(cluster: Cluster, topic: str) -> int:
    """-1 while the subscription is not there."""
    if topic not in cluster.admin.list_topics(topic.removeprefix("persistent://").rpartition("/")[0]):
        return -1
    if SUBSCRIPTION not in cluster.admin.list_subscriptions(topic):
        return -1
    return cluster.admin.subscription_stats(topic, SUBSCRIPTION).backlog


def is_left(cluster: Cluster, topic: str, count: int) -> bool:
    return backlog(cluster, topic) == count


def send(cluster: Cluster, topic: str, *numbers: int) -> None:
    producer = cluster.client.create_producer(topic)
    for number in numbers:
        producer.send(b"%d" % number)
    producer.close()


def bodies(messages: list[pulsar.Message]) -> list[int]:
    return sorted(int(message.data()) for message in messages)


def take(consumer: pulsar.Consumer, messages: list[pulsar.Message], keep: set[int]) -> None:
    """Acknowledge all but these, save, and go."""
    for message in messages:
        if int(message.data()) not in keep:
            consumer.acknowledge(message)
    consumer.flush()
    consumer.close()


def test_consumers_go_from_cluster_to_cluster(three: tuple[Cluster, Cluster, Cluster], topic: str) -> None:
    west, east, hub = three
    west.admin.create_topic(topic)
    west.admin.create_subscription(topic, SUBSCRIPTION, from_earliest=True)
    west.admin.replicate_subscription(topic, SUBSCRIPTION)
    send(west, topic, *range(EACH))
    kept = {3, 41}
    consumer = subscribe(west, topic)
    take(consumer, receive(consumer, EACH), kept)

    # Acknowledgements of one cluster take effect in both others.
    for each in (east, hub):
        until(partial(west.has_copied, topic, each), f"everything to be in {each.name}")
        until(partial(is_left, each, topic, len(kept)), f"acknowledgements to be in {each.name}")
        (compared,) = west.admin.compare_subscription(topic, SUBSCRIPTION, each.name)
        assert compared.equal
        assert each.admin.subscription_stats(topic, SUBSCRIPTION).replicated

    # The consumer moves to the east.
    consumer = subscribe(east, topic)
    again = receive(consumer, len(kept))
    assert bodies(again) == sorted(kept)
    assert nothing_comes(consumer)
    send(east, topic, *range(EACH, EACH + 5))
    kept = {41, EACH + 4}
    take(consumer, again + receive(consumer, 5), kept)

    # It moves to the third, which receives the acknowledgements of the east, and of the west before it.
    until(partial(is_left, hub, topic, len(kept)), "the east's acknowledgements to be in the third")
    consumer = subscribe(hub, topic)
    again = receive(consumer, len(kept))
    assert bodies(again) == sorted(kept)
    take(consumer, again, set())

    for each in (west, east):
        until(partial(is_left, each, topic, 0), f"nothing to be left in {each.name}")
    consumer = subscribe(west, topic)
    assert nothing_comes(consumer)
    consumer.close()
