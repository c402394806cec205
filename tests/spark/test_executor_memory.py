"""Executors' memory is bounded by bytes where records are compressed by Kafka's producer."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.spark import read_pulsar
from pulsar_on_kafka_mapping.names.topic_name import TopicName, kafka_topic
from tests.spark.streams import Stream
from tests.steps import Unique

RECORDS = 2_000
SIZE = 900_000


@pytest.mark.soak
def test_records_that_are_small_in_kafka_alone_are_read(
    spark: SparkSession, admin: AdminClient, bootstrap: str, service_url: str, unique: Unique, tmp_path: Path
) -> None:
    """1.8 GB in less than one fetch, and a JVM of 1 GB."""
    topic = unique()
    admin.create_topic(topic)
    admin.create_subscription(topic, "s", from_earliest=True)
    _produce_zeros(bootstrap, topic)
    sizes = read_pulsar(spark, service_url=service_url, topic=topic).selectExpr("length(value) as size")
    assert [tuple(row) for row in sizes.groupBy("size").count().collect()] == [(SIZE, RECORDS)]
    found: list[int] = []
    Stream(spark, service_url, topic, tmp_path).run(
        lambda df, _: found.append(df.where(f"length(value) = {SIZE}").count())
    )
    assert sum(found) == RECORDS


def _produce_zeros(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "zstd", "linger.ms": 5})
    for _ in range(RECORDS):
        producer.produce(kafka_topic(TopicName.parse(topic)), value=bytes(SIZE))
        if len(producer) > 100:
            producer.flush()
    producer.flush()
