"""Cursors whose holes cannot be read: the partition stops alone and says so, and every tool gets out of it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

import layer as pulsar
from layer.admin import AdminClient
from layer.deadline import Deadline
from layer.kafka.records import CommittedOffset
from mapping.state_records.cursor_state import decode_commit_metadata, encode_commit_metadata
from tests.integration.command_line import CommandLine
from tests.integration.sdk_support import nothing_comes, payloads, receive, until

Unique = Callable[..., str]
EARLIEST = pulsar.InitialPosition.Earliest

pytestmark = pytest.mark.kafka


@pytest.fixture
def admin(service_url: str) -> Iterator[AdminClient]:
    options = {"client.rack": secrets.token_hex(4)}
    with AdminClient(service_url, operation_timeout_seconds=60, kafka_config=options) as made:
        yield made


@pytest.fixture
def client(service_url: str) -> Iterator[pulsar.Client]:
    made = pulsar.Client(service_url)
    yield made
    made.close()


def a_damaged_subscription(client: pulsar.Client, admin: AdminClient, topic: str) -> str:
    """Of two partitions with four messages each, of which the third one is acknowledged; partition 0 is damaged."""
    admin.create_partitioned_topic(topic, 2)
    admin.create_subscription(topic, "s", from_earliest=True)
    consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    for partition in range(2):
        producer = client.create_producer(f"{topic}-partition-{partition}")
        for number in range(4):
            producer.send(b"%d-%d" % (partition, number))
        producer.close()
    for message in receive(consumer, 8):
        if message.data().endswith(b"-2"):
            consumer.acknowledge(message)
    consumer.close()
    damage(admin, topic)
    return topic


def damage(admin: AdminClient, topic: str) -> None:
    """Has the commit refer to a marker that is not there."""
    subscription, deadline = admin._subscription(topic, "s", Deadline.after(20)), Deadline.after(20)
    group, kafka_topic = subscription.whole_group, subscription.topic.kafka_topic
    until(lambda: not admin.node.admin.describe_group(group, deadline).members, "the consumers to be gone")
    commit = admin.node.admin.committed(group, kafka_topic, [0], deadline)[0]
    metadata = decode_commit_metadata(commit.metadata)
    assert metadata is not None
    broken = encode_commit_metadata(replace(metadata, holes=None, marker_offset=10_000_000))
    admin.node.admin.alter_committed(group, kafka_topic, {0: CommittedOffset(commit.kafka_offset, broken)}, deadline)


def test_a_partition_stops_alone_until_the_subscription_is_reset(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = a_damaged_subscription(client, admin, unique())
    consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    got = receive(consumer, 3)
    assert sorted(payloads(got)) == ["1-0", "1-1", "1-3"]
    assert nothing_comes(consumer)
    for message in got:
        consumer.acknowledge(message)
    damaged, sound = admin.subscription_stats(topic, "s").partitions
    assert "is gone" in damaged.unreadable
    assert sound.unreadable == ""
    with pytest.raises(pulsar.PulsarException, match="reset the subscription"):
        admin.skip(topic, "s", 1)

    admin.reset_cursor(topic, "s", message_id=pulsar.MessageId.earliest)
    assert sorted(payloads(receive(consumer, 8))) == sorted(f"{p}-{n}" for p in range(2) for n in range(4))
    assert admin.unreadable_cursors(topic, "s") == {}
    consumer.close()


def test_it_can_be_left_without_consumers(
    client: pulsar.Client, admin: AdminClient, service_url: str, unique: Unique
) -> None:
    topic = a_damaged_subscription(client, admin, unique())
    assert list(admin.unreadable_cursors(topic, "s")) == [0]
    with pytest.raises(pulsar.PulsarException):
        admin.skip(topic, "s", 1)
    done = CommandLine(service_url, "subscriptions")("reset", topic, "-s", "s", "--message-id", "earliest", "--yes")
    assert "partition 0: what is acknowledged above mark-delete cannot be read and is forgotten" in done.stderr
    assert admin.unreadable_cursors(topic, "s") == {}
    assert admin.subscription_stats(topic, "s").backlog == 8

    damage(admin, topic)
    admin.clear_backlog(topic, "s")
    assert admin.subscription_stats(topic, "s").backlog == 0
    damage(admin, topic)
    admin.unsubscribe(topic, "s", force=True)
    assert admin.list_subscriptions(topic) == []


def test_its_topic_can_be_deleted(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    topic = a_damaged_subscription(client, admin, unique())
    admin.delete_topic(topic, force=True)
    assert f"persistent://public/default/{topic}" not in admin.list_topics()
