"""`spark.read.format("pulsar_on_kafka")` and `spark.readStream.format(...)` on a real broker."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.kafka.records import headers_of
from pulsar_on_kafka.spark import read_pulsar
from pulsar_on_kafka_spark.source.stream_reader import HAS_LIMITS
from tests.spark.streams import produce, rest
from tests.steps import SHARED, Unique

FORMAT = "pulsar_on_kafka"


class Source:
    """A topic as a source, and one stream over it with its checkpoint."""

    def __init__(self, spark: SparkSession, url: str, topic: str, directory: Path) -> None:
        self.spark = spark
        self.options = {"service.url": url, "topic": topic}
        self.checkpoint = str(directory / "checkpoint")
        self.table = str(directory / "table")

    def read(self, **options: Any) -> DataFrame:
        return self.spark.read.format(FORMAT).options(**self.options, **options).load()

    def stream(self, **options: Any) -> DataFrame:
        return self.spark.readStream.format(FORMAT).options(**self.options, **options).load()

    def run(self, **options: Any) -> StreamingQuery:
        """Everything that there is now, as texts into a Parquet table."""
        writer = self.stream(subscription="s", **options).selectExpr("string(value) AS text").writeStream
        writer = writer.format("parquet").option("checkpointLocation", self.checkpoint).trigger(availableNow=True)
        query = writer.start(self.table)
        query.awaitTermination()
        return query

    def written(self) -> Counter[int]:
        return Counter(int(row["text"]) for row in self.spark.read.parquet(self.table).collect())


@pytest.fixture
def source(spark: SparkSession, service_url: str, topic: str, tmp_path: Path) -> Source:
    return Source(spark, service_url, topic, tmp_path)


def once(*parts: range) -> Counter[int]:
    return Counter(number for part in parts for number in part)


def acknowledge(client: pulsar.Client, topic: str, numbers: range) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=SHARED)
    left = set(numbers)
    while left:
        message = consumer.receive(30_000)
        if int(message.data()) in left:
            consumer.acknowledge(message)
            left.remove(int(message.data()))
    consumer.close()


def test_a_read_has_the_columns_and_rows_of_read_pulsar(
    source: Source, client: pulsar.Client, topic: str, spark: SparkSession
) -> None:
    produce(client, topic, range(100), properties={"a": "b"})
    acknowledge(client, topic, range(0, 100, 2))
    for options in (
        {},
        {"columns": "all"},
        {"columns": "value,__offset", "minPartitions": "7"},
        {"textColumns": "true"},
    ):
        ours = source.read(subscription="s", **options)
        theirs = read_pulsar(spark, **source.options, subscription="s", **options)
        assert ours.schema.simpleString() == theirs.schema.simpleString()
        assert sorted(map(str, ours.collect())) == sorted(map(str, theirs.collect()))
        assert ours.count() == 50


def test_columns_are_chosen_by_a_schema(source: Source, client: pulsar.Client, topic: str) -> None:
    produce(client, topic, range(3))
    frame = source.spark.read.format(FORMAT).options(**source.options).schema("__offset bigint, value binary").load()
    assert frame.columns == ["__offset", "value"]
    assert frame.count() == 3
    with pytest.raises(PySparkException, match="column value of the given schema is string, expected binary"):
        source.spark.read.format(FORMAT).options(**source.options).schema("value string").load().collect()


def test_options_are_checked(source: Source) -> None:
    with pytest.raises(PySparkException, match="option subscribtion is unknown, did you mean"):
        source.read(subscribtion="s")
    with pytest.raises(PySparkException, match=r"kafka\.a configures Kafka's Java client"):
        source.read(**{"kafka.a": "b"})
    with pytest.raises(PySparkException, match="has no subscription 'none'"):
        source.stream(subscription="none").writeStream.format("noop").option(
            "checkpointLocation", source.checkpoint
        ).start().awaitTermination()


def test_sql_has_views_of_topics(source: Source, client: pulsar.Client, topic: str) -> None:
    produce(client, topic, range(3))
    said = f"USING {FORMAT} OPTIONS ('service.url' '{source.options['service.url']}', topic '{topic}')"
    source.spark.sql(f"CREATE TEMPORARY VIEW of_topic {said}")
    assert source.spark.sql("SELECT count(*) AS rows FROM of_topic").first() == (3,)
    source.spark.catalog.dropTempView("of_topic")
    with pytest.raises(PySparkException, match="expected CREATE TEMPORARY VIEW"):
        source.spark.sql(f"CREATE TABLE of_topic {said}")


def test_a_stream_delivers_each_message_once_over_restarts(source: Source, client: pulsar.Client, topic: str) -> None:
    produce(client, topic, range(500))
    acknowledge(client, topic, range(100, 200))
    limits = {"maxOffsetsPerTrigger": "200"} if HAS_LIMITS else {}
    query = source.run(**limits)
    assert len([each for each in query.recentProgress if each["numInputRows"]]) == (3 if HAS_LIMITS else 1)
    assert rest(client, topic) == ([] if HAS_LIMITS else [*range(100), *range(200, 500)])  # see docs/spark.md
    produce(client, topic, range(500, 600))
    source.run(**limits)
    assert source.written() == once(range(100), range(200, 600))
    assert rest(client, topic) == ([] if HAS_LIMITS else list(range(500, 600)))


@pytest.mark.skipif(HAS_LIMITS, reason="this version of Spark has limits")
def test_limits_of_streams_need_spark_4_2(source: Source) -> None:
    with pytest.raises(PySparkException, match=r"have limits from Spark 4\.2 on"):
        source.run(maxOffsetsPerTrigger="200")


def test_a_stream_without_a_subscription_acknowledges_nothing(
    source: Source, client: pulsar.Client, topic: str
) -> None:
    produce(client, topic, range(50))
    del source.options["topic"]
    stream = source.spark.readStream.format(FORMAT).options(**source.options, topic=topic).load()
    writer = stream.writeStream.format("noop").option("checkpointLocation", source.checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    assert rest(client, topic, 50) == list(range(50))


@pytest.mark.parametrize("plain", [True, False])
def test_a_late_record_of_an_aborted_transaction_is_no_row(
    source: Source,
    transactional: pulsar.Client,
    admin: AdminClient,
    unique: Unique,
    spark: SparkSession,
    *,
    plain: bool,
) -> None:
    """A paused producer's record arrives behind the marker: only its header tells."""
    topic = source.options["topic"] = unique()
    producer = transactional.create_producer(topic, batching_enabled=not plain)
    producer.send(b"1")
    txn = transactional.new_transaction(60_000)
    producer.send(b"aborted", txn=txn)
    txn.abort()
    copy_last_message(admin, topic, b"late")
    producer.send(b"2")
    for options in ({}, {"columns": "value"}):
        rows = source.read(**options).collect()
        assert sorted(bytes(row["value"]) for row in rows) == [b"1", b"2"]
        assert read_pulsar(source.spark, **source.options, **options).count() == 2


def copy_last_message(admin: AdminClient, topic: str, value: bytes) -> None:
    """Write the topic's last record that is no marker once more, with this value."""
    node, kafka_topic = admin.node, admin.topic_stats(topic).kafka_topic
    end = node.fetcher.log_end(kafka_topic, 0, Deadline.after(30))
    records = [r for batch in node.fetcher.read(kafka_topic, 0, 0, end, Deadline.after(30)) for r in batch]
    last = [record for record in records if record.value() is not None][-1]
    copier = Producer({"bootstrap.servers": node.settings.bootstrap})
    copier.produce(kafka_topic, value, last.key(), partition=0, headers=[*(headers_of(last) or ())])
    assert copier.flush(30) == 0
