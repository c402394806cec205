"""Producing and receiving: what a message carries, where it goes, and what is refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from zlib import crc32

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka_mapping.records.message_record import decode_headers
from tests.steps import EARLIEST, PATIENCE_MS, Unique, nothing_comes, payloads, receive, send


def test_a_message_carries_everything_the_sender_said(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    producer = client.create_producer(topic, producer_name="press")
    properties = {"a": "b", "ü": "漢", "empty": "", "__pulsar.x": "y"}
    before = time.time_ns() // 1_000_000
    sent = producer.send(
        b"body", partition_key="kü", ordering_key="ok", properties=properties, event_timestamp=12345, sequence_id=77
    )
    message = consumer.receive(PATIENCE_MS)
    assert (message.data(), message.value(), message.has_null_value()) == (b"body", b"body", False)
    assert (message.partition_key(), message.ordering_key()) == ("kü", "ok")
    assert (message.properties(), message.event_timestamp()) == (properties, 12345)
    assert (message.producer_name(), message.redelivery_count()) == ("press", 0)
    assert (message.schema_version(), message.encryption_context()) == ("", None)
    assert message.topic_name() == producer.topic() == consumer.topic() == f"persistent://public/default/{topic}"
    assert before <= message.publish_timestamp() <= time.time_ns() // 1_000_000
    assert message.message_id() == sent
    assert producer.last_sequence_id() == 77


def test_a_null_payload_is_not_an_empty_one(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    client.create_producer(topic).send(None, partition_key="k", ordering_key="o", properties={"p": "q"})
    message = consumer.receive(PATIENCE_MS)
    assert (message.has_null_value(), message.data(), message.value()) == (True, b"", b"")
    assert (message.partition_key(), message.ordering_key(), message.properties()) == ("k", "o", {"p": "q"})


def test_string_schema(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    schema = pulsar.schema.StringSchema()
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST, schema=schema)
    producer = client.create_producer(topic, schema=schema)
    producer.send("hé")
    producer.send(None)
    with pytest.raises(TypeError):
        producer.send(b"x")
    assert consumer.receive(PATIENCE_MS).value() == "hé"
    assert consumer.receive(PATIENCE_MS).has_null_value()


def test_what_a_sender_says_of_replication_is_in_the_record(client: pulsar.Client, unique: Unique) -> None:
    for batching in (False, True):
        topic = unique()
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic, batching_enabled=batching)
        options: tuple[dict[str, Any], ...] = (
            {}, {"replication_clusters": []}, {"replication_clusters": ["eu", "us"]}, {"disable_replication": True},
            {"replication_clusters": ["eu"], "disable_replication": True},
        )  # fmt: skip
        for option in options:
            producer.send(b"x", **option)
        said = [decode_headers(consumer.receive(PATIENCE_MS).record.headers()).replicate_to for _ in range(5)]
        assert said == [None, None, ("eu", "us"), (), ()]
        with pytest.raises(TypeError, match="names of clusters"):
            producer.send(b"x", replication_clusters=["eu", ""])


def test_entry_ids_count_from_zero_and_ledgers_follow(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    admin.create_topic(topic, entries_per_ledger=3)
    ids = send(client, topic, 8)
    assert [found.entry_id() for found in ids] == [0, 1, 2, 0, 1, 2, 0, 1]
    assert [found.ledger_id() - ids[0].ledger_id() for found in ids] == [0, 0, 0, 1, 1, 1, 2, 2]
    assert all((found.partition(), found.batch_index()) == (-1, -1) for found in ids)
    assert ids == sorted(ids, key=lambda found: (found.ledger_id(), found.entry_id()))


def test_names_that_are_not_given(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    first, second = client.create_producer(topic), client.create_producer(topic)
    assert first.producer_name() != second.producer_name()
    assert len(first.producer_name().split("-")) == 3
    assert client.create_producer(topic, producer_name="mine").producer_name() == "mine"
    consumer = client.subscribe(topic, "s")
    assert len(consumer.consumer_name()) == 10
    assert set(consumer.consumer_name()) <= set("0123456789abcdef")
    assert client.subscribe(topic, "s2", consumer_name="joe").consumer_name() == "joe"


# Partitions -----------------------------------------------------------------------------------------------------------


def test_keys_go_where_crc32_says(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 4)
    for mode in (pulsar.PartitionsRoutingMode.RoundRobinDistribution, pulsar.PartitionsRoutingMode.UseSinglePartition):
        producer = client.create_producer(topic, message_routing_mode=mode)
        keys = [f"key-{number}" for number in range(20)] + ["ü"]
        found = [producer.send(b"x", partition_key=key).partition() for key in keys]
        assert found == [crc32(key.encode()) % 4 for key in keys]


@pytest.mark.parametrize(
    ("answer", "refusal"), [(4, pulsar.UnknownError), (-1, pulsar.UnknownError), ("x", TypeError), (None, TypeError)]
)
def test_a_router_that_names_no_partition_is_refused(
    client: pulsar.Client, admin: AdminClient, unique: Unique, answer: Any, refusal: type[Exception]
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 4)
    producer = client.create_producer(topic, message_router=lambda _message, _partitions: answer)
    with pytest.raises(refusal):
        producer.send(b"x")
    assert producer.last_sequence_id() == -1


def test_a_router_is_not_asked_for_a_topic_without_partitions(client: pulsar.Client, unique: Unique) -> None:
    producer = client.create_producer(unique(), message_router=lambda _message, _partitions: 5)
    assert producer.send(b"x").partition() == -1


def test_a_send_callback_that_raises_harms_nobody(client: pulsar.Client, unique: Unique) -> None:
    producer = client.create_producer(unique())

    def failing(_result: pulsar.Result, _message_id: object) -> None:
        raise RuntimeError("the application's own mistake")

    for _ in range(3):
        producer.send_async(b"x", failing)
    producer.flush()
    producer.send(b"y")
    assert producer.last_sequence_id() == 3


def test_a_refused_send_is_told_to_its_callback(client: pulsar.Client, unique: Unique) -> None:
    producer = client.create_producer(unique())
    told: list[tuple[pulsar.Result, str]] = []

    def callback(result: pulsar.Result, message_id: object) -> None:
        told.append((result, str(message_id)))

    producer.send_async(b"x" * (5 * 1024 * 1024 + 1), callback)
    producer.close()
    producer.send_async(b"x", callback)
    assert told == [(pulsar.Result.MessageTooBig, "(-1,-1,-1,-1)"), (pulsar.Result.AlreadyClosed, "(-1,-1,-1,-1)")]


def test_the_last_sequence_id_is_that_of_the_message_stored_last(client: pulsar.Client, unique: Unique) -> None:
    producer = client.create_producer(unique(), initial_sequence_id=0)
    seen = []
    for sequence_id in (None, 50, None, 10, None):
        producer.send(b"x", sequence_id=sequence_id)
        seen.append(producer.last_sequence_id())
    assert seen == [0, 50, 1, 10, 2]


def test_names_of_partitions(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    topic, plain, unknown = unique(), unique("plain"), unique("unknown")
    admin.create_partitioned_topic(topic, 3)
    admin.create_topic(plain)
    full = f"persistent://public/default/{topic}"
    assert client.get_topic_partitions(topic) == [f"{full}-partition-{number}" for number in range(3)]
    assert client.get_topic_partitions(plain) == [f"persistent://public/default/{plain}"]
    assert client.get_topic_partitions(unknown) == [f"persistent://public/default/{unknown}"]
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    producer = client.create_producer(topic)
    ids = [producer.send(b"x") for _ in range(6)]
    assert (producer.topic(), consumer.topic()) == (full, full)
    messages = receive(consumer, 6)
    assert {message.topic_name() for message in messages} == {f"{full}-partition-{number}" for number in range(3)}
    assert sorted(m.message_id().partition() for m in messages) == sorted(i.partition() for i in ids)
    one = client.create_producer(f"{topic}-partition-1")
    assert (one.send(b"x").partition(), one.topic()) == (1, f"{full}-partition-1")
    with pytest.raises(pulsar.TopicNotFound, match="partition 7"):
        client.create_producer(f"{topic}-partition-7")


def test_a_topic_just_made_can_be_used_at_once(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    """Kafka answers NOT_LEADER_FOR_PARTITION for a moment after a topic is made."""
    for number in range(10):
        topic = unique(f"t{number}")
        admin.create_partitioned_topic(topic, 5)
        consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
        send(client, topic, 5)
        assert sorted(payloads(receive(consumer, 5))) == ["0", "1", "2", "3", "4"]
        consumer.close()


# Sending without waiting ----------------------------------------------------------------------------------------------


def test_a_message_above_the_limit_is_too_big_at_once(client: pulsar.Client, unique: Unique) -> None:
    producer = client.create_producer(unique())
    with pytest.raises(pulsar.MessageTooBig, match="5242881"):
        producer.send(b"x" * (5 * 1024 * 1024 + 1))
    assert producer.send(b"x" * (5 * 1024 * 1024)).entry_id() == 0


# Use after close ------------------------------------------------------------------------------------------------------


def test_a_closed_consumer(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s")
    message_id = client.create_producer(topic).send(b"x")
    message = consumer.receive(PATIENCE_MS)
    consumer.close()
    calls: list[Callable[[], Any]] = [
        lambda: consumer.receive(10), lambda: consumer.receive(), lambda: consumer.acknowledge(message),
        lambda: consumer.acknowledge_cumulative(message), lambda: consumer.seek(message_id), consumer.unsubscribe,
        consumer.flush, lambda: consumer.receive_async(lambda _result, _message: None),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(pulsar.AlreadyClosed):
            call()
    with pytest.raises(pulsar.NotConnected):  # as officially
        consumer.get_last_message_id()
    consumer.negative_acknowledge(message)  # as officially: nothing
    consumer.redeliver_unacknowledged_messages()
    assert not consumer.is_connected()
    assert consumer.subscription_name() == "s"
    with pytest.raises(ValueError, match="closed"):
        consumer.close()


# Receiving ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", ["x", 1.5, [1]])
def test_a_receive_timeout_is_an_integer_even_with_messages_waiting(
    client: pulsar.Client, unique: Unique, timeout: Any
) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    send(client, topic, 2)
    assert payloads(receive(consumer, 1)) == ["0"]
    with pytest.raises(ValueError, match="timeout_millis"):
        consumer.receive(timeout)
    assert payloads(receive(consumer, 1)) == ["1"]


def test_an_id_of_another_topic_is_refused(client: pulsar.Client, unique: Unique) -> None:
    other = send(client, unique("other"), 1)[0]
    consumer = client.subscribe(unique(), "s")
    for call in (consumer.acknowledge, consumer.seek, consumer.negative_acknowledge):
        with pytest.raises(pulsar.InvalidMessage):
            call(other)


# Seek -----------------------------------------------------------------------------------------------------------------


def test_a_seek_right_after_subscribe_works(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    ids = send(client, topic, 5)
    for number in range(8):
        consumer = client.subscribe(topic, f"s{number}")
        consumer.seek(ids[1])
        assert payloads(receive(consumer, 3)) == ["2", "3", "4"]
        consumer.close()


def test_seeks_one_after_another_end_at_the_last(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    ids = send(client, topic, 50)
    for number in (40, 3, 20, 0, 10, 45, 7):
        consumer.seek(ids[number])
    assert payloads(receive(consumer, 42)) == [str(n) for n in range(8, 50)]
    assert nothing_comes(consumer)


def test_a_new_producer_finds_partitions_that_were_added(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 1)
    send(client, topic, 1)
    admin.update_partitions(topic, 3)
    assert sorted(message_id.partition() for message_id in send(client, topic, 3)) == [0, 1, 2]


def test_a_time_out_names_topic_and_subscription(client: pulsar.Client, unique: Unique) -> None:
    topic = f"persistent://public/default/{unique('empty')}"
    consumer = client.subscribe(topic, "billing")
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    for receiving, where in (
        (consumer.receive, f"{topic} (subscription billing)"),
        (reader.read_next, f"{topic} (reader {reader._inbox.name})"),
    ):
        with pytest.raises(pulsar.Timeout) as timeout:
            receiving(10)
        assert str(timeout.value) == f"no message on {where} within 10 ms"
        assert timeout.value.__cause__ is None
        assert timeout.value.__suppress_context__
