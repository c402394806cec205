"""Reads without a subscription: every column as the SDK's messages show it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

import layer as pulsar
from layer.admin import AdminClient
from spark_connector import InvalidReadOption, NotReadable, PulsarReader, read_pulsar

COLUMNS = "all"


def read_all(client: pulsar.Client, topic: str) -> list[pulsar.Message]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(30_000))
    reader.close()
    return found


@pytest.mark.parametrize("partitions", [0, 3, 40])
def test_columns_are_what_messages_show(
    spark: SparkSession,
    client: pulsar.Client,
    admin: AdminClient,
    service_url: str,
    unique: Callable[..., str],
    partitions: int,
) -> None:
    topic = unique()
    if partitions:
        admin.create_partitioned_topic(topic, partitions, entries_per_ledger=3)
    else:
        admin.create_topic(topic, entries_per_ledger=3)
    producer = client.create_producer(topic, producer_name="p:1")
    for number in range(25):
        producer.send(
            f"m{number}".encode(),
            partition_key=f"k{number}" if number % 5 else None,
            ordering_key=f"o{number}" if number % 3 == 0 else None,
            event_timestamp=number * 1000 if number % 2 else None,
            properties={"a": str(number), "ü": "ß"} if number % 4 else {},
        )
    messages = {message.message_id().serialize(): message for message in read_all(client, topic)}
    rows = read_pulsar(spark, service_url=service_url, topic=topic, columns=COLUMNS).collect()
    assert len(rows) == 25
    for row in rows:
        message = messages[bytes(row["__messageId"])]
        assert bytes(row["value"]) == message.data()
        assert bytes(row["__key"] or b"").decode() == message.partition_key()
        assert bytes(row["__orderingKey"] or b"").decode() == message.ordering_key()
        assert row["__topic"] == message.topic_name()
        assert round(row["__publishTime"].timestamp() * 1000) == message.publish_timestamp()
        assert (round(row["__eventTime"].timestamp() * 1000) if row["__eventTime"] else 0) == message.event_timestamp()
        assert row["__messageProperties"] == message.properties()
        assert row["__producerName"] == "p:1"
        assert row["__partition"] == max(0, message.message_id().partition())
        assert row["__batchIndex"] is None
        assert row["__schemaVersion"] is None
    assert sorted(row["__sequenceId"] for row in rows) == list(range(25))


def test_the_fluent_form_reads_several_topics(
    spark: SparkSession, client: pulsar.Client, service_url: str, unique: Callable[..., str]
) -> None:
    names = [unique("a"), unique("b")]
    for name in names:
        client.create_producer(name).send(name.encode())
    found = PulsarReader(spark).option("service.url", service_url).options(topics=",".join(names)).load()
    assert sorted(bytes(row["value"]).decode() for row in found.collect()) == sorted(names)
    assert found.columns == ["value", "__key", "__topic", "__messageId", "__publishTime"]


def test_what_is_not_there_is_said_in_one_line(
    spark: SparkSession, client: pulsar.Client, service_url: str, unique: Callable[..., str]
) -> None:
    topic = unique()
    with pytest.raises(NotReadable, match="does not exist"):
        read_pulsar(spark, service_url=service_url, topic=topic)
    client.subscribe(topic, "here").close()
    with pytest.raises(InvalidReadOption, match="kafka://"):
        read_pulsar(spark, service_url="pulsar://localhost:6650", topic=topic)
    assert read_pulsar(spark, service_url=service_url, topic=topic).collect() == []
