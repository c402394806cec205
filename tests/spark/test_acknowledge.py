"""`acknowledge`: what a DataFrame names, by message id or by place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.spark import acknowledge, read_pulsar
from pulsar_on_kafka_spark.base.errors import InvalidReadOption, NotReadable
from tests.spark.streams import produce, rest
from tests.steps import Unique

VALUE = "cast(cast(value as string) as int)"


@pytest.fixture
def topic(admin: AdminClient, unique: Unique) -> str:
    name = unique()
    admin.create_partitioned_topic(name, 3)
    admin.create_subscription(name, "s", from_earliest=True)
    return name


@pytest.fixture
def read(spark: SparkSession, service_url: str, topic: str) -> Callable[..., DataFrame]:
    def reading(**options: object) -> DataFrame:
        return read_pulsar(spark, service_url=service_url, topic=topic, **options)

    return reading


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
