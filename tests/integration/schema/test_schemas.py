"""Every type of schema from producer to consumer, and what the registry makes of producers and consumers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import pytest
from google.protobuf import struct_pb2

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.schema import (
    AutoConsumeSchema,
    AutoProduceBytesSchema,
    AvroSchema,
    BytesSchema,
    JsonSchema,
    KeyValue,
    KeyValueEncodingType,
    KeyValueSchema,
    ProtobufNativeSchema,
    ProtobufSchema,
    Record,
    Schema,
    StringSchema,
)
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from tests.integration.schema_support import (
    Order,
    OrderByText,
    latest_version,
    receive_one,
    registered,
    second_version,
    shown,
    soon,
)
from tests.steps import EARLIEST, Unique

SEPARATED = KeyValueEncodingType.SEPARATED


def struct(**fields: Any) -> struct_pb2.Struct:
    made = struct_pb2.Struct()
    made.update(fields)
    return made


ORDER = Order(item="pen", amount=3)
TYPES: list[tuple[Schema, Any]] = [
    (StringSchema(), "ümläut"),
    (JsonSchema(Order), ORDER),
    (AvroSchema(Order), ORDER),
    (AvroSchema(None, {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}), {"n": 2**40}),
    (ProtobufNativeSchema(struct_pb2.Struct), struct(a=1.0, b="x")),
    (ProtobufSchema(struct_pb2.Value), struct_pb2.Value(string_value="v")),
    (KeyValueSchema(StringSchema(), AvroSchema(Order)), KeyValue("k", ORDER)),
    (KeyValueSchema(AvroSchema(Order), JsonSchema(Order), SEPARATED), KeyValue(ORDER, ORDER)),
]
WAYS: list[dict[str, Any]] = [
    {"batching_enabled": True, "batching_max_publish_delay_ms": 20},
    {"chunking_enabled": True},
    {"access_mode": pulsar.ProducerAccessMode.Exclusive},
]


def comparable(value: Any) -> Any:
    """Records are compared by what they hold."""
    if isinstance(value, KeyValue):
        return comparable(value.key), comparable(value.value)
    return vars(value) if isinstance(value, Record) else value


@pytest.mark.parametrize(
    ("options", "schema", "value"),
    [*(({}, *given) for given in TYPES), *((options, AvroSchema(Order), ORDER) for options in WAYS)],
)
def test_a_value_of_every_type_arrives(
    client: pulsar.Client, admin: AdminClient, unique: Unique, options: dict[str, Any], schema: Schema, value: Any
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 2)
    producer = client.create_producer(topic, schema=schema, **options)
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST, schema=schema)
    for _ in range(3):
        producer.send_async(value, None)
    producer.flush()
    for _ in range(3):
        message = receive_one(consumer)
        assert comparable(message.value()) == comparable(value)
        assert message.schema_version() == shown(0)
    assert registered(admin, topic) == [schema.schema_info()]


def test_a_chunked_value_names_its_version_in_every_chunk(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    schema = AvroSchema(Order)
    producer = client.create_producer(topic, schema=schema, chunking_enabled=True)
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST, schema=schema)
    long = Order(item="x" * 12_000_000, amount=1)
    producer.send(long)
    message = receive_one(consumer)
    assert message.value().item == long.item
    assert message.schema_version() == shown(0)


def test_null_values(client: pulsar.Client, unique: Unique) -> None:
    for schema, null in ((StringSchema(), ""), (AvroSchema(Order), None), (JsonSchema(Order), None)):
        topic = unique()
        producer = client.create_producer(topic, schema=schema)
        consumer = client.subscribe(topic, "s", initial_position=EARLIEST, schema=schema)
        producer.send(None)
        message = receive_one(consumer)
        assert message.has_null_value()
        assert message.value() == null


def test_a_value_of_a_wrong_type_is_refused_at_once(client: pulsar.Client, unique: Unique) -> None:
    producer = client.create_producer(unique(), schema=JsonSchema(Order))
    with pytest.raises(TypeError, match="Order"):
        producer.send(b"bytes")
    producer.send(ORDER)


# What the registry says -----------------------------------------------------------------------------------------------


def test_an_incompatible_schema_is_refused_with_every_reason(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    client.create_producer(topic, schema=AvroSchema(Order))
    wrong = AvroSchema(None, {**OrderByText.schema(), "name": "Order"})
    with pytest.raises(pulsar.IncompatibleSchema) as refused:
        client.create_producer(topic, schema=wrong)
    assert "/fields/0" in str(refused.value)
    assert "/fields/1" in str(refused.value)
    with pytest.raises(pulsar.IncompatibleSchema):
        client.subscribe(topic, "s", schema=wrong)
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_reader(topic, pulsar.MessageId.earliest, schema=wrong)
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_table_view(topic, schema=wrong)
    with pytest.raises(pulsar.IncompatibleSchema):
        client.subscribe([topic, unique()], "s", schema=wrong)
    with pytest.raises(pulsar.IncompatibleSchema, match="SCHEMA_TYPE_CHANGED"):
        client.create_producer(topic, schema=JsonSchema(Order))
    assert len(registered(admin, topic)) == 1


@pytest.mark.parametrize("schema", [AutoConsumeSchema()], ids=str)
def test_a_producer_needs_a_schema_that_can_be_stored(client: pulsar.Client, unique: Unique, schema: Schema) -> None:
    with pytest.raises(pulsar.IncompatibleSchema, match="AUTO_CONSUME"):
        client.create_producer(unique(), schema=schema)


def test_thirty_producers_with_one_new_schema_make_one_version(
    client: pulsar.Client, admin: AdminClient, service_url: str, unique: Unique
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 3)
    other = pulsar.Client(service_url, operation_timeout_seconds=60)
    begin = threading.Barrier(30)

    def open_one(number: int) -> pulsar.Producer:
        begin.wait()
        return (client, other)[number % 2].create_producer(topic, schema=AvroSchema(Order))

    with ThreadPoolExecutor(30) as threads:
        producers = list(threads.map(open_one, range(30)))
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST, schema=AvroSchema(Order))
    for producer in producers:
        producer.send(ORDER)
    assert {receive_one(consumer).schema_version() for _ in producers} == {shown(0)}
    assert len(registered(admin, topic)) == 1
    other.close()


def test_a_topic_in_use_without_a_schema_has_no_consumers_with_one(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    client.subscribe(topic, "other")
    with pytest.raises(pulsar.IncompatibleSchema, match="in use without a schema"):
        client.subscribe(topic, "s", schema=AvroSchema(Order))
    assert registered(admin, topic) == []
    client.subscribe(topic, "s", schema=AutoConsumeSchema())


# Cost -----------------------------------------------------------------------------------------------------------------


class CountedLog:
    """A log that counts what this thread asks of the state topics; the node's own threads look there now and then."""

    def __init__(self, client: pulsar.Client, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[str, str]] = []
        self._thread = threading.get_ident()
        log = client._session.node().log
        for name in ("append", "append_many", "end_offset", "start_offset", "read", "read_at"):
            monkeypatch.setattr(log, name, self._counting(name, getattr(log, name)))

    def _counting(self, name: str, ask: Callable[..., Any]) -> Callable[..., Any]:
        def counted(topic: Any, *args: Any, **options: Any) -> Any:
            if threading.get_ident() == self._thread:
                self.asked.append((name, topic.name))
            return ask(topic, *args, **options)

        return counted

    def of_opening(self, client: pulsar.Client, topic: str, schema: Schema) -> list[tuple[str, str]]:
        self.asked.clear()
        client.create_producer(topic, schema=schema)
        return sorted(self.asked)


def test_a_known_schema_costs_no_round_trip(
    client: pulsar.Client, admin: AdminClient, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 2)
    schema = AvroSchema(Order)
    client.create_producer(topic, schema=schema)
    counted = CountedLog(client, monkeypatch)
    known = counted.of_opening(client, topic, schema)
    assert not [each for each in known if "schema" in each[1]]
    without = counted.of_opening(client, topic, BytesSchema())
    assert known == without
    new = counted.of_opening(client, topic, second_version())
    assert [each for each in new if "schema" in each[1]]  # the counting counts


# AUTO_PRODUCE_BYTES ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batching", [False, True])
def test_bytes_are_checked_against_the_topics_schema(client: pulsar.Client, unique: Unique, batching: bool) -> None:
    topic = unique()
    client.create_producer(topic, schema=JsonSchema(Order)).close()
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST, schema=JsonSchema(Order))
    producer = client.create_producer(topic, schema=AutoProduceBytesSchema(), batching_enabled=batching)
    with pytest.raises(pulsar.InvalidMessage, match="JSON"):
        producer.send(b"{")
    producer.send(b'{"item": "pen", "amount": 3}')
    message = receive_one(consumer)
    assert (vars(message.value()), message.schema_version()) == (vars(ORDER), shown(0))


@pytest.mark.parametrize("batching", [False, True])
def test_a_schema_that_came_later_is_taken_up_when_bytes_do_not_fit(
    client: pulsar.Client, admin: AdminClient, unique: Unique, batching: bool
) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    producer = client.create_producer(topic, schema=AutoProduceBytesSchema(), batching_enabled=batching)
    producer.send_async(b"anything: there is no schema yet", None)
    producer.flush()
    first = receive_one(consumer)
    assert (first.value(), first.schema_version()) == (b"anything: there is no schema yet", "")
    name = TopicName.parse(topic)
    narrow: dict[str, Any] = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "boolean"}]}
    wide = {**narrow, "fields": [*narrow["fields"], {"name": "b", "type": "long", "default": 0}]}
    admin.node.schemas.upload(name, AvroSchema(None, narrow).schema_info(), soon())
    reopened = client.create_producer(topic, schema=AutoProduceBytesSchema(), batching_enabled=batching)
    reopened.send_async(AvroSchema(None, narrow).encode({"a": True}), None)
    admin.node.schemas.upload(name, AvroSchema(None, wide).schema_info(), soon())
    with pytest.raises(pulsar.InvalidMessage):
        reopened.send(b"")  # fits neither; now the second version is known
    reopened.send(AvroSchema(None, wide).encode({"a": True, "b": 5}))
    read = [receive_one(consumer) for _ in range(2)]
    assert [message.schema_version() for message in read] == [shown(0), shown(1)]


def test_bytes_of_a_schema_of_ones_own(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    producer = client.create_producer(topic, schema=AutoProduceBytesSchema(AvroSchema(Order)))
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST, schema=AvroSchema(Order))
    producer.send(AvroSchema(Order).encode(ORDER))
    with pytest.raises(pulsar.InvalidMessage):
        producer.send(b"")
    assert vars(receive_one(consumer).value()) == vars(ORDER)
    assert latest_version(admin, topic) == 0


# Deletion -------------------------------------------------------------------------------------------------------------


def test_a_version_that_is_not_there_spoils_one_message_only(
    client: pulsar.Client, admin: AdminClient, bootstrap: str, unique: Unique
) -> None:
    from confluent_kafka import Producer as KafkaProducer

    topic = unique()
    producer = client.create_producer(topic, schema=AvroSchema(Order))
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST, schema=AvroSchema(Order))
    plain = KafkaProducer({"bootstrap.servers": bootstrap})
    kafka_topic = admin.topic_stats(topic).kafka_topic
    for version in (b"\0\0\0\0\0\0\0\7", b"short"):
        plain.produce(kafka_topic, b"??", headers=[("__pulsar.schema_version", version)])
    plain.flush(20)
    producer.send(ORDER)
    missing, broken, good = (receive_one(consumer) for _ in range(3))
    with pytest.raises(pulsar.InvalidMessage, match="schema version 7"):
        missing.value()
    with pytest.raises(pulsar.InvalidMessage, match="short"):
        broken.value()
    assert (missing.data(), broken.data()) == (b"??", b"??")
    assert vars(good.value()) == vars(ORDER)


def test_messages_outlive_the_deletion_of_their_schema(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    client.create_producer(topic, schema=AvroSchema(Order)).send(ORDER)
    admin.node.schemas.delete(TopicName.parse(topic), soon())
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST, schema=AutoConsumeSchema())
    assert receive_one(consumer).value() == {"item": "pen", "amount": 3}
    with pytest.raises(errors.NoSuchSchema):
        admin.node.schemas.schema(TopicName.parse(topic), latest_after(admin, topic), soon())


def latest_after(admin: AdminClient, topic: str) -> Any:
    """The deletion's own version."""
    from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion

    assert latest_version(admin, topic) is None
    return SchemaVersion(1)


@dataclass
class Trip:
    """As an earlier version of the program has it."""

    id: int
    day: date


@dataclass
class LaterTrip:
    id: int
    day: date
    stops: list[str] = field(default_factory=list)


@pytest.mark.parametrize("kind", [AvroSchema, JsonSchema])
def test_versions_of_a_dataclass(client: pulsar.Client, unique: Unique, kind: Callable[[type], Any]) -> None:
    topic, day = unique(), date(2026, 11, 30)
    earlier, later = kind(Trip), kind(type("Trip", (LaterTrip,), {}))
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST, schema=earlier)
    client.create_producer(topic, schema=earlier).send(Trip(1, day))
    assert receive_one(consumer).value() == Trip(1, day)
    reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=later)
    found = reader.read_next(60_000).value()
    assert (found.id, found.day, found.stops) == (1, day, [])
