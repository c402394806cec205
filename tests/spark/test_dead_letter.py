"""`dead_letter`: rows become dead letters as consumers write them, once for a batch that runs again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.schema import Integer, JsonSchema, Record, String
from pulsar_on_kafka.spark import InvalidReadOption, dead_letter, read_pulsar
from tests.spark.streams import produce, rest
from tests.steps import receive

VALUE = "cast(cast(value as string) as int)"
BATCHING: dict[str, Any] = {
    "batching_enabled": True,
    "batching_max_messages": 6,
    "batching_max_publish_delay_ms": 60_000,
}


@pytest.fixture
def where(service_url: str, topic: str) -> dict[str, str]:
    return {"service_url": service_url, "topic": topic, "subscription": "s"}


def test_rows_become_letters_once_and_are_acknowledged(
    read: Callable[..., DataFrame], where: dict[str, str], client: pulsar.Client, admin: AdminClient, topic: str
) -> None:
    producer = client.create_producer(topic)
    for number in range(60):
        producer.send(str(number).encode(), properties={"colour": "red"}, partition_key="k", event_timestamp=7)
    producer.close()
    produce(client, topic, range(60, 120), **BATCHING)
    rows = read().where(f"{VALUE} % 5 = 0").selectExpr("__messageId", f"concat('no ', {VALUE}) as why")
    rows.cache()
    assert dead_letter(rows, **where, reasonColumn="why", initialSubscriptionName="keep") == 24
    assert dead_letter(rows, **where, reasonColumn="why") == 0  # a batch that is repeated
    assert rest(client, topic, 96) == [number for number in range(120) if number % 5]
    (letters,) = admin.dead_letter_topics(topic=topic)
    assert letters.topic.endswith(f"{topic}-s-DLQ")
    assert (letters.left, letters.subscription) == (24, "s")
    found = receive(client.subscribe(letters.topic, "keep"), 24)
    assert sorted(int(each.data()) for each in found) == list(range(0, 120, 5))
    for each in found:
        properties = each.properties()
        assert properties["REFUSAL_REASON"] == f"no {int(each.data())}"
        assert properties["REAL_SUBSCRIPTION"] == "s"
        assert properties["REAL_TOPIC"].rpartition("-partition-")[0].endswith(topic)
        assert properties["ORIGIN_MESSAGE_ID"].count(":") == (2 if int(each.data()) < 60 else 3)
        if int(each.data()) < 60:
            assert (properties["colour"], each.partition_key(), each.event_timestamp()) == ("red", "k", 7)


def test_a_message_in_chunks_becomes_a_letter(
    read: Callable[..., DataFrame], where: dict[str, str], client: pulsar.Client, topic: str
) -> None:
    large = bytes(range(256)) * 6_000  # more than a record may have
    producer = client.create_producer(topic, chunking_enabled=True)
    producer.send(large)
    producer.close()
    to = f"{topic}-rejects"
    assert dead_letter(read(subscription="s"), **where, deadLetterTopic=to, reason="too long") == 1
    assert rest(client, topic, 0) == []
    letter = client.create_reader(to, pulsar.MessageId.earliest).read_next(30_000)
    assert letter.data() == large
    assert letter.properties()["REFUSAL_REASON"] == "too long"


def test_what_dead_letters_need(read: Callable[..., DataFrame], where: dict[str, str]) -> None:
    rows = read(columns="__partition,__offset")
    with pytest.raises(InvalidReadOption, match="option resons is unknown, did you mean reason"):
        dead_letter(rows, **where, resons="x")
    with pytest.raises(InvalidReadOption, match="reason is 7, expected a text"):
        dead_letter(rows, **where, reason=7)
    with pytest.raises(InvalidReadOption, match="no subscription is given"):
        dead_letter(rows, **{**where, "subscription": None})
    with pytest.raises(InvalidReadOption, match="the columns are __partition, __offset: expected why among them"):
        dead_letter(rows, **where, reasonColumn="why")
    assert dead_letter(rows, **where) == 0


class Order(Record):
    item = String()
    count = Integer()


@pytest.mark.parametrize("by_format", [False, True])
def test_payloads_that_do_not_decode_are_kept_in_a_column(
    spark: SparkSession, client: pulsar.Client, where: dict[str, str], topic: str, by_format: bool
) -> None:
    orders = client.create_producer(topic, schema=JsonSchema(Order))
    orders.send(Order(item="chair", count=2))
    orders.send(Order())
    produce(client, topic, range(3, 4))  # a number is no order
    options = {**where, "mode": "PERMISSIVE", "columns": "value,__corruptRecord,__messageId"}
    source = spark.read.format("pulsar_on_kafka").options(**options)
    rows = source.load() if by_format else read_pulsar(spark, **options)
    assert rows.columns == ["item", "count", "__corruptRecord", "__messageId"]
    found = {(row["item"], row["count"], row["__corruptRecord"]) for row in rows.collect()}
    assert found == {("chair", 2, None), (None, None, None), (None, None, b"3")}
    assert dead_letter(rows.where("__corruptRecord is not null"), **where, reason="no order") == 1
    assert read_pulsar(spark, **options).count() == 2
