"""Reads without a subscription: every column as the SDK's messages show it."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient as KafkaTool
from confluent_kafka.admin import NewTopic
from pyspark.sql import DataFrame, SparkSession

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.spark import InvalidReadOption, NotReadable, PulsarReader, read_pulsar
from pulsar_on_kafka_spark.options.read_options import HEADER_COLUMNS
from tests.steps import Unique

COLUMNS = "all"


def read_all(client: pulsar.Client, topic: str) -> list[pulsar.Message]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(30_000))
    reader.close()
    return found


def test_columns_are_what_messages_show(
    spark: SparkSession, client: pulsar.Client, admin: AdminClient, service_url: str, unique: Unique
) -> None:
    topics = {unique(f"of-{partitions}"): partitions for partitions in (0, 3, 40)}
    messages = {}
    for topic, partitions in topics.items():
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
        messages.update({message.message_id().serialize(): message for message in read_all(client, topic)})
    rows = read_pulsar(spark, service_url=service_url, topics=",".join(topics), columns=COLUMNS).collect()
    assert len(rows) == 75
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
    counted: dict[str, list[int]] = {}
    for row in rows:
        counted.setdefault(row["__topic"], []).append(row["__sequenceId"])
    assert all(sorted(ids) == list(range(len(ids))) for ids in counted.values()), "each partition counts for itself"


def test_the_fluent_form_reads_several_topics(
    spark: SparkSession, client: pulsar.Client, service_url: str, unique: Unique
) -> None:
    names = [unique("a"), unique("b")]
    for name in names:
        client.create_producer(name).send(name.encode())
    found = PulsarReader(spark).option("service.url", service_url).options(topics=",".join(names)).load()
    assert sorted(bytes(row["value"]).decode() for row in found.collect()) == sorted(names)
    assert found.columns == ["value", "__key", "__topic", "__messageId", "__publishTime", *HEADER_COLUMNS]


def test_what_is_not_there_is_said_in_one_line(
    spark: SparkSession, client: pulsar.Client, service_url: str, unique: Unique
) -> None:
    topic = unique()
    with pytest.raises(NotReadable, match="does not exist"):
        read_pulsar(spark, service_url=service_url, topic=topic)
    client.subscribe(topic, "here").close()
    with pytest.raises(InvalidReadOption, match="kafka://"):
        read_pulsar(spark, service_url="pulsar://localhost:6650", topic=topic)
    assert read_pulsar(spark, service_url=service_url, topic=topic).collect() == []


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def test_headers_are_read_where_somebody_may_have_written_more_than_plain_messages(
    spark: SparkSession, client: pulsar.Client, service_url: str, bootstrap: str, unique: Unique
) -> None:
    topic = unique()
    options = {"service_url": service_url, "topic": topic, "columns": "value,__key,__messageId"}
    producer = client.create_producer(topic)
    producer.send(b"a", partition_key="k", properties={"x": "y"})
    assert "headers#" not in plan_of(read_pulsar(spark, **options))
    assert "BatchScan" in plan_of(read_pulsar(spark, **options)), "the source's second version"
    everything = read_pulsar(spark, service_url=service_url, topic=topic)
    assert "headers#" in plan_of(everything)
    assert "headers#" not in plan_of(everything.select("value", "__messageId")), "nobody looks at them"
    assert [row["__messageProperties"] for row in everything.collect()] == [{"x": "y"}]
    assert everything.select("value").union(everything.select("__key")).count() == 2
    producer.send(b"b", ordering_key="o")
    assert "headers#" in plan_of(read_pulsar(spark, **options))
    assert [row["__key"] for row in read_pulsar(spark, **options).sort("__messageId").collect()] == [b"k", None]
    assert "headers#" not in plan_of(read_pulsar(spark, includeHeaders=False, **options))

    foreign = unique("foreign")
    tool = KafkaTool({"bootstrap.servers": bootstrap})
    tool.create_topics([NewTopic(f"public.default.{foreign}", 1)])[f"public.default.{foreign}"].result(30)
    client.create_producer(foreign).send(b"c")
    assert "headers#" in plan_of(read_pulsar(spark, **{**options, "topic": foreign})), "it is bound: who knows"


def test_topics_of_transactions_are_read_without_headers_but_for_what_was_aborted_just_now(
    spark: SparkSession, transactional: pulsar.Client, service_url: str, bootstrap: str, unique: Unique
) -> None:
    topic = unique()
    options = {"service_url": service_url, "topic": topic, "columns": "value,__key,__messageId"}

    def values() -> list[bytes | None]:
        rows = read_pulsar(spark, **options).sort("__messageId").collect()
        assert [row["value"] for row in read_pulsar(spark, includeHeaders=True, **options).collect()].count(
            None
        ) == len([row for row in rows if row["value"] is None])
        return [row["value"] for row in rows]

    producer = transactional.create_producer(topic)
    producer.send(b"before")
    expected: list[bytes | None] = [b"before"]
    for number in range(3):
        with transactional.new_transaction(60_000) as txn:
            producer.send(b"committed %d" % number, txn=txn, partition_key="k")
        expected.append(b"committed %d" % number)
    assert "headers#" not in plan_of(read_pulsar(spark, **options))
    assert values() == expected, "and no markers"

    raw = Producer({"bootstrap.servers": bootstrap})
    kafka_topic = f"public.default.{topic}"
    raw.produce(kafka_topic, None, headers=[("x", b"y")])
    raw.produce(kafka_topic, None, b"k")
    raw.flush(30)
    expected += [None, None]
    assert "headers#" not in plan_of(read_pulsar(spark, **options))
    assert values() == expected, "a record without a value is a message, where it is no marker"

    aborted = transactional.new_transaction(60_000)
    producer.send(b"aborted", txn=aborted)
    producer.send(b"between")
    aborted.abort()
    producer.send(b"after")
    expected += [b"between", b"after"]
    plan = plan_of(read_pulsar(spark, **options))
    assert "headers#" in plan, "another record of it may still have come"
    assert plan.count("BatchScan") == 2, "from where the first one may lie"
    assert values() == expected

    still_open = transactional.new_transaction(60_000)
    producer.send(b"open", txn=still_open)
    producer.send(b"behind")
    assert values() == expected
    still_open.commit()
    assert values() == [*expected, b"open", b"behind"]


@pytest.mark.long
def test_every_kind_of_record_that_headers_tell_of_is_announced(
    spark: SparkSession, transactional: pulsar.Client, service_url: str, unique: Unique
) -> None:
    kinds = ("batches", "delays", "null", "chunks", "null-in-a-transaction", "delays-in-a-transaction")
    topics = {kind: unique(kind) for kind in kinds}
    for topic in topics.values():
        transactional.create_producer(topic).send(b"plain")
    options = {"service_url": service_url, "columns": "value,__topic,__messageId"}
    before = read_pulsar(spark, topics=",".join(topics.values()), **options)
    assert "headers#" not in plan_of(before)
    for kind, topic in topics.items():
        producer = transactional.create_producer(
            topic, batching_enabled=kind == "batches", chunking_enabled=kind == "chunks"
        )
        if kind.endswith("in-a-transaction"):
            with transactional.new_transaction(60_000) as txn:
                if kind.startswith("null"):
                    producer.send(None, txn=txn)
                else:
                    producer.send(b"more", txn=txn, deliver_at=1)
        elif kind == "delays":
            producer.send(b"more", deliver_at=1)
        elif kind == "null":
            producer.send(None)
        else:
            producer.send(b"more")
        assert "headers#" in plan_of(read_pulsar(spark, topic=topic, **options)), kind
    found: dict[str, list[bytes | None]] = {}
    for row in read_pulsar(spark, topics=",".join(topics.values()), **options).sort("__messageId").collect():
        found.setdefault(row["__topic"].rpartition("/")[2], []).append(row["value"])
    assert found == {topic: [b"plain", None if kind.startswith("null") else b"more"] for kind, topic in topics.items()}
