"""Topics with schemas, read by Spark and by the SDK: row for row the same values."""

from __future__ import annotations

import re
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.schema import (
    AvroSchema,
    BytesSchema,
    JsonSchema,
    KeyValue,
    KeyValueEncodingType,
    KeyValueSchema,
    ProtobufNativeSchema,
    Schema,
    StringSchema,
)
from pulsar_on_kafka.spark import InvalidReadOption, NotReadable, SparkNotReady, read_pulsar
from pulsar_on_kafka_spark.base.connector_jars import package
from pulsar_on_kafka_spark.values.protobuf_values import has_protobuf_functions
from tests.integration.schema_support import set_policies
from tests.spark.test_decoding import AMOUNT, ITEM, NOTE, PLACE, Everything, as_python, avro, everything, plain
from tests.steps import Unique


def send(client: pulsar.Client, topic: str, schema: Schema, *values: Any) -> None:
    producer = client.create_producer(topic, schema=schema)
    for value in values:
        producer.send(value)
    producer.close()


def received(client: pulsar.Client, topic: str, schema: Schema) -> list[Any]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=schema)
    found = []
    while reader.has_message_available():
        found.append(as_python(reader.read_next(30_000).value()))
    reader.close()
    return found


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    """The values' columns, in the order of offsets."""
    names = [name for name in frame.columns if not name.startswith("__")]
    return [{name: plain(row[name]) for name in names} for row in frame.orderBy("__offset").collect()]


def read(spark: SparkSession, service_url: str, topic: str, **options: Any) -> DataFrame:
    return read_pulsar(spark, service_url=service_url, topic=topic, **{"columns": "value,__offset", **options})


def uses_headers(frame: DataFrame) -> bool:
    untyped: Any = frame
    return "headers" in untyped._jdf.queryExecution().executedPlan().toString()


@pytest.mark.parametrize("make", [AvroSchema, JsonSchema], ids=["avro", "json"])
def test_one_version(spark: SparkSession, client: pulsar.Client, service_url: str, unique: Unique, make: Any) -> None:
    topic, schema = unique(), make(Everything)
    send(client, topic, schema, *(everything(number) for number in range(10)))
    found = read(spark, service_url, topic)
    assert found.columns == [*Everything._fields, "__offset"]
    assert rows(found) == received(client, topic, schema)


def test_three_versions_of_avro(
    spark: SparkSession, client: pulsar.Client, admin: AdminClient, service_url: str, unique: Unique
) -> None:
    topic = unique()
    set_policies(admin, topic, schema_compatibility_strategy="BACKWARD")
    versions = [avro(ITEM, AMOUNT), avro(ITEM, AMOUNT, NOTE), avro(ITEM, AMOUNT, PLACE)]
    send(client, topic, versions[0], {"item": "a", "amount": 1})
    send(client, topic, versions[1], {"item": "b", "amount": 2, "note": "n"}, {"item": "c", "amount": 3, "note": None})
    send(client, topic, versions[2], {"item": "d", "amount": 4, "place": "there"})
    send(client, topic, versions[0], {"item": "e", "amount": 5})
    for number, reader in enumerate(versions):
        found = read(spark, service_url, topic, schema=number)
        assert rows(found) == received(client, topic, reader)
    assert rows(read(spark, service_url, topic)) == received(client, topic, versions[2])
    mine = avro(ITEM, {"name": "amount", "type": "long"}, {"name": "more", "type": "string", "default": "m"})
    found = read(spark, service_url, topic, schema=mine.schema_info())
    assert rows(found) == [{"item": i, "amount": n, "more": "m"} for n, i in enumerate("abcde", 1)]


def test_text_and_payloads_as_they_are(
    spark: SparkSession, client: pulsar.Client, service_url: str, unique: Unique
) -> None:
    topic = unique()
    send(client, topic, StringSchema(), "a", "ä", "")
    assert rows(read(spark, service_url, topic)) == [
        {"value": text} for text in received(client, topic, StringSchema())
    ]
    as_bytes = read(spark, service_url, topic, schema="bytes")
    assert rows(as_bytes) == [{"value": data} for data in received(client, topic, BytesSchema())]


@pytest.mark.parametrize("encoding", list(KeyValueEncodingType), ids=lambda encoding: encoding.name)
def test_key_values(
    spark: SparkSession, client: pulsar.Client, service_url: str, unique: Unique, encoding: KeyValueEncodingType
) -> None:
    topic = unique()
    schema = KeyValueSchema(StringSchema(), AvroSchema(Everything), encoding)
    send(client, topic, schema, *(KeyValue(f"k{n}", everything(n)) for n in range(5)), KeyValue("", None))
    sent = [{"key": one.key, "value": as_python(one.value)} for one in received(client, topic, schema)]
    assert rows(read(spark, service_url, topic)) == sent


def test_protobuf(spark: SparkSession, client: pulsar.Client, service_url: str, unique: Unique) -> None:
    topic = unique()
    schema = ProtobufNativeSchema(DescriptorProto.ReservedRange)
    send(client, topic, schema, DescriptorProto.ReservedRange(start=3, end=9))
    assert rows(read(spark, service_url, topic, schema="bytes")) == [{"value": b"\x08\x03\x10\x09"}]
    if has_protobuf_functions():
        assert rows(read(spark, service_url, topic)) == [{"start": 3, "end": 9}]
    else:
        with pytest.raises(SparkNotReady, match=f"add {re.escape(package('spark-protobuf'))} to"):
            read(spark, service_url, topic)


def test_what_cannot_be_decoded(spark: SparkSession, client: pulsar.Client, service_url: str, unique: Unique) -> None:
    topic = unique()
    send(client, topic, avro(ITEM), {"item": "a"})
    send(client, topic, BytesSchema(), b"\xff")
    with pytest.raises((PySparkException, Py4JJavaError), match=f"{topic}, partition 0, offset 1 cannot be decoded"):
        read(spark, service_url, topic).collect()
    assert rows(read(spark, service_url, topic, mode="permissive")) == [{"item": "a"}, {"item": None}]


def test_several_topics(spark: SparkSession, client: pulsar.Client, service_url: str, unique: Unique) -> None:
    first, second, third = unique("one"), unique("two"), unique("three")
    for topic, schema in ((first, avro(ITEM)), (second, avro(ITEM)), (third, avro(ITEM, PLACE))):
        send(client, topic, schema, {"item": topic, "place": "there"})
    options: dict[str, Any] = {"service_url": service_url, "columns": "value,__offset"}
    same = read_pulsar(spark, topics=f"{first},{second}", **options)
    assert {row["item"] for row in rows(same)} == {first, second}
    with pytest.raises(InvalidReadOption, match="the topics have different schemas"):
        read_pulsar(spark, topics=f"{first},{third}", **options)
    raw = read_pulsar(spark, topics=f"{first},{third}", allowDifferentTopicSchemas=True, **options)
    assert {type(row["value"]) for row in rows(raw)} == {bytes}


def test_refusals(spark: SparkSession, client: pulsar.Client, service_url: str, unique: Unique) -> None:
    topic = unique()
    send(client, topic, avro(ITEM), {"item": "a"})
    with pytest.raises(NotReadable, match="has no schema version 7"):
        read(spark, service_url, topic, schema=7)
    with pytest.raises(InvalidReadOption, match=r"of type STRING, that of topic .* of type AVRO"):
        read(spark, service_url, topic, schema=StringSchema().schema_info())
    with pytest.raises(InvalidReadOption, match="schema is 'xml', expected latest"):
        read(spark, service_url, topic, schema="xml")
    with pytest.raises(InvalidReadOption, match="mode is 'drop', expected FAILFAST or PERMISSIVE"):
        read(spark, service_url, topic, mode="drop")
