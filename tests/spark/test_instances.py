"""Spark writes and reads in an instance: topics are those of everybody, state is its own."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.spark import NotReadable, read_pulsar, write_pulsar
from tests.steps import Unique


def test_what_is_written_and_acknowledged_in_an_instance_is_seen_there_alone(
    spark: SparkSession, service_url: str, unique: Unique
) -> None:
    topic, where = unique(), {"service_url": service_url, "instance": "acme"}
    rows = spark.range(10).select(F.col("id").cast("string").cast("binary").alias("value"))
    with AdminClient(service_url, instance="acme") as admin:
        admin.create_topic(topic)
        admin.create_subscription(topic, "s", from_earliest=True)
        write_pulsar(rows, topic=topic, schema="bytes", transaction=True, **where)
        client = pulsar.Client(service_url, instance="acme")
        consumer = client.subscribe(topic, "s")
        for _ in range(4):
            consumer.acknowledge(consumer.receive(60_000), wait=True)
        client.close()
        assert read_pulsar(spark, topic=topic, subscription="s", **where).count() == 6
        assert read_pulsar(spark, topic=topic, **where).count() == 10
    with pytest.raises(NotReadable, match="does not exist"):
        read_pulsar(spark, service_url=service_url, topic=topic)
