"""confluent-kafka's Avro and JSON deserializers read rows that Spark wrote. For Spark the headers are no properties."""

from __future__ import annotations

from typing import Any

from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from pyspark.sql import SparkSession

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.embedded import Broker
from pulsar_on_kafka.schema import AvroSchema, Double, JsonSchema, Record
from pulsar_on_kafka.spark import read_pulsar, write_pulsar
from pulsar_on_kafka_mapping.records.record_headers import VALUE_SCHEMA_ID
from tests.schema_registries import a_schema_registry, confluents_client, deserialized, records_of
from tests.steps import Unique


class Measured(Record):
    n = Double(required=True)


def test_rows_that_spark_wrote(
    spark: SparkSession,
    client: pulsar.Client,
    admin: AdminClient,
    kafka_broker: Broker,
    service_url: str,
    unique: Unique,
) -> None:
    rows = spark.sql("select 1.5D as n, map('by', 'spark', '__value_schema_id', 'mine') as __messageProperties")
    with a_schema_registry(admin) as url, confluents_client(url) as registry:
        cases: tuple[tuple[Any, Any, Any], ...] = (
            (AvroSchema(Measured), AvroDeserializer(registry), {"n": 1.5}),
            (JsonSchema(Measured), JSONDeserializer(None, schema_registry_client=registry), {"n": 1.5}),
        )
        for schema, deserializer, expected in cases:
            topic = unique()
            admin.create_topic(topic)
            admin.set_policy(topic, "confluent_schema_ids", True)
            write_pulsar(rows, service_url=service_url, topic=topic, schema=schema)
            (record,) = records_of(kafka_broker.bootstrap, f"public.default.{topic}", 1)
            assert deserialized(record, deserializer) == expected
            (row,) = read_pulsar(spark, service_url=service_url, topic=topic).select("__messageProperties").collect()
            assert row["__messageProperties"] == {"by": "spark", VALUE_SCHEMA_ID: "mine"}
