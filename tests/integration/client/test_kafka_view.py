"""The other side: what plain Kafka programs and tools see and write."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient as KafkaTool
from confluent_kafka.admin import NewTopic

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.kafka import handles
from pulsar_on_kafka_mapping.records.message_record import decode_headers
from tests.steps import EARLIEST, PATIENCE_MS, SHARED, Unique, payloads, receive, receive_rest, send
from tests.waiting import until


@pytest.fixture
def plain(bootstrap: str) -> Iterator[Producer]:
    made = Producer({"bootstrap.servers": bootstrap})
    yield made
    assert made.flush(20) == 0


def test_what_a_plain_kafka_program_wrote(
    client: pulsar.Client, admin: AdminClient, plain: Producer, unique: Unique
) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    name = admin.topic_stats(topic).kafka_topic
    plain.produce(name, b"bare")
    plain.produce(name, b"keyed", key="kü".encode(), headers=[("a", b"1"), ("a", b"2"), ("b", None), ("c", b"\xff")])
    plain.produce(name, None, key=b"\xff\x00", timestamp=1_600_000_000_000)
    plain.produce(name, b"", headers=[("__pulsar.from_the_future", b"?")])
    plain.flush(20)
    bare, keyed, null, empty = receive(consumer, 4)
    assert (bare.data(), bare.partition_key(), bare.properties(), bare.producer_name()) == (b"bare", "", {}, "")
    assert (bare.event_timestamp(), bare.schema_version(), bare.ordering_key()) == (0, "", "")
    assert (keyed.partition_key(), keyed.properties()) == ("kü", {"a": "2", "b": "", "c": "ÿ"})
    assert (null.has_null_value(), null.data(), null.partition_key()) == (True, b"", "/wA=")
    assert null.publish_timestamp() == 1_600_000_000_000
    assert (empty.has_null_value(), empty.data(), empty.properties()) == (False, b"", {})
    assert [message.message_id().entry_id() for message in (bare, keyed, null, empty)] == [0, 1, 2, 3]
    consumer.acknowledge(keyed)
    consumer.close()
    assert admin.subscription_stats(topic, "s").backlog == 3


def test_what_a_plain_kafka_program_reads(
    client: pulsar.Client, admin: AdminClient, bootstrap: str, unique: Unique
) -> None:
    topic = unique()
    producer = client.create_producer(topic, producer_name="press")
    producer.send(b"zero")
    producer.send(b"one", partition_key="kü", properties={"a": "b", "ü": "漢"}, event_timestamp=5)
    producer.send(None, partition_key="k")
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": unique(), "auto.offset.reset": "earliest"})
    reader.subscribe([admin.topic_stats(topic).kafka_topic])
    records = reader.consume(3, 20)
    reader.close()
    assert [(record.key(), record.value()) for record in records] == [
        (None, b"zero"), ("kü".encode(), b"one"), (b"k", None),
    ]  # fmt: skip
    headers: Any = records[1].headers()
    assert ("a", b"b") in headers
    assert ("ü", "漢".encode()) in headers
    decoded = decode_headers(headers)
    assert (decoded.producer_name, decoded.sequence_id, decoded.event_time_ms) == ("press", 1, 5)


def test_an_existing_kafka_topic_is_bound_to_a_name(
    client: pulsar.Client, admin: AdminClient, plain: Producer, bootstrap: str, unique: Unique
) -> None:
    existing, topic = unique("existing"), unique("bound")
    tool = KafkaTool({"bootstrap.servers": bootstrap})
    tool.create_topics([NewTopic(existing, 2, 1, config={"retention.ms": "3600000"})])[existing].result(20)
    for number in range(4):
        plain.produce(existing, str(number).encode(), partition=number % 2)
    plain.flush(20)
    with pytest.raises(pulsar.TopicNotFound, match="no Kafka topic"):
        admin.bind_topic(topic, existing + "-not")
    admin.bind_topic(topic, existing)
    with pytest.raises(pulsar.NotAllowedError, match="exists"):
        admin.bind_topic(topic, existing)
    stats = admin.topic_stats(topic)
    assert (stats.kafka_topic, stats.partitions, stats.bound, stats.entries) == (existing, 2, True, 4)
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    messages = receive(consumer, 4)
    assert sorted(payloads(messages)) == ["0", "1", "2", "3"]
    consumer.acknowledge(next(message for message in messages if message.data() == b"2"))
    send(client, topic, 1, start=4)
    assert payloads(receive(consumer, 1)) == ["4"]
    consumer.close()
    assert admin.subscription_stats(topic, "s").backlog == 4
    assert admin.node.admin.topic_configs(existing, Deadline.after(20))["retention.ms"] == "3600000"
    admin.delete_topic(topic, force=True)
    assert existing in tool.list_topics(timeout=20).topics  # unbound, not deleted


def test_a_kafka_topic_under_the_mapped_name_is_found(
    client: pulsar.Client, admin: AdminClient, plain: Producer, bootstrap: str, unique: Unique
) -> None:
    short = unique()
    name = f"public.default.{short}"
    tool = KafkaTool({"bootstrap.servers": bootstrap})
    tool.create_topics([NewTopic(name, 1, 1)])[name].result(20)
    plain.produce(name, b"first")
    plain.flush(20)
    consumer = client.subscribe(short, "s", initial_position=EARLIEST)
    assert payloads(receive(consumer, 1)) == ["first"]
    assert admin.topic_stats(short).bound


def test_compacted_offsets_of_a_bound_topic_are_no_holes(
    client: pulsar.Client, admin: AdminClient, bootstrap: str, unique: Unique
) -> None:
    """Kafka transactions put control records into a topic of others: no fetch returns their offsets."""
    existing, topic = unique("existing"), unique("bound")
    tool = KafkaTool({"bootstrap.servers": bootstrap})
    tool.create_topics([NewTopic(existing, 1, 1)])[existing].result(20)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": unique("txn")})
    producer.init_transactions(20)
    for number in range(4):
        producer.begin_transaction()
        producer.produce(existing, str(number).encode(), partition=0)
        producer.commit_transaction(20)
    admin.bind_topic(topic, existing)
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    messages = receive(consumer, 4)
    assert [message.message_id().entry_id() for message in messages] == [0, 2, 4, 6]
    for message in messages[:3]:
        consumer.acknowledge(message)
    consumer.flush()
    stats = admin.subscription_stats(topic, "s").partitions[0]
    assert (stats.mark_delete, stats.individually_deleted) == (5, 0)


def test_kafka_sees_the_group_its_member_and_its_lag(
    client: pulsar.Client, admin: AdminClient, bootstrap: str, unique: Unique
) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "audit", SHARED, initial_position=EARLIEST)
    other = client.subscribe(topic, "audit", SHARED)
    send(client, topic, 10)
    messages = receive(consumer, 1)
    tool = KafkaTool({"bootstrap.servers": bootstrap})
    stats = admin.topic_stats(topic)
    group = f"{stats.kafka_topic}/audit"
    assert group in {found.group_id for found in tool.list_consumer_groups().result(20).valid}
    described = tool.describe_consumer_groups([group])[group].result(20)
    assert described.state.name == "STABLE"
    assert len(described.members) == 1  # two consumers of one process are one member
    assert [(w.topic, w.partition) for w in described.members[0].assignment.topic_partitions] == [
        (stats.kafka_topic, 0)
    ]
    found = [*messages, *receive_rest(consumer), *receive_rest(other)]
    assert sorted(payloads(found)) == [str(n) for n in range(10)]
    for message in found:
        owner = consumer if message.feed.endpoint.name == consumer.consumer_name() else other
        if int(message.data()) < 6:
            owner.acknowledge(message)
    consumer.flush()
    committed = admin.node.admin.committed(group, stats.kafka_topic, [0], Deadline.after(20))[0]
    assert stats.end_offsets[0] - committed.kafka_offset == 4
    consumer.close()
    other.close()
    assert tool.describe_consumer_groups([group])[group].result(20).state.name == "EMPTY"


def test_a_second_client_of_the_process_shares_everything(service_url: str, bootstrap: str, unique: Unique) -> None:
    topic = unique()
    first = pulsar.Client(service_url)
    consumer = first.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    producer = first.create_producer(topic)
    producer.send(b"0")
    receive(consumer, 1)
    threads, live = set(threading.enumerate()), len(handles._LIVE)
    second = pulsar.Client(service_url)
    second_consumer = second.subscribe(topic, "s", SHARED)
    second.create_producer(topic).send(b"1")
    assert len(handles._LIVE) == live
    assert [thread.name for thread in set(threading.enumerate()) - threads] == ["pok-discovery"]
    tool = KafkaTool({"bootstrap.servers": bootstrap})
    with AdminClient(service_url) as admin:
        group = admin.subscription_stats(topic, "s").group
    assert len(tool.describe_consumer_groups([group])[group].result(20).members) == 1
    first.close()
    second.create_producer(topic).send(b"2")  # the node outlives the first Client
    left = payloads(receive(second_consumer, 3))
    assert sorted(left) == ["0", "1", "2"]
    second.close()


def test_close_ends_every_thread_and_frees_every_handle(service_url: str, unique: Unique) -> None:
    before = set(threading.enumerate())
    live = set(handles._LIVE)
    client = pulsar.Client(service_url, kafka_config={"client.rack": "its-own-node"})
    topic = unique()
    got = threading.Event()
    client.subscribe(topic, "s", message_listener=lambda _consumer, _message: got.set())
    client.create_producer(topic).send(b"x")
    assert got.wait(15)
    client.close()
    assert set(handles._LIVE) <= live
    until(lambda: set(threading.enumerate()) <= before, "every thread to be gone")


def test_kafka_config_reaches_librdkafka(service_url: str, unique: Unique) -> None:
    client = pulsar.Client(service_url, kafka_config={"client.rack": "r1"})
    client.create_producer(unique()).send(b"x")
    client.close()
    wrong = pulsar.Client(service_url, kafka_config={"no.such.option": "1"})
    with pytest.raises((pulsar.PulsarException, ValueError), match=r"no\.such\.option"):
        wrong.create_producer(unique())
    wrong.close()


def test_a_tool_cannot_change_a_live_group(
    client: pulsar.Client, admin: AdminClient, bootstrap: str, unique: Unique
) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    send(client, topic, 1)
    consumer.receive(PATIENCE_MS)
    group = admin.subscription_stats(topic, "s").group
    tool = KafkaTool({"bootstrap.servers": bootstrap})
    error = tool.delete_consumer_groups([group])[group].exception(20)
    assert error is not None
    assert error.args[0].code() == KafkaError.NON_EMPTY_GROUP
