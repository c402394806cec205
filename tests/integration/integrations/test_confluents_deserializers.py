"""confluent-kafka's deserializers read messages of the SDK and of an official client on a gateway."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField

import pulsar_on_kafka as sdk
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.embedded import Broker
from pulsar_on_kafka.gateway.server import Gateway, GatewaySettings
from pulsar_on_kafka.schema import (
    Array,
    AutoProduceBytesSchema,
    AvroSchema,
    Float,
    JsonSchema,
    KeyValue,
    KeyValueEncodingType,
    KeyValueSchema,
    Long,
    Map,
    ProtobufNativeSchema,
    Record,
    String,
)
from pulsar_on_kafka_mapping.records.record_headers import KEY_SCHEMA_ID, SCHEMA_IDS, VALUE_SCHEMA_ID
from tests.integration.client.test_encryption import key_pair
from tests.schema_registries import a_schema_registry, confluents_client, deserialized, records_of
from tests.steps import EARLIEST, SHARED, Unique, receive
from tests.unit.schema.protobuf_messages import made

pytestmark = pytest.mark.kafka


class Line(Record):
    item = String(required=True)
    price = Float()


class Order(Record):
    number = Long(required=True)
    note = String()
    lines = Array(Line())
    labels = Map(String())


class OrderKey(Record):
    shop = String(required=True)


def order(number: int) -> Order:
    return Order(number=number, note=None, lines=[Line(item="ä", price=1.5)], labels={"to": "Bern"})


EXPECTED = {"number": 1, "note": None, "lines": [{"item": "ä", "price": 1.5}], "labels": {"to": "Bern"}}


@pytest.fixture
def registry(admin: AdminClient) -> Iterator[SchemaRegistryClient]:
    with a_schema_registry(admin) as url, confluents_client(url) as found:
        yield found


@pytest.fixture
def topic(admin: AdminClient, unique: Unique) -> str:
    """A topic with the policy."""
    name = unique()
    admin.create_topic(name)
    admin.set_policy(name, "confluent_schema_ids", True)
    return name


def in_kafka(broker: Broker, topic: str, count: int) -> list[Any]:
    return records_of(broker.bootstrap, f"public.default.{topic}", count)


def ids_in(record: Any) -> set[str]:
    return {name for name, _ in record.headers() or ()} & SCHEMA_IDS


def deserializer_of(kind: str, registry: SchemaRegistryClient) -> Any:
    if kind == "avro":
        return AvroDeserializer(registry)
    return JSONDeserializer(None, schema_registry_client=registry)


@pytest.mark.parametrize(("kind", "schema"), [("avro", AvroSchema), ("json", JsonSchema)])
def test_records_of_the_sdk(
    client: sdk.Client, kafka_broker: Broker, registry: SchemaRegistryClient, topic: str, kind: str, schema: Any
) -> None:
    producer = client.create_producer(topic, schema=schema(Order), batching_enabled=True)
    for number in (1, 2):
        producer.send_async(order(number), None, properties={"by": "web"})
    producer.send_async(None, None)
    producer.flush()
    found = [deserialized(each, deserializer_of(kind, registry)) for each in in_kafka(kafka_broker, topic, 3)]
    assert found == [EXPECTED, {**EXPECTED, "number": 2}, None]
    consumer = client.subscribe(topic, "s", SHARED, schema=schema(Order), initial_position=EARLIEST)
    first = consumer.receive(60_000)
    assert (first.value().number, first.properties()) == (1, {"by": "web"})


def test_protobuf_of_the_sdk(
    client: sdk.Client, kafka_broker: Broker, registry: SchemaRegistryClient, admin: AdminClient, unique: Unique
) -> None:
    """A message of a file with an import, one within another message, and one of a file with a package."""
    string, outer = made("string"), made("p.Outer")
    for sent in (string(inner={"deep": {"e": 0}}), string.Inner(out={}), outer(n=1.5)):
        topic = unique()
        admin.create_topic(topic)
        admin.set_policy(topic, "confluent_schema_ids", True)
        client.create_producer(topic, schema=ProtobufNativeSchema(type(sent))).send(sent)
        (record,) = in_kafka(kafka_broker, topic, 1)
        deserializer = ProtobufDeserializer(type(sent), {"use.deprecated.format": False}, registry)
        assert deserialized(record, deserializer) == sent


def test_separated_keys_have_a_schema_of_their_own(
    client: sdk.Client, kafka_broker: Broker, registry: SchemaRegistryClient, topic: str
) -> None:
    schema = KeyValueSchema(AvroSchema(OrderKey), JsonSchema(Order), KeyValueEncodingType.SEPARATED)
    client.create_producer(topic, schema=schema).send(KeyValue(OrderKey(shop="Bern 3"), order(1)))
    (record,) = in_kafka(kafka_broker, topic, 1)
    assert ids_in(record) == {KEY_SCHEMA_ID, VALUE_SCHEMA_ID}
    assert deserialized(record, deserializer_of("avro", registry), MessageField.KEY) == {"shop": "Bern 3"}
    assert deserialized(record, deserializer_of("json", registry)) == EXPECTED


def test_bytes_of_the_topics_latest_schema(
    client: sdk.Client, kafka_broker: Broker, registry: SchemaRegistryClient, admin: AdminClient, topic: str
) -> None:
    admin.create_schema(topic, AvroSchema(Order).schema_info())
    producer = client.create_producer(topic, schema=AutoProduceBytesSchema(), batching_enabled=True)
    producer.send(AvroSchema(Order).encode(order(1)))
    assert deserialized(in_kafka(kafka_broker, topic, 1)[0], deserializer_of("avro", registry)) == EXPECTED


def test_records_without_a_header(
    client: sdk.Client, kafka_broker: Broker, admin: AdminClient, topic: str, unique: Unique, tmp_path: Path
) -> None:
    """Encrypted ones, those without a schema, and those of topics without the policy."""
    sealed = client.create_producer(
        topic,
        schema=AvroSchema(Order),
        encryption_key="k",
        crypto_key_reader=key_pair(tmp_path, "k"),
    )
    sealed.send(order(1))
    client.create_producer(topic).send(b"plain")
    elsewhere = unique()
    client.create_producer(elsewhere, schema=AvroSchema(Order)).send(order(1))
    assert [ids_in(each) for each in (*in_kafka(kafka_broker, topic, 2), *in_kafka(kafka_broker, elsewhere, 1))] == [
        set(), set(), set(),
    ]  # fmt: skip


def test_properties_with_the_names_of_the_headers_stay_properties(client: sdk.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", SHARED)
    producer = client.create_producer(topic, schema=AvroSchema(Order))
    producer.send(order(1), properties={VALUE_SCHEMA_ID: "mine", "other": "x"})
    (message,) = receive(consumer, 1)
    assert message.properties() == {VALUE_SCHEMA_ID: "mine", "other": "x"}


def test_dead_letters_are_read_with_the_schema_of_their_topic(
    client: sdk.Client, kafka_broker: Broker, registry: SchemaRegistryClient, admin: AdminClient, topic: str
) -> None:
    letters = f"{topic}-letters"
    admin.create_topic(letters)
    admin.set_policy(letters, "confluent_schema_ids", True)
    policy = sdk.ConsumerDeadLetterPolicy(max_redeliver_count=1, dead_letter_topic=letters)
    consumer = client.subscribe(
        topic, "s", SHARED, schema=AvroSchema(Order), dead_letter_policy=policy, negative_ack_redelivery_delay_ms=100
    )
    client.create_producer(topic, schema=AvroSchema(Order)).send(order(1))
    for _ in range(2):
        consumer.negative_acknowledge(consumer.receive(60_000))
    assert deserialized(in_kafka(kafka_broker, letters, 1)[0], deserializer_of("avro", registry)) == EXPECTED


def test_records_of_an_official_client_on_a_gateway(
    kafka_broker: Broker, admin: AdminClient, registry: SchemaRegistryClient, unique: Unique
) -> None:
    """Single messages, and compressed batches."""
    official: Any = pytest.importorskip("pulsar", reason="the official client, pulsar-client, is not installed")
    from pulsar import schema as theirs

    outer = made("p.Outer")

    class OfficialLine(theirs.Record):
        item = theirs.String(required=True)

    class Official(theirs.Record):
        number = theirs.Long(required=True)
        lines = theirs.Array(OfficialLine())

    expected = [{"number": number, "lines": [{"item": "ä"}]} for number in range(3)]
    gateway = Gateway(admin.node, GatewaySettings(port=0, fleet=unique("fleet")))
    try:
        client = official.Client(gateway.address(), logger=official.ConsoleLogger(official.LoggerLevel.Error))
        for kind, schema in (
            ("avro", theirs.AvroSchema(Official)),
            ("json", theirs.JsonSchema(Official)),
            ("protobuf", theirs.ProtobufNativeSchema(outer)),
        ):
            topic = unique()
            admin.create_topic(topic)
            admin.set_policy(topic, "confluent_schema_ids", True)
            batched = kind != "avro"
            producer = client.create_producer(
                topic,
                schema=schema,
                batching_enabled=batched,
                compression_type=official.CompressionType.ZLib if batched else official.CompressionType.NONE,
            )
            for number in range(3):
                sent: Any = Official(number=number, lines=[OfficialLine(item="ä")])
                if kind == "protobuf":
                    sent = outer(n=number)
                producer.send_async(sent, lambda *_: None, properties={"by": "web"})
            producer.flush()
            records = in_kafka(kafka_broker, topic, 3)
            if kind == "protobuf":
                deserializer: Any = ProtobufDeserializer(outer, {"use.deprecated.format": False}, registry)
                assert [deserialized(each, deserializer).n for each in records] == [0, 1, 2]
                continue
            assert [deserialized(each, deserializer_of(kind, registry)) for each in records] == expected
            consumer = client.subscribe(topic, "s", schema=schema, initial_position=official.InitialPosition.Earliest)
            first = consumer.receive(60_000)
            assert (first.value().number, first.properties()) == (0, {"by": "web"})
        client.close()
    finally:
        gateway.close(Deadline.after(60))
