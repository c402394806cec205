"""Replicated subscriptions that begin at different places, are deleted, or are replicated no more; two brokers."""

from __future__ import annotations

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.replication_state.progress_heads import Subject
from pulsar_on_kafka_mapping.state.clusters.subscription_progress import LEFT
from tests.clusters.cluster import PATIENCE_S, Cluster
from tests.integration.command_line import CommandLine
from tests.steps import receive, receive_rest
from tests.waiting import until
from tests.watched_rounds import WatchedSubscriptions


def subscribe(side: Cluster, topic: str, position: pulsar.InitialPosition) -> pulsar.Consumer:
    return side.client.subscribe(
        topic,
        "s",
        pulsar.ConsumerType.Shared,
        initial_position=position,
        replicate_subscription_state_enabled=True,
    )


def rounds(*roles: WatchedSubscriptions) -> None:
    """All that was told is heard, and what follows from it, too."""
    for _ in range(3):
        for role in roles:
            assert role.wait_for_round(Deadline.after(PATIENCE_S))


def everywhere(west: Cluster, east: Cluster, namespace: str) -> None:
    for each in (west, east):
        each.admin.set_policy(namespace, "replication_clusters", ["west", "east"])


@pytest.mark.long
def test_what_lies_below_a_beginning_is_acknowledged_by_nobody(
    west: Cluster, east: Cluster, namespace: str, topic: str
) -> None:
    everywhere(west, east, namespace)
    producer = west.client.create_producer(topic)
    for number in range(20):
        producer.send(b"%d" % number)
    with west.replicating(), east.replicating():
        until(lambda: west.has_copied(topic, to=east), "everything to be copied")
    earliest = subscribe(west, topic, pulsar.InitialPosition.Earliest)
    for message in receive(earliest, 20):
        if int(message.data()) < 3:
            earliest.acknowledge(message)
    earliest.close()
    subscribe(east, topic, pulsar.InitialPosition.Latest).close()
    with west.syncing() as from_west, east.syncing() as from_east:
        rounds(from_west, from_east)
        west.client.create_producer(topic).send(b"20")
        with west.replicating():
            until(lambda: west.has_copied(topic, to=east), "the last message to be copied")
        latest = subscribe(east, topic, pulsar.InitialPosition.Latest)
        for message in receive(latest, 1):
            latest.acknowledge(message)
        latest.close()
        rounds(from_west, from_east)
    again = subscribe(west, topic, pulsar.InitialPosition.Latest)
    assert sorted(int(message.data()) for message in receive_rest(again, least=17)) == list(range(3, 20))


def test_a_subscription_that_is_there_for_others_begins_where_they_do(
    west: Cluster, east: Cluster, namespace: str, topic: str
) -> None:
    """Also when what lies below is copied later."""
    everywhere(west, east, namespace)
    producer = west.client.create_producer(topic)
    for number in range(20):
        producer.send(b"%d" % number)
    subscribe(west, topic, pulsar.InitialPosition.Latest).close()
    producer.send(b"20")
    east.client.create_producer(topic).close()
    with west.syncing() as from_west, east.syncing() as from_east:
        until(lambda: "s" in east.admin.list_subscriptions(topic), "the subscription to be made")
        with west.replicating():
            until(lambda: west.has_copied(topic, to=east), "everything to be copied")
        rounds(from_west, from_east)
        consumer = subscribe(east, topic, pulsar.InitialPosition.Earliest)
        assert [message.data() for message in receive_rest(consumer, least=1)] == [b"20"]


@pytest.mark.long
def test_a_deleted_subscription_does_not_come_back(west: Cluster, east: Cluster, namespace: str, topic: str) -> None:
    everywhere(west, east, namespace)
    subscribe(west, topic, pulsar.InitialPosition.Earliest).close()
    east.client.create_producer(topic).close()
    with west.syncing() as from_west, east.syncing() as from_east:
        until(lambda: "s" in east.admin.list_subscriptions(topic), "the subscription to be made")
        rounds(from_west, from_east)
        east.admin.unsubscribe(topic, "s")
        rounds(from_west, from_east)
        assert east.admin.list_subscriptions(topic) == []
        assert west.admin.list_subscriptions(topic) == ["s"]
        west.admin.unsubscribe(topic, "s")
        rounds(from_west, from_east)
        assert west.admin.list_subscriptions(topic) == east.admin.list_subscriptions(topic) == []
        until(lambda: not _words(west, topic) and not _words(east, topic), "nothing to be on record")
        subscribe(west, topic, pulsar.InitialPosition.Earliest).close()  # another life of it
        until(lambda: "s" in east.admin.list_subscriptions(topic), "the subscription to be made anew")


@pytest.mark.long
def test_a_subscription_is_replicated_no_more(west: Cluster, east: Cluster, namespace: str, topic: str) -> None:
    everywhere(west, east, namespace)
    west_consumer = subscribe(west, topic, pulsar.InitialPosition.Earliest)
    east.client.create_producer(topic).close()
    with west.syncing() as from_west, east.syncing() as from_east:
        until(lambda: "s" in east.admin.list_subscriptions(topic), "the subscription to be made")
        rounds(from_west, from_east)
        CommandLine(east.url, "subscriptions")("replicate", topic, "-s", "s", "--off")
        rounds(from_west, from_east)
        assert not east.admin.subscription_stats(topic, "s").replicated
        assert any(subject.about == LEFT for subject in _words(east, topic))
        west.client.create_producer(topic).send(b"m")
        with west.replicating():
            until(lambda: west.has_copied(topic, to=east), "the message to be copied")
        for message in receive(west_consumer, 1):
            west_consumer.acknowledge(message)
        west_consumer.close()
        rounds(from_west, from_east)
        assert east.admin.subscription_stats(topic, "s").backlog == 1
        east.admin.replicate_subscription(topic, "s")
        until(lambda: east.admin.subscription_stats(topic, "s").backlog == 0, "what was acknowledged to be heard")


def _words(side: Cluster, topic: str) -> list[Subject]:
    found = side.admin.node.progress.heads.query(
        topic, lambda heads: list(heads.subjects()), Deadline.after(PATIENCE_S)
    )
    return [subject for subject, _ in found if subject.topic == topic]
