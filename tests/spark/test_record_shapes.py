"""Records that contain themselves, and names that differ in case alone, are refused with the field on every way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.schema import AvroSchema, KeyValueEncodingType, KeyValueSchema, StringSchema
from pulsar_on_kafka.spark import InvalidWriteOption, NotReadable, read_pulsar, write_pulsar
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo, SchemaType
from tests.spark.streams import Stream, produce
from tests.steps import Unique

RECURSIVE = [{"name": "a", "type": "int"}, {"name": "next", "type": ["null", "T"], "default": None}]
ALIKE = [{"name": "id", "type": "int"}, {"name": "ID", "type": "int"}]
ITSELF = "contain themselves"
CASE = r"the fields id and ID of the value differ in case alone: set spark\.sql\.caseSensitive to true"


def _info(kind: SchemaType, fields: list[Any]) -> SchemaInfo:
    return SchemaInfo(kind, json.dumps({"type": "record", "name": "T", "fields": fields}).encode(), "T")


def _schemas(fields: list[Any]) -> list[SchemaInfo]:
    """Records, and key/values with the record as the value, and as the key."""
    record = AvroSchema(None, schema_definition={"type": "record", "name": "T", "fields": fields})
    of_value = KeyValueSchema(StringSchema(), record)
    of_key = KeyValueSchema(record, StringSchema(), KeyValueEncodingType.SEPARATED)
    alone = [_info(kind, fields) for kind in (SchemaType.AVRO, SchemaType.JSON)]
    return [*alone, of_value.schema_info(), of_key.schema_info()]


def test_reads_refuse_them(spark: SparkSession, client: pulsar.Client, service_url: str, unique: Unique) -> None:
    topic = unique()
    client.create_producer(topic).close()
    for fields, said in ((RECURSIVE, ITSELF), (ALIKE, CASE)):
        for info in _schemas(fields):
            with pytest.raises(NotReadable, match=f"schema of topic .*{topic} cannot be read: .*({said})"):
                read_pulsar(spark, service_url=service_url, topic=topic, schema=info)


def test_a_stream_refuses_them(
    spark: SparkSession, client: pulsar.Client, service_url: str, unique: Unique, tmp_path: Path
) -> None:
    topic = unique()
    client.subscribe(topic, "s").close()
    produce(client, topic, range(1))
    over = Stream(spark, service_url, topic, tmp_path, schema=_info(SchemaType.JSON, ALIKE))
    with pytest.raises(StreamingQueryException, match=CASE):
        over.run()


def test_writes_refuse_them(spark: SparkSession, service_url: str, unique: Unique) -> None:
    where = {"service_url": service_url, "topic": unique()}
    rows, alike = spark.createDataFrame([(1,)], "a int"), spark.createDataFrame([(1, 2)], "id int, ID int")
    for kind in (SchemaType.AVRO, SchemaType.JSON):
        with pytest.raises(InvalidWriteOption, match=r"field next is of the record T, .* contain themselves"):
            write_pulsar(rows, schema=_info(kind, RECURSIVE), **where)
        with pytest.raises(InvalidWriteOption, match="the columns id and ID differ in case alone: set spark"):
            write_pulsar(alike, schema=_info(kind, ALIKE), **where)
    with pytest.raises(InvalidWriteOption, match="the columns id and ID differ in case alone"):
        write_pulsar(alike, schema="avro", **where)
    nested = spark.createDataFrame([([(1, 2)],)], "at array<struct<x: int, X: int>>")
    with pytest.raises(InvalidWriteOption, match="the fields x and X of column at differ in case alone"):
        write_pulsar(nested, schema="json", **where)
