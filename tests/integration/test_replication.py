"""Topics that are copied from one cluster to another, on two real brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

import layer as pulsar
from layer.deadline import Deadline
from layer.embedded import EmbeddedBrokerError
from mapping.message_record import RecordHeaders, decode_headers
from mapping.schema_version import SchemaVersion
from mapping.topic_name import TopicName
from tests.integration.sdk_support import nothing_comes, receive, until
from tests.integration.two_clusters import Cluster, clusters_of, embedded_broker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

Unique = Callable[..., str]


class Reading(pulsar.schema.Record):
    value = pulsar.schema.Integer()


class Other(pulsar.schema.Record):
    text = pulsar.schema.String()


@pytest.fixture(scope="module")
def clusters(missing: Callable[[str, str], None]) -> Iterator[dict[str, Cluster]]:
    with ExitStack() as stack:
        try:
            urls = {name: f"kafka://{stack.enter_context(embedded_broker()).bootstrap}" for name in ("eu", "us")}
        except EmbeddedBrokerError as error:
            missing("kafka", f"no broker: {error}")
        yield stack.enter_context(clusters_of(urls))


@pytest.fixture
def eu(clusters: dict[str, Cluster]) -> Cluster:
    return clusters["eu"]


@pytest.fixture
def us(clusters: dict[str, Cluster]) -> Cluster:
    return clusters["us"]


def said(message: Any) -> RecordHeaders:
    return decode_headers(message.record.headers())


def seen(message: Any) -> tuple[Any, ...]:
    """What a consumer sees of a message, but for its id."""
    return (
        message.data(), message.properties(), message.partition_key(), message.ordering_key(),
        message.event_timestamp(), message.producer_name(), message.publish_timestamp(), message.topic_name(),
    )  # fmt: skip


def test_a_topic_is_copied_with_all_that_its_consumers_see(eu: Cluster, us: Cluster, unique: Unique) -> None:
    topic = unique()
    eu.admin.create_partitioned_topic(topic, 2)
    here = eu.client.subscribe(topic, "s")
    eu.admin.set_policy(topic, "replication_clusters", ["eu", "us"])
    producer = eu.client.create_producer(topic, producer_name=unique("p"))
    for number in range(20):
        producer.send(b"%d" % number, properties={"n": str(number)}, partition_key=f"k{number % 3}", event_timestamp=7)
    producer.send(b"ordered", ordering_key="o")
    producer.send(b"stays", disable_replication=True)
    producer.send(b"elsewhere", replication_clusters=["asia"])
    producer.send(b"named", replication_clusters=["us"])
    batches = eu.client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=50)
    for number in range(10):
        batches.send_async(b"batch %d" % number, None, properties={"b": str(number)})
    batches.flush()
    chunks = eu.client.create_producer(topic, chunking_enabled=True)
    chunks.send(b"x" * 6_000_000)
    with eu.replicating():
        there = until(
            lambda: us.admin.node.topics.find(TopicName.parse(topic), Deadline.after(30)), "the topic to be made"
        )
        assert (there.partitions, there.partitioned) == (2, True)
        us.admin.create_subscription(topic, "s", from_earliest=True)
        copies = receive(us.client.subscribe(topic, "s"), 33)
    originals = [message for message in receive(here, 35) if message.data() not in (b"stays", b"elsewhere")]
    assert sorted(map(seen, originals)) == sorted(map(seen, copies))
    assert {said(copy).replicated_from for copy in copies} == {"eu"}
    assert None not in {said(copy).original_id for copy in copies}
    assert us.admin.list_subscriptions(topic) == ["s"]
    assert eu.admin.topic_stats(topic).replication["us"].backlog == 0


def test_both_ways_without_loops_what_is_committed_and_with_schemas(eu: Cluster, us: Cluster, unique: Unique) -> None:
    topic = unique()
    schema = pulsar.schema.AvroSchema(Reading)
    us.admin.create_schema(topic, pulsar.schema.AvroSchema(Other).schema_info())
    us.admin.delete_schema(topic)  # so that a schema has other numbers there
    for cluster in (eu, us):
        cluster.admin.node.topics.open(TopicName.parse(topic), Deadline.after(30))
        cluster.admin.create_subscription(topic, "s")
        cluster.admin.set_policy(topic, "replication_clusters", ["eu", "us"])
    with eu.replicating(), us.replicating():
        producers = {each.name: each.client.create_producer(topic, schema=schema) for each in (eu, us)}
        for number in range(5):
            producers["eu"].send(Reading(value=number))
            producers["us"].send(Reading(value=100 + number))
        with closing(pulsar.Client(eu.url, enable_transaction=True, stand_in=False)) as client:
            sender = client.create_producer(topic, schema=schema)
            for number, ends in ((50, "abort"), (51, "commit")):
                transaction = client.new_transaction()
                sender.send(Reading(value=number), txn=transaction)
                getattr(transaction, ends)()
        wanted = {*range(5), 51, *range(100, 105)}
        for each in (eu, us):
            consumer = each.client.subscribe(topic, "s", schema=schema)
            messages = receive(consumer, 11)
            assert {message.value().value for message in messages} == wanted
            assert nothing_comes(consumer)
            assert {said(message).schema_version for message in messages} == {
                SchemaVersion(0 if each is eu else 2).header()
            }
