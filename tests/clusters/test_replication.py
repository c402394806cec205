"""Topics that are copied from one cluster to another, on two real brokers."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.service.replication.replication import Replication
from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.records.message_record import RecordHeaders, decode_headers
from tests.clusters.cluster import PATIENCE_S, Cluster
from tests.integration.command_line import CommandLine
from tests.steps import Unique, nothing_comes, receive
from tests.waiting import until


class Reading(pulsar.schema.Record):
    value = pulsar.schema.Integer()


class Other(pulsar.schema.Record):
    text = pulsar.schema.String()


def said(message: Any) -> RecordHeaders:
    return decode_headers(message.record.headers())


def seen(message: Any) -> tuple[Any, ...]:
    """What a consumer sees of a message, but for its id."""
    return (
        message.data(), message.properties(), message.partition_key(), message.ordering_key(),
        message.event_timestamp(), message.producer_name(), message.publish_timestamp(), message.topic_name(),
    )  # fmt: skip


def test_a_topic_is_copied_with_all_that_its_consumers_see(
    west: Cluster, east: Cluster, topic: str, unique: Unique
) -> None:
    west.admin.create_partitioned_topic(topic, 2)
    here = west.client.subscribe(topic, "s")
    west.admin.set_policy(topic, "replication_clusters", ["west", "east"])
    producer = west.client.create_producer(topic, producer_name=unique("p"))
    for number in range(20):
        producer.send(b"%d" % number, properties={"n": str(number)}, partition_key=f"k{number % 3}", event_timestamp=7)
    producer.send(b"ordered", ordering_key="o")
    producer.send(b"stays", disable_replication=True)
    producer.send(b"elsewhere", replication_clusters=["asia"])
    producer.send(b"named", replication_clusters=["east"])
    batches = west.client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=50)
    for number in range(10):
        batches.send_async(b"batch %d" % number, None, properties={"b": str(number)})
    batches.flush()
    chunks = west.client.create_producer(topic, chunking_enabled=True)
    chunks.send(b"x" * 6_000_000)
    with west.replicating():
        there = until(
            lambda: east.admin.node.topics.find(TopicName.parse(topic), Deadline.after(30)), "the topic to be made"
        )
        assert (there.partitions, there.partitioned) == (2, True)
        east.admin.create_subscription(topic, "s", from_earliest=True)
        copies = receive(east.client.subscribe(topic, "s"), 33)
    originals = [message for message in receive(here, 35) if message.data() not in (b"stays", b"elsewhere")]
    assert sorted(map(seen, originals)) == sorted(map(seen, copies))
    assert {said(copy).replicated_from for copy in copies} == {"west"}
    assert None not in {said(copy).original_id for copy in copies}
    assert east.admin.list_subscriptions(topic) == ["s"]
    assert west.admin.topic_stats(topic).replication["east"].backlog == 0


def test_a_replicator_keeps_its_rate_until_the_policy_is_removed(west: Cluster, east: Cluster, topic: str) -> None:
    west.admin.create_topic(topic)
    rate = {"replicator_dispatch_throttling_rate_in_msg": 2, "replicator_dispatch_rate_period_in_second": 3600}
    west.admin.set_policies(topic, {"replication_clusters": ["west", "east"], **rate})
    producer = west.client.create_producer(topic)
    for number in range(10):
        producer.send(b"%d" % number)
    with west.replicating():
        until(lambda: east.admin.node.topics.find(TopicName.parse(topic), Deadline.after(30)), "the topic to be made")
        east.admin.create_subscription(topic, "s", from_earliest=True)
        there = east.client.subscribe(topic, "s")
        assert [message.data() for message in receive(there, 2)] == [b"0", b"1"]
        nothing_comes(there)
        west.admin.remove_policy(topic, *rate)
        assert [message.data() for message in receive(there, 8)] == [b"%d" % number for number in range(2, 10)]


def test_both_ways_without_loops_what_is_committed_and_with_schemas(west: Cluster, east: Cluster, topic: str) -> None:
    schema = pulsar.schema.AvroSchema(Reading)
    east.admin.create_schema(topic, pulsar.schema.AvroSchema(Other).schema_info())
    east.admin.delete_schema(topic)  # so that a schema has other numbers there
    for cluster in (west, east):
        cluster.admin.node.topics.open(TopicName.parse(topic), Deadline.after(30))
        cluster.admin.create_subscription(topic, "s")
        cluster.admin.set_policy(topic, "replication_clusters", ["west", "east"])
    with west.replicating(), east.replicating():
        producers = {each.name: each.client.create_producer(topic, schema=schema) for each in (west, east)}
        for number in range(5):
            producers["west"].send(Reading(value=number))
            producers["east"].send(Reading(value=100 + number))
        with closing(pulsar.Client(west.url, enable_transaction=True, stand_in=False)) as client:
            sender = client.create_producer(topic, schema=schema)
            for number, ends in ((50, "abort"), (51, "commit")):
                transaction = client.new_transaction()
                sender.send(Reading(value=number), txn=transaction)
                getattr(transaction, ends)()
        wanted = {*range(5), 51, *range(100, 105)}
        for each in (west, east):
            consumer = each.client.subscribe(topic, "s", schema=schema)
            messages = receive(consumer, 11)
            assert {message.value().value for message in messages} == wanted
            assert nothing_comes(consumer)
            assert {said(message).schema_version for message in messages} == {
                SchemaVersion(0 if each is west else 2).header()
            }


def test_copying_begins_where_somebody_made_the_replicators_subscription(
    west: Cluster, east: Cluster, namespace: str, topic: str
) -> None:
    """However long before the policy that was; once it was used it goes with the policy."""
    producer = west.client.create_producer(topic)
    producer.send(b"old")
    CommandLine(west.url, "subscriptions")("create", topic, "-s", "pulsar.repl.east")
    producer.send(b"new")

    def replicator_stays() -> bool:
        node, deadline = west.admin.node, Deadline.after(PATIENCE_S)
        found = node.topics.find(TopicName.parse(topic), deadline)
        assert found is not None
        return node.subscriptions.find(found, "pulsar.repl.east", deadline) is not None

    def rounds(role: Replication) -> int:
        state = role.state()
        return dict(state.turns)["replication"].done if state.partitions else 0

    with west.replicating() as role:
        until(lambda: rounds(role) > 0, "a share of the work")
        done = rounds(role)
        until(lambda: rounds(role) > done + 1, "a round over all topics")
        assert replicator_stays()
        west.admin.set_policy(namespace, "replication_clusters", ["west", "east"])
        until(lambda: west.has_copied(topic, to=east), "everything to be copied")
        reader = east.client.create_reader(topic, pulsar.MessageId.earliest)
        assert reader.read_next(10_000).data() == b"new"
        west.admin.set_policy(namespace, "replication_clusters", [])
        until(lambda: not replicator_stays(), "the replicator's subscription to go")
