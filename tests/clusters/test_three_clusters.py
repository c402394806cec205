"""Subscriptions that are replicated in both ways go from cluster to cluster, on three real brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Final

import pytest

import pulsar_on_kafka as pulsar
from tests.clusters.cluster import Cluster
from tests.clusters.conftest import HUB
from tests.clusters.snapshots import bodies, sent, wait_for_snapshot
from tests.steps import nothing_comes, receive, receive_rest
from tests.waiting import until

ALL: Final = ("west", "east", HUB)
ACKS, SNAPSHOTS = "by-acknowledgements", "by-snapshots"
EACH = 30
"""Messages before the snapshot that has to be there, and behind it."""


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


def subscribe(cluster: Cluster, topic: str, name: str) -> pulsar.Consumer:
    return cluster.client.subscribe(
        topic, name, pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest,
        replicate_subscription_state_enabled=True,
    )  # fmt: skip


def backlog(cluster: Cluster, topic: str, name: str) -> int:
    """-1 while the subscription is not there."""
    if topic not in cluster.admin.list_topics(topic.removeprefix("persistent://").rpartition("/")[0]):
        return -1
    if name not in cluster.admin.list_subscriptions(topic):
        return -1
    return cluster.admin.subscription_stats(topic, name).backlog


def is_left(cluster: Cluster, topic: str, name: str, count: int) -> bool:
    return backlog(cluster, topic, name) == count


def has_passed(cluster: Cluster, topic: str, offset: int) -> bool:
    """Whether mark-delete of the subscription by snapshots lies there."""
    if backlog(cluster, topic, SNAPSHOTS) < 0:
        return False
    return cluster.admin.subscription_stats(topic, SNAPSHOTS).partitions[0].mark_delete >= offset


def place_of(cluster: Cluster, topic: str, number: int) -> int:
    """The offset there of a message, which is there."""
    reader = cluster.client.create_reader(topic, pulsar.MessageId.earliest)
    while int((message := reader.read_next(30_000)).data()) != number:
        pass
    reader.close()
    return message.offset


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
    for name in (ACKS, SNAPSHOTS):
        west.admin.create_subscription(topic, name, from_earliest=True)
    west.admin.replicate_subscription(topic, ACKS)
    west.admin.replicate_subscription(topic, SNAPSHOTS, by="snapshots")
    consumers = {name: subscribe(west, topic, name) for name in (ACKS, SNAPSHOTS)}
    wait_for_snapshot(west, topic, sent(west, topic, *range(EACH)))  # it takes answers of both others
    sent(west, topic, *range(EACH, 2 * EACH))
    kept = {3, 41}
    behind = 2 * EACH - 10
    take(consumers[ACKS], receive(consumers[ACKS], 2 * EACH), kept)
    take(consumers[SNAPSHOTS], receive(consumers[SNAPSHOTS], 2 * EACH), {*range(behind, 2 * EACH)})

    # What was acknowledged in one cluster is acknowledged in both others.
    for each in (east, hub):
        until(partial(west.has_copied, topic, each), f"everything to be in {each.name}")
        until(partial(is_left, each, topic, ACKS, len(kept)), f"acknowledgements to be in {each.name}")
        (compared,) = west.admin.compare_subscription(topic, ACKS, each.name)
        assert compared.equal
        before = place_of(each, topic, EACH - 1)
        until(partial(has_passed, each, topic, before), f"mark-delete to pass the snapshot in {each.name}")
        assert each.admin.subscription_stats(topic, SNAPSHOTS).replicated_by == "snapshots"

    # On to the east: by acknowledgements what was in flight, by snapshots what lies behind the last one.
    consumer = subscribe(east, topic, ACKS)
    again = receive(consumer, len(kept))
    assert bodies(again) == sorted(kept)
    assert nothing_comes(consumer)
    sent(east, topic, *range(2 * EACH, 2 * EACH + 5))
    kept = {41, 2 * EACH + 4}
    take(consumer, again + receive(consumer, 5), kept)
    consumer = subscribe(east, topic, SNAPSHOTS)
    seen = receive_rest(consumer, 5_000)
    first = min(bodies(seen))
    assert EACH <= first <= behind
    assert bodies(seen) == list(range(first, 2 * EACH + 5))
    take(consumer, seen, set())

    # On to the third, which hears of the east's, and of the west's before it.
    until(partial(is_left, hub, topic, ACKS, len(kept)), "the east's acknowledgements to be in the third")
    until(partial(is_left, hub, topic, SNAPSHOTS, 0), "mark-delete to pass the east's last snapshot in the third")
    consumer = subscribe(hub, topic, ACKS)
    again = receive(consumer, len(kept))
    assert bodies(again) == sorted(kept)
    take(consumer, again, set())
    consumer = subscribe(hub, topic, SNAPSHOTS)
    assert nothing_comes(consumer)
    consumer.close()

    # And where they began nothing is left.
    for each in (west, east):
        for name in (ACKS, SNAPSHOTS):
            until(partial(is_left, each, topic, name, 0), f"nothing to be left in {each.name}")
    consumer = subscribe(west, topic, ACKS)
    assert nothing_comes(consumer)
    consumer.close()
