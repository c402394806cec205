"""`acknowledge`: what a DataFrame names, by message id or by place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.client.values.texts import message_id_text
from pulsar_on_kafka.spark import BatchContext, acknowledge, read_pulsar
from pulsar_on_kafka_spark.base.errors import InvalidReadOption, NotReadable
from tests.spark.streams import Stream, produce, receive_all, rest
from tests.steps import SHARED, Unique

VALUE = "cast(cast(value as string) as int)"


@pytest.fixture
def topic(admin: AdminClient, unique: Unique) -> str:
    name = unique()
    admin.create_partitioned_topic(name, 3)
    admin.create_subscription(name, "s", from_earliest=True)
    return name


def test_rows_by_message_id(
    read: Callable[..., DataFrame], client: pulsar.Client, service_url: str, topic: str
) -> None:
    produce(client, topic, range(300))
    where = {"service_url": service_url, "topic": topic, "subscription": "s"}
    assert acknowledge(read().where(f"{VALUE} % 3 = 0"), **where) == 100
    assert rest(client, topic, 200) == [number for number in range(300) if number % 3]
    assert acknowledge(read(subscription="s").where(f"{VALUE} < 200"), **where) == 133
    assert rest(client, topic, 67) == [number for number in range(200, 300) if number % 3]


def test_rows_by_place(read: Callable[..., DataFrame], client: pulsar.Client, service_url: str, topic: str) -> None:
    produce(client, topic, range(100))
    rows = read(columns="value,__partition,__offset,__batchIndex").where(f"{VALUE} >= 10")
    assert acknowledge(rows, service_url=service_url, topic=topic, subscription="s") == 90
    assert rest(client, topic, 10) == list(range(10))


@pytest.mark.parametrize("partitions", [pytest.param(0, marks=pytest.mark.long), 3])
def test_texts_are_readable_and_name_messages(
    spark: SparkSession,
    client: pulsar.Client,
    admin: AdminClient,
    service_url: str,
    unique: Unique,
    partitions: int,
    tmp_path: Path,
) -> None:
    topic = unique("texts")
    if partitions:
        admin.create_partitioned_topic(topic, partitions, entries_per_ledger=2)
    else:
        admin.create_topic(topic, entries_per_ledger=2)
    where = {"service_url": service_url, "topic": topic, "subscription": "s"}
    consumer = client.subscribe(topic, "s", SHARED)
    plain = client.create_producer(topic)
    for number in range(6):
        plain.send(str(number).encode(), partition_key=f"k{number % 3}")
    alone = read_pulsar(spark, textColumns="true", columns="__messageId,__key,__orderingKey,value", **where)
    assert dict(alone.dtypes) == {
        "__messageId": "string",
        "__key": "string",
        "__orderingKey": "string",
        "value": "binary",
    }
    assert acknowledge(alone.where("value < '1'"), **where) == 1
    produce(client, topic, range(6, 12), batching_enabled=True, batching_max_messages=3)
    rows = read_pulsar(spark, textColumns=True, **where)
    expected = {}
    for message in receive_all(consumer, 12):
        found, batch = message.message_id(), message.message_id().batch_index() >= 0
        size = f":{found.batch_size()}" if batch else ""
        expected[int(message.data())] = (message_id_text(found) + size, message.partition_key() or None)
    consumer.close()
    shown = {int(bytes(row["value"])): (row["__messageId"], row["__key"]) for row in rows.collect()}
    assert shown == {number: expected[number] for number in range(1, 12)}
    acknowledge(rows.where(f"{VALUE} in (2, 7, 9)"), **where)
    assert rest(client, topic, 8) == [1, 3, 4, 5, 6, 8, 10, 11]

    def refusing(df: DataFrame, batch_id: int, context: BatchContext) -> None:
        context.negative_acknowledge(df.where(f"{VALUE} in (3, 6)"))
        context.negative_acknowledge([expected[4][0], expected[11][0]])

    Stream(spark, service_url, topic, tmp_path, textColumns=True).run(refusing)
    assert rest(client, topic, 4) == [3, 4, 6, 11]
    short = spark.createDataFrame([(expected[6][0].rpartition(":")[0],)], "`__messageId` string")
    with pytest.raises(NotReadable, match="ends with the batch's size, ledger:entry:partition:index:size"):
        acknowledge(short, **where)


@pytest.mark.long
def test_messages_of_batches(
    read: Callable[..., DataFrame], client: pulsar.Client, service_url: str, topic: str
) -> None:
    options = {"batching_enabled": True, "batching_max_messages": 100, "batching_max_publish_delay_ms": 60_000}
    produce(client, topic, range(1000), **options)
    where = {"service_url": service_url, "topic": topic, "subscription": "s"}
    acknowledge(read().where(f"{VALUE} % 5 <> 0"), **where)
    assert rest(client, topic, 200) == list(range(0, 1000, 5))
    acknowledge(read().where(f"{VALUE} % 10 = 0"), **where)
    assert rest(client, topic, 100) == list(range(5, 1000, 10))
    acknowledge(read(), **where)
    assert rest(client, topic, 0) == []


@pytest.mark.long
def test_what_cannot_be_found_is_refused(
    read: Callable[..., DataFrame],
    spark: SparkSession,
    client: pulsar.Client,
    admin: AdminClient,
    service_url: str,
    topic: str,
    unique: Unique,
) -> None:
    produce(client, topic, range(10))
    where = {"service_url": service_url, "topic": topic, "subscription": "s"}
    with pytest.raises(NotReadable, match="expected __messageId, or __partition and __offset"):
        acknowledge(read(columns="value"), **where)
    with pytest.raises(NotReadable, match="no __messageId that can be read"):
        acknowledge(spark.createDataFrame([(b"what",)], "`__messageId` binary"), **where)
    with pytest.raises(InvalidReadOption, match="no subscription is given"):
        acknowledge(read(), service_url=service_url, topic=topic)
    other = unique("other")
    admin.create_topic(other)
    admin.create_subscription(other, "s", from_earliest=True)
    with pytest.raises(NotReadable, match="a message is of another topic"):
        acknowledge(read(), service_url=service_url, topic=other, subscription="s")
    assert rest(client, topic, 10) == list(range(10))
