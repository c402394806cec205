"""A subscription that is replicated as Pulsar does it, by snapshots in the topic, on two real brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from tests.clusters.cluster import PATIENCE_S, Cluster
from tests.clusters.snapshots import bodies, sent, wait_for_snapshot
from tests.integration.command_line import CommandLine
from tests.steps import nothing_comes, receive, receive_rest
from tests.waiting import until

BOTH = ("west", "east")


@contextmanager
def exchanging(west: Cluster, east: Cluster) -> Iterator[None]:
    with ExitStack() as stack:
        for each in (west, east):
            stack.enter_context(each.replicating())
            stack.enter_context(each.syncing())
        yield


@pytest.fixture
def exchanged(west: Cluster, east: Cluster, namespace: str) -> Iterator[None]:
    """Topics of the namespace are copied both ways, and replicated subscriptions are seen to."""
    for each in (west, east):
        each.admin.set_policy(namespace, "replication_clusters", list(BOTH))
    with exchanging(west, east):
        yield


def subscribe(cluster: Cluster, topic: str) -> pulsar.Consumer:
    return cluster.client.subscribe(
        topic,
        "s",
        pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
        replicate_subscription_state_enabled=True,
    )


def is_there(cluster: Cluster, topic: str) -> bool:
    """The topic, and its subscription."""
    node, deadline = cluster.admin.node, Deadline.after(PATIENCE_S)
    found = node.topics.find(TopicName.parse(topic), deadline)
    return found is not None and node.subscriptions.find(found, "s", deadline) is not None


def mark_delete(cluster: Cluster, topic: str) -> int:
    if not is_there(cluster, topic):
        return -1
    return cluster.admin.subscription_stats(topic, "s").partitions[0].mark_delete


def backlog(cluster: Cluster, topic: str) -> int:
    return cluster.admin.subscription_stats(topic, "s").backlog


@pytest.mark.usefixtures("exchanged")
def test_mark_delete_moves_where_a_snapshot_says_and_single_acknowledgements_stay(
    west: Cluster, east: Cluster, topic: str
) -> None:
    west.admin.create_topic(topic)
    west.admin.create_subscription(topic, "s", from_earliest=True)
    west.admin.replicate_subscription(topic, "s", by="snapshots")
    consumer = subscribe(west, topic)
    wait_for_snapshot(west, topic, sent(west, topic, *range(50)))
    sent(west, topic, *range(50, 100))
    received = {int(message.data()): message for message in receive(consumer, 100)}
    for number in [*range(60), *range(70, 80)]:
        consumer.acknowledge(received[number])
    consumer.flush()
    until(lambda: west.has_copied(topic, to=east), "everything to be copied")
    until(lambda: mark_delete(east, topic) >= 49, "mark-delete to move in the east")
    assert east.admin.subscription_stats(topic, "s").replicated_by == "snapshots"
    there = subscribe(east, topic)
    # What lies behind the snapshot comes again there: mark-delete alone travels.
    seen = receive_rest(there)
    first = min(bodies(seen))
    assert 50 <= first <= 60  # a snapshot may come to be in the midst of messages
    assert bodies(seen) == list(range(first, 100))
    assert nothing_comes(consumer)
    # And back.
    sent(east, topic, 100)
    seen += receive(there, 1)
    for message in seen:
        there.acknowledge(message)
    there.flush()
    until(lambda: backlog(west, topic) == 0, "everything to be done with in the west")
    assert bodies(receive(consumer, 1)) == [100]  # it had been copied before it was acknowledged
    consumer.close()
    there.close()
    back = subscribe(west, topic)
    assert nothing_comes(back)
    back.close()
    # No marker is a message to anybody.
    for each in (west, east):
        reader = each.client.create_reader(topic, pulsar.MessageId.earliest)
        read = []
        while reader.has_message_available():
            read.append(reader.read_next(30_000))
        assert bodies(read) == list(range(101))
        reader.close()


@pytest.mark.usefixtures("exchanged")
def test_a_seek_is_local_and_what_was_kept_from_the_source_stays(west: Cluster, east: Cluster, topic: str) -> None:
    west.admin.create_topic(topic)
    west.admin.create_subscription(topic, "s", from_earliest=True)
    west.admin.replicate_subscription(topic, "s", by="snapshots")
    consumer = subscribe(west, topic)
    sent(west, topic, *range(20))
    until(lambda: is_there(east, topic), "the subscription to be made")
    sent(east, topic, 1000, disable_replication=True)
    for message in receive(consumer, 20):
        consumer.acknowledge(message)
    consumer.flush()
    sent(west, topic, 20)
    consumer.acknowledge(receive(consumer, 1)[0])
    consumer.flush()
    there = subscribe(east, topic)
    along = east.client.create_reader(topic, pulsar.MessageId.earliest)
    while along.read_next(30_000).data() != b"20":  # else there would be one message less for a reason of its own
        pass
    until(lambda: backlog(east, topic) == 1, "all that the west ever had to be done with")
    received = {int(message.data()): message for message in receive(there, 1)}
    while 1000 not in received:  # what was copied before it was acknowledged may come
        received.update({int(message.data()): message for message in receive(there, 1)})
    there.acknowledge(received[1000])
    there.seek(pulsar.MessageId.earliest)
    sent(west, topic, 21, 22)
    for message in receive(consumer, 2):
        consumer.acknowledge(message)
    consumer.flush()
    until(lambda: backlog(east, topic) == 22, "the west's word on the last two to be taken over")
    again = {int(message.data()) for message in receive(there, 22)}
    assert again >= {*range(21), 1000}
    consumer.close()
    there.close()


@pytest.mark.long
def test_services_that_begin_anew_go_on_from_what_the_logs_say(
    west: Cluster, east: Cluster, namespace: str, topic: str
) -> None:
    """Also where nobody consumes: markers behind the last message are nobody's backlog."""
    for each in (west, east):
        each.admin.set_policy(namespace, "replication_clusters", list(BOTH))
    west.admin.create_topic(topic)
    west.admin.create_subscription(topic, "s", from_earliest=True)
    west.admin.replicate_subscription(topic, "s", by="snapshots")
    for start in (0, 10):
        last = sent(west, topic, *range(start, start + 10))
        with exchanging(west, east):
            wait_for_snapshot(west, topic, last)
        # The update is told by another process than the one that had the snapshot made.
        consumer = subscribe(west, topic)
        for message in receive(consumer, 10):
            consumer.acknowledge(message)
        consumer.flush()
        consumer.close()
        with exchanging(west, east):
            until(lambda: is_there(east, topic) and backlog(east, topic) == 0, "the east to have done with everything")
            until(lambda: backlog(west, topic) == 0, "markers to be passed in the west")
    there = subscribe(east, topic)
    assert nothing_comes(there)
    there.close()


def test_how_a_subscription_is_replicated_is_said_by_name(west: Cluster, topic: str) -> None:
    west.client.create_producer(topic).close()
    west.admin.create_subscription(topic, "s")
    west.admin.create_subscription(topic, "pulsar.repl.east")
    command = CommandLine(west.url, "subscriptions")
    assert command.json("stats", topic, "-s", "s")["replicated_by"] == ""
    with pytest.raises(pulsar.InvalidConfiguration, match=r"by is 'magic', .* acknowledgements or snapshots"):
        west.admin.replicate_subscription(topic, "s", by="magic")
    assert "magic" in command("replicate", topic, "-s", "s", "--by", "magic", exits=2).stderr
    with pytest.raises(pulsar.NotAllowedError):
        west.admin.replicate_subscription(topic, "pulsar.repl.east")
    assert command.json("replicate", topic, "-s", "s", "--by", "snapshots")["replicated_by"] == "snapshots"
    subscribe(west, topic).close()  # a consumer's flag leaves the way as it is
    assert "replicated by" in command("stats", topic, "-s", "s").stdout
    assert command.json("stats", topic, "-s", "s")["replicated_by"] == "snapshots"
    command("replicate", topic, "-s", "s")
    assert west.admin.subscription_stats(topic, "s").replicated_by == "acknowledgements"
