"""Values of topics whose schema has changed, by every kind of consumer; and the copies that consumers make."""

from __future__ import annotations

import re
from typing import Any

import pytest
from confluent_kafka import Consumer as KafkaConsumer

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.schema import (
    AutoConsumeSchema,
    AvroSchema,
    BytesSchema,
    JsonSchema,
    KeyValue,
    KeyValueEncodingType,
    KeyValueSchema,
    StringSchema,
)
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from tests.integration.schema_support import (
    Order,
    receive_one,
    registered,
    second_version,
    set_policies,
    shown,
)
from tests.programs import run_example
from tests.steps import EARLIEST, PATIENCE_MS, Unique
from tests.waiting import until

SHARED, KEY_SHARED = pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared
SEPARATED = KeyValueEncodingType.SEPARATED
OLD: dict[str, Any] = {"item": "pen", "amount": 3}
NEW: dict[str, Any] = {**OLD, "item": "ink", "amount": 2, "note": "blue"}


def write_two_versions(client: pulsar.Client, topic: str, **options: Any) -> None:
    """`OLD` by the first version, `NEW` by the second one."""
    old = client.create_producer(topic, schema=AvroSchema(Order), **options)
    new = client.create_producer(topic, schema=second_version(), **options)
    old.send(Order(**OLD), partition_key="old")
    new.send(NEW, partition_key="new")


@pytest.mark.parametrize(
    ("kind", "options"),
    [(kind, {"batching_enabled": number % 2 == 1}) for number, kind in enumerate(pulsar.ConsumerType)],
)
def test_each_version_is_read_with_the_consumers_schema(
    client: pulsar.Client, unique: Unique, kind: pulsar.ConsumerType, options: dict[str, Any]
) -> None:
    topic = unique()
    write_two_versions(client, topic, **options)
    new = client.subscribe(topic, "new", kind, initial_position=EARLIEST, schema=second_version())
    assert sorted((receive_one(new).value()["note"] for _ in range(2)), key=str) == ["blue", "none"]
    old = client.subscribe(topic, "old", kind, initial_position=EARLIEST, schema=AvroSchema(Order))
    assert sorted(receive_one(old).value().item for _ in range(2)) == ["ink", "pen"]


def test_auto_consume_reads_every_version_as_it_was_written(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST, schema=AutoConsumeSchema())
    client.create_producer(topic).send(b"without a schema")
    write_two_versions(client, topic)
    client.create_producer(topic, schema=AvroSchema(Order)).send(None)
    messages = [receive_one(consumer) for _ in range(4)]
    assert [message.value() for message in messages] == [b"without a schema", OLD, NEW, None]
    assert [message.schema_version() for message in messages] == ["", shown(0), shown(1), shown(0)]


def test_auto_consume_of_other_types(client: pulsar.Client, unique: Unique) -> None:
    for schema, given, read in (
        (StringSchema(), "text", "text"),
        (JsonSchema(Order), Order(**OLD), OLD),
        (KeyValueSchema(StringSchema(), StringSchema()), KeyValue("k", "v"), KeyValue("k", "v")),
        (KeyValueSchema(StringSchema(), AvroSchema(Order), SEPARATED), KeyValue("k", Order(**OLD)), KeyValue("k", OLD)),
    ):
        topic = unique()
        consumer = client.subscribe(topic, "s", initial_position=EARLIEST, schema=AutoConsumeSchema())
        client.create_producer(topic, schema=schema).send(given)
        assert receive_one(consumer).value() == read


def test_readers(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    write_two_versions(client, topic)
    reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=second_version())
    assert [reader.read_next(PATIENCE_MS).value()["note"] for _ in range(2)] == ["none", "blue"]
    heard: list[Any] = []
    client.create_reader(
        topic, pulsar.MessageId.earliest, AutoConsumeSchema(), lambda _, message: heard.append(message.value())
    )
    until(lambda: len(heard) == 2, "two values")
    assert heard == [OLD, NEW]


def test_listeners(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    heard: list[Any] = []
    client.subscribe(
        topic, "s", schema=second_version(), message_listener=lambda _, message: heard.append(message.value()["note"])
    )
    write_two_versions(client, topic)
    until(lambda: len(heard) == 2, "two values")
    assert heard == ["none", "blue"]


def test_table_views(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    write_two_versions(client, topic)
    view = client.create_table_view(topic, schema=second_version())
    assert view.get("old") == {**OLD, "note": "none"}
    assert view.get("new") == NEW
    heard: dict[str, Any] = {}
    view.for_each_and_listen(heard.__setitem__)
    producer = client.create_producer(topic, schema=AvroSchema(Order))
    producer.send(Order(item="cap", amount=1), partition_key="new")
    producer.send(None, partition_key="old")
    until(lambda: heard == {"old": None, "new": {"item": "cap", "amount": 1, "note": "none"}}, "both changes")
    assert view.get("old") is None


def test_a_table_view_of_separated_key_values(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    schema = KeyValueSchema(StringSchema(), AvroSchema(Order), SEPARATED)
    client.create_producer(topic, schema=schema).send(KeyValue("k", Order(**OLD)))
    found = client.create_table_view(topic, schema=schema).get("k")
    assert found is not None
    assert (found.key, vars(found.value)) == ("k", vars(Order(**OLD)))


def test_several_topics_have_schemas_of_their_own(client: pulsar.Client, unique: Unique) -> None:
    one, other = unique("one"), unique("other")
    client.create_producer(other, schema=second_version()).send(NEW)
    write_two_versions(client, one)
    consumer = client.subscribe([one, other], "s", SHARED, initial_position=EARLIEST, schema=second_version())
    values = sorted((receive_one(consumer) for _ in range(3)), key=lambda message: str(message.value()["note"]))
    assert [message.value()["note"] for message in values] == ["blue", "blue", "none"]
    by_topic = {(TopicName.parse(message.topic_name()).local_name, message.schema_version()) for message in values}
    assert by_topic == {(one, shown(0)), (one, shown(1)), (other, shown(0))}


def test_a_pattern(client: pulsar.Client, unique: Unique) -> None:
    prefix = unique()
    for number in range(2):
        write_two_versions(client, f"{prefix}-{number}")
    consumer = client.subscribe(
        re.compile(f"persistent://public/default/{prefix}-.*"),
        "s",
        initial_position=EARLIEST,
        schema=AutoConsumeSchema(),
    )
    assert sorted((receive_one(consumer).value() for _ in range(4)), key=str) == sorted([OLD, NEW] * 2, key=str)


# Key/value ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"batching_enabled": True}, {"chunking_enabled": True}], ids=str)
def test_a_separated_key_is_the_records_key(
    client: pulsar.Client, admin: AdminClient, bootstrap: str, unique: Unique, options: dict[str, Any]
) -> None:
    topic = unique()
    schema = KeyValueSchema(AvroSchema(Order), StringSchema(), SEPARATED)
    producer = client.create_producer(topic, schema=schema, **options)
    pairs = [KeyValue(Order(**OLD), "first"), KeyValue(None, "no key"), KeyValue(Order(**OLD), None)]
    for pair in pairs:
        producer.send(pair)
    with pytest.raises(ValueError, match="partition_key"):
        producer.send(pairs[0], partition_key="k")
    key = AvroSchema(Order).encode(Order(**OLD))
    tool = KafkaConsumer({"bootstrap.servers": bootstrap, "group.id": unique(), "auto.offset.reset": "earliest"})
    tool.subscribe([admin.topic_stats(topic).kafka_topic])
    records = tool.consume(3, 20)
    tool.close()
    assert [record.key() for record in records] == [key, None, key]
    if "batching_enabled" not in options:
        assert [record.value() for record in records] == [b"first", b"no key", None]
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST, schema=schema)
    found = [receive_one(consumer).value() for _ in range(3)]
    assert [pair.value for pair in found] == ["first", "no key", None]
    assert [pair.key and vars(pair.key) for pair in found] == [vars(pairs[0].key), None, vars(pairs[0].key)]


def test_an_empty_separated_key_is_a_key(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    schema = KeyValueSchema(StringSchema(), StringSchema(), SEPARATED)
    client.create_producer(topic, schema=schema).send(KeyValue("", "v"))
    client.create_producer(topic, schema=schema, batching_enabled=True).send(KeyValue("", "v"))
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST, schema=schema)
    assert [receive_one(consumer).value() for _ in range(2)] == [KeyValue("", "v")] * 2


def test_keys_may_move_from_the_payload_to_the_record(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    inline = KeyValueSchema(StringSchema(), AvroSchema(Order))
    separated = KeyValueSchema(StringSchema(), AvroSchema(Order), SEPARATED)
    client.create_producer(topic, schema=inline).send(KeyValue("in", Order(**OLD)))
    client.create_producer(topic, schema=separated).send(KeyValue("out", Order(**OLD)))
    for number, schema in enumerate((inline, separated)):
        consumer = client.subscribe(topic, f"s{number}", initial_position=EARLIEST, schema=schema)
        found = [receive_one(consumer).value() for _ in range(2)]
        assert [(pair.key, pair.value.item) for pair in found] == [("in", "pen"), ("out", "pen")]


def test_key_shared_goes_by_the_separated_key(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    schema = KeyValueSchema(StringSchema(), StringSchema(), SEPARATED)
    consumers = [
        client.subscribe(topic, "s", KEY_SHARED, initial_position=EARLIEST, schema=schema, consumer_name=f"c{number}")
        for number in range(3)
    ]
    producer = client.create_producer(topic, schema=schema)
    for number in range(60):
        producer.send_async(KeyValue(f"k{number % 12}", str(number)), None)
    producer.flush()
    owners: dict[str, set[int]] = {}
    order: dict[str, list[int]] = {}
    received = 0
    while received < 60:
        for number, consumer in enumerate(consumers):
            try:
                message = consumer.receive(100)
            except pulsar.Timeout:
                continue
            received += 1
            pair = message.value()
            consumer.acknowledge(message)
            owners.setdefault(pair.key, set()).add(number)
            order.setdefault(pair.key, []).append(int(pair.value))
    assert all(len(whose) == 1 for whose in owners.values())
    assert len(set.union(*owners.values())) > 1
    assert all(numbers == sorted(numbers) for numbers in order.values())


# Copies ---------------------------------------------------------------------------------------------------------------


def test_dead_letters_keep_the_schema_that_wrote_them(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    write_two_versions(client, topic)
    consumer = client.subscribe(
        topic, "s", SHARED, initial_position=EARLIEST, schema=BytesSchema(), negative_ack_redelivery_delay_ms=10,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1, dead_letter_topic=f"{topic}-dead"),
    )  # fmt: skip
    letters = client.subscribe(f"{topic}-dead", "look", SHARED, initial_position=EARLIEST, schema=AutoConsumeSchema())
    for _ in range(4):
        consumer.negative_acknowledge(receive_one(consumer))
    found = [receive_one(letters) for _ in range(2)]
    assert sorted((letter.value() for letter in found), key=str) == sorted([OLD, NEW], key=str)
    written_with = {info.schema for info in registered(admin, topic)}
    assert {info.schema for info in registered(admin, f"{topic}-dead")} == written_with
    assert {letter.schema_version() for letter in found} == {shown(0), shown(1)}


def test_dead_letters_of_separated_key_values(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    schema = KeyValueSchema(AvroSchema(Order), StringSchema(), SEPARATED)
    client.create_producer(topic, schema=schema).send(KeyValue(Order(item="pen", amount=200), "v"))
    consumer = client.subscribe(
        topic, "s", SHARED, initial_position=EARLIEST, schema=schema, negative_ack_redelivery_delay_ms=10,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1, dead_letter_topic=f"{topic}-dead"),
    )  # fmt: skip
    letters = client.subscribe(f"{topic}-dead", "look", initial_position=EARLIEST, schema=AutoConsumeSchema())
    for _ in range(2):
        consumer.negative_acknowledge(receive_one(consumer))
    assert receive_one(letters).value() == KeyValue({"item": "pen", "amount": 200}, "v")


@pytest.mark.parametrize("strategy", ["FULL", "ALWAYS_INCOMPATIBLE"])
def test_retry_letters_keep_the_schema_that_wrote_them(
    client: pulsar.Client, admin: AdminClient, unique: Unique, strategy: str
) -> None:
    topic = unique()
    write_two_versions(client, topic)
    set_policies(admin, f"{topic}-s-RETRY", schema_compatibility_strategy=strategy, schema_validation_enforced=True)
    consumer = client.subscribe(
        topic, "s", SHARED, initial_position=EARLIEST, schema=second_version(), retry_enable=True
    )
    for _ in range(2):
        message = receive_one(consumer)
        consumer.reconsume_later(message, 0)
    again = [receive_one(consumer) for _ in range(2)]
    assert all(message.topic_name().endswith("-s-RETRY") for message in again)
    assert sorted((message.value()["note"] for message in again), key=str) == ["blue", "none"]


def test_the_example(service_url: str) -> None:
    said = run_example("schemas.py", service_url, timeout_s=60).splitlines()
    assert said[:6] == [
        "old schema, version 0: roof 21.5",
        "old schema, version 1: cellar 12.0",
        "new schema, version 0: {'sensor': 'roof', 'celsius': 21.5, 'place': 'unknown'}",
        "new schema, version 1: {'sensor': 'cellar', 'celsius': 12.0, 'place': 'north'}",
        "any schema, version 0: {'sensor': 'roof', 'celsius': 21.5}",
        "any schema, version 1: {'sensor': 'cellar', 'celsius': 12.0, 'place': 'north'}",
    ]
    assert said[6].startswith("refused: SCHEMA_TYPE_CHANGED")
