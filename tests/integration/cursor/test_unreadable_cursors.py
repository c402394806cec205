"""Cursors whose holes cannot be read: the partition stops alone and says so, and every tool gets out of it."""

from __future__ import annotations

import base64
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pytest
from confluent_kafka import OFFSET_END, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient as KafkaAdminClient
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.embedded import EmbeddedBroker
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.cursors.cursor_state import (
    METADATA_PREFIX,
    CommitMetadata,
    decode_commit_metadata,
    encode_commit_metadata,
)
from pulsar_on_kafka_mapping.state.instances import Instance
from pulsar_on_kafka_mapping.state.state_topics import CURSORS
from tests.integration.command_line import CommandLine
from tests.integration.kafkas_tools import reset_offsets
from tests.steps import EARLIEST, SHARED, Unique, nothing_comes, payloads, receive, send, send_fast
from tests.waiting import until

pytestmark = pytest.mark.kafka


@pytest.fixture
def admin(admin_elsewhere: AdminClient) -> AdminClient:
    return admin_elsewhere


Damage = Callable[[CommitMetadata], str]


def refers_to_nothing(metadata: CommitMetadata) -> str:
    """To a marker that is not there."""
    return encode_commit_metadata(replace(metadata, holes=None, marker_offset=10_000_000))


def no_text_of_ours(_metadata: CommitMetadata) -> str:
    return f"{METADATA_PREFIX}\x01\u20ac"


def cut_short(metadata: CommitMetadata) -> str:
    return (
        METADATA_PREFIX
        + base64.b85encode(base64.b85decode(encode_commit_metadata(metadata)[len(METADATA_PREFIX) :])[:-3]).decode()
    )


def of_a_later_version(metadata: CommitMetadata) -> str:
    raw = bytearray(base64.b85decode(encode_commit_metadata(metadata)[len(METADATA_PREFIX) :]))
    return METADATA_PREFIX + base64.b85encode(bytes(raw) + b"what is this").decode()


every_damage = pytest.mark.parametrize("broken", [refers_to_nothing, no_text_of_ours, cut_short, of_a_later_version])


def a_damaged_subscription(client: pulsar.Client, admin: AdminClient, topic: str, broken: Damage) -> str:
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
    damage(admin, topic, broken)
    return topic


def damage(admin: AdminClient, topic: str, broken: Damage) -> None:
    """Of what is committed for partition 0."""
    subscription, deadline = admin._subscription(topic, "s", Deadline.after(20)), Deadline.after(20)
    group, kafka_topic = subscription.whole_group, subscription.topic.kafka_topic
    until(lambda: not admin.node.admin.describe_group(group, deadline).members, "the consumers to be gone")
    commit = admin.node.admin.committed(group, kafka_topic, [0], deadline)[0]
    metadata = decode_commit_metadata(commit.metadata)
    assert metadata is not None
    damaged = CommittedOffset(commit.kafka_offset, broken(metadata))
    reset_offsets(admin.node.settings.bootstrap, group, kafka_topic, {0: damaged})


@every_damage
def test_a_partition_stops_alone_until_the_subscription_is_reset(
    client: pulsar.Client, admin: AdminClient, unique: Unique, broken: Damage
) -> None:
    topic = a_damaged_subscription(client, admin, unique(), broken)
    consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    got = receive(consumer, 3)
    assert sorted(payloads(got)) == ["1-0", "1-1", "1-3"]
    assert nothing_comes(consumer)
    for message in got:
        consumer.acknowledge(message)
    damaged, sound = admin.subscription_stats(topic, "s").partitions
    assert damaged.unreadable
    assert sound.unreadable == ""
    with pytest.raises(pulsar.PulsarException, match="reset the subscription"):
        admin.skip(topic, "s", 1)

    admin.reset_cursor(topic, "s", message_id=pulsar.MessageId.earliest)
    assert sorted(payloads(receive(consumer, 8))) == sorted(f"{p}-{n}" for p in range(2) for n in range(4))
    assert admin.unreadable_cursors(topic, "s") == {}
    consumer.close()


@every_damage
def test_it_can_be_left_without_consumers(
    client: pulsar.Client, admin: AdminClient, service_url: str, unique: Unique, broken: Damage
) -> None:
    topic = a_damaged_subscription(client, admin, unique(), broken)
    assert list(admin.unreadable_cursors(topic, "s")) == [0]
    with pytest.raises(pulsar.PulsarException):
        admin.skip(topic, "s", 1)
    done = CommandLine(service_url, "subscriptions")("reset", topic, "-s", "s", "--message-id", "earliest", "--yes")
    assert "partition 0: what is acknowledged above mark-delete cannot be read and is forgotten" in done.stderr
    assert admin.unreadable_cursors(topic, "s") == {}
    assert admin.subscription_stats(topic, "s").backlog == 8

    damage(admin, topic, broken)
    admin.clear_backlog(topic, "s")
    assert admin.subscription_stats(topic, "s").backlog == 0
    damage(admin, topic, broken)
    admin.unsubscribe(topic, "s", force=True)
    assert admin.list_subscriptions(topic) == []


@every_damage
def test_its_topic_can_be_deleted(client: pulsar.Client, admin: AdminClient, unique: Unique, broken: Damage) -> None:
    topic = a_damaged_subscription(client, admin, unique(), broken)
    admin.delete_topic(topic, force=True)
    assert f"persistent://public/default/{topic}" not in admin.list_topics()


@pytest.mark.timeout(170)
def test_segments_that_go_under_a_living_owner_stop_their_partition_alone(own_broker: EmbeddedBroker) -> None:
    """100,000 entries in 4,000 ledgers take more than the 1 MiB that is allowed, so some are read back."""
    url, count = f"kafka://{own_broker.bootstrap}", 100_000
    client = pulsar.Client(url, cursor_memory_limit_bytes=1 << 20)
    with closing(client), AdminClient(url) as admin:
        name = str(TopicName.parse("orders"))
        admin.node.topics.create(TopicName.parse(name), 2, Deadline.after(20), entries_per_ledger=25)
        consumer = client.subscribe(
            name, "s", SHARED, initial_position=EARLIEST, receiver_queue_size=20_000, consumer_name="the owner"
        )
        send_fast(client, f"{name}-partition-0", count)
        held = []
        for number in range(count):
            message = consumer.receive(20_000)
            if number % 3:
                consumer.acknowledge(message)
            else:
                held.append(message)
        (member,) = client._session.node().memberships.members().values()

        def in_memory() -> int:
            consumer.flush(60_000)
            return next(each for each in member.stats(Deadline.after(20)) if each.partition == 0).ledgers_in_memory

        until(lambda: in_memory() < 3_800, "ledgers to leave memory")
        lose_segments(own_broker.bootstrap, name)

        for message in held[1:]:
            consumer.acknowledge(message)
        until(lambda: admin.unreadable_cursors(name, "s"), "the partition to stop")
        send(client, f"{name}-partition-1", 3)
        assert payloads(receive(consumer, 3)) == ["0", "1", "2"]
        damaged, sound = admin.subscription_stats(name, "s").partitions
        assert "is gone" in damaged.unreadable
        assert sound.unreadable == ""

        admin.reset_cursor(name, "s", message_id=pulsar.MessageId.latest)
        assert admin.unreadable_cursors(name, "s") == {}
        send(client, f"{name}-partition-0", 2, start=10)
        assert payloads(receive(consumer, 2)) == ["10", "11"]
        consumer.close()


def lose_segments(bootstrap: str, topic: str) -> None:
    """Lose segments as nobody should: by a deletion in a compacted topic."""
    admin = KafkaAdminClient({"bootstrap.servers": bootstrap})
    partition = TopicPartition(Instance().state_topic(CURSORS), CURSORS.partition_for(topic), OFFSET_END)

    def set_policy(policy: str) -> None:
        entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, Instance().state_topic(CURSORS), incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(20)

    def deleted() -> bool:
        """The broker's log learns of its new policy after the request was answered."""
        try:
            admin.delete_records([partition])[partition].result(20)
        except KafkaException as failure:
            if failure.args[0].code() != KafkaError.POLICY_VIOLATION:
                raise
            return False
        return True

    set_policy("compact,delete")
    until(deleted, "the broker to take the policy on")
    set_policy("compact")
