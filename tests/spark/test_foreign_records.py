"""Absurd records by plain Kafka clients, among our own: Spark reads on, and what can be read is in its rows."""

from __future__ import annotations

from pyspark.sql import SparkSession

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.spark import read_pulsar
from tests.foreign_records import ForeignProducer, absurd_records
from tests.steps import Unique


def test_a_read_goes_on(
    spark: SparkSession, client: pulsar.Client, bootstrap: str, service_url: str, unique: Unique
) -> None:
    topic = unique()
    producer = client.create_producer(topic)
    producer.send(b"first")
    foreign = ForeignProducer(bootstrap)
    foreign.send(f"public.default.{topic}", absurd_records())
    foreign.close()
    producer.send(b"last")
    rows = read_pulsar(spark, service_url=service_url, topics=topic, columns="all").collect()
    values = [bytes(row["value"] or b"") for row in rows]
    assert {b"first", b"last"} <= set(values)
    assert values.count(b"foreign") > 30
