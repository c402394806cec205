"""Spark returns for a subscription what its next consumer gets, row for row."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient as KafkaTool
from pyspark.sql import DataFrame, SparkSession

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.spark import DataLoss, InvalidReadOption, NotReadable, acknowledge, read_pulsar, stream_pulsar
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.records.message_record import key_text
from pulsar_on_kafka_spark.planning import read_bounds as bounds
from pulsar_on_kafka_spark.planning import visibility
from pulsar_on_kafka_spark.reading import record_filters
from tests.integration.client.test_void_records import a_name_with_a_dead_holder, a_paused_producer_writes
from tests.steps import Unique, receive

Shown = tuple[object, ...]
EVERYTHING = "value,__key,__topic,__messageId,__publishTime,__eventTime,__messageProperties"


def rows_of(frame: DataFrame) -> Counter[Shown]:
    def millis(time: Any) -> int:
        return 0 if time is None else round(time.timestamp() * 1000)

    return Counter(
        (
            bytes(row["__messageId"]),
            bytes(row["value"] or b""),
            row["__topic"],
            key_text(None if row["__key"] is None else bytes(row["__key"])),
            millis(row["__publishTime"]),
            millis(row["__eventTime"]),
            *sorted(row["__messageProperties"].items()),
        )
        for row in frame.collect()
    )


def shown(messages: list[pulsar.Message]) -> Counter[Shown]:
    return Counter(
        (
            message.message_id().serialize(),
            message.data(),
            message.topic_name(),
            message.partition_key(),
            message.publish_timestamp(),
            message.event_timestamp(),
            *sorted(message.properties().items()),
        )
        for message in messages
    )


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


@pytest.mark.parametrize(("most", "joins"), [(record_filters._MAX_IN_PLAN, 0), (0, 1)], ids=["literal", "join"])
def test_the_plan_is_compiled_and_joins_many_excluded_offsets_alone(
    spark: SparkSession,
    client: pulsar.Client,
    service_url: str,
    unique: Unique,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    joins: int,
) -> None:
    monkeypatch.setattr(record_filters, "_MAX_IN_PLAN", most)
    topic = unique()
    consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic)
    for number in range(20):
        producer.send(str(number).encode())
    for message in receive(consumer, 20)[1::2]:
        consumer.acknowledge(message)
    consumer.close()
    frame = read_pulsar(spark, service_url=service_url, topic=topic, subscription="s").select("value", "__messageId")
    assert len(frame.collect()) == 10
    plan = plan_of(frame).partition("== Initial Plan ==")[0]
    assert "Python" not in plan
    assert "Arrow" not in plan
    assert plan.count("BroadcastHashJoin") == joins
    assert "NestedLoop" not in plan
    assert "SortMergeJoin" not in plan
    stages = [line for line in plan.splitlines() if "Join" in line or " Filter " in line]
    assert stages
    assert all("*(" in line for line in stages), plan


def test_what_a_transaction_moves_while_topics_are_looked_at_is_never_in_both(
    spark: SparkSession,
    transactional: pulsar.Client,
    service_url: str,
    unique: Unique,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, target = unique("source"), unique("target")
    consumer = transactional.subscribe(source, "s", pulsar.ConsumerType.Shared)
    transactional.subscribe(target, "s", pulsar.ConsumerType.Shared).close()
    transactional.create_producer(source).send(b"moved")
    moves = iter(receive(consumer, 1))

    def moving(*asked: Any) -> Any:
        for moved in moves:
            txn = transactional.new_transaction(60_000)
            transactional.create_producer(target).send(moved.data(), txn=txn)
            consumer.acknowledge(moved, txn=txn)
            txn.commit()
        return bounds.requested_ranges(*asked)

    monkeypatch.setattr(visibility, "requested_ranges", moving)
    options = {"service.url": service_url, "topics": f"{source},{target}", "subscription": "s", "schema": "bytes"}
    for _ in range(2):  # the second time, it was moved
        assert [bytes(row["value"]) for row in read_pulsar(spark, **options).select("value").collect()] == [b"moved"]


def test_an_open_transaction_at_the_end_holds_back_what_lies_behind_its_first_record(
    spark: SparkSession, transactional: pulsar.Client, service_url: str, unique: Unique
) -> None:
    topic = unique()
    producer = transactional.create_producer(topic)
    producer.send(b"before")
    txn = transactional.new_transaction(60_000)
    aborted = transactional.new_transaction(60_000)
    producer.send(b"never", txn=aborted)
    aborted.abort()
    producer.send(b"between")
    producer.send(b"open", txn=txn)
    producer.send(b"behind")

    def values() -> list[bytes]:
        return [bytes(row["value"]) for row in read_pulsar(spark, service_url=service_url, topic=topic).collect()]

    assert values() == [b"before", b"between"]
    txn.commit()
    assert values() == [b"before", b"between", b"open", b"behind"]


@pytest.mark.long
def test_messages_of_later_are_given_to_those_who_get_them_at_once(
    spark: SparkSession, client: pulsar.Client, service_url: str, unique: Unique
) -> None:
    topic = unique()
    for name, kind in (("shared", pulsar.ConsumerType.Shared), ("failover", pulsar.ConsumerType.Failover)):
        client.subscribe(topic, name, consumer_type=kind).close()
    producer = client.create_producer(topic)
    producer.send(b"now")
    producer.send(b"in an hour", deliver_after=timedelta(hours=1))

    def values(**options: str) -> list[bytes]:
        found = read_pulsar(spark, service_url=service_url, topic=topic, **options).collect()
        return [bytes(row["value"]) for row in found]

    assert values(subscription="shared") == [b"now"]
    assert values(subscription="failover") == [b"now", b"in an hour"]
    assert values() == [b"now", b"in an hour"]


def test_bounds_are_ids_and_times_and_both_ends_belong_to_it(
    spark: SparkSession, client: pulsar.Client, service_url: str, unique: Unique
) -> None:
    topic = unique()
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1_000)
    for number in range(12):
        producer.send_async(str(number).encode(), None)
        if number % 4 == 3:
            producer.flush()
    messages = []
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    while reader.has_message_available():
        messages.append(reader.read_next(30_000))

    def values(**options: Any) -> list[str]:
        found = read_pulsar(spark, service_url=service_url, topic=topic, **options).collect()
        return [bytes(row["value"]).decode() for row in found]

    ids = [message.message_id() for message in messages]
    full = f"persistent://public/default/{topic}"
    assert values(startingOffsets={full: ids[2]}, endingOffsets={full: ids[9]}) == [str(n) for n in range(2, 10)]
    assert values(startingTime=messages[-1].publish_timestamp() + 60_000) == []
    assert values(endingTime=1) == []
    with pytest.raises(InvalidReadOption, match="expected a start that is not behind the end"):
        values(startingOffsets={full: ids[9]}, endingOffsets={full: ids[2]})
    beyond = NativeMessageId(-1, ids[-1].ledger_id(), ids[-1].entry_id() + 1, -1)
    with pytest.raises(InvalidReadOption, match="is to end with offset 3, the last one is 2"):
        values(endingOffsets={full: beyond})
    with pytest.raises(InvalidReadOption, match="has a bound and is not read"):
        values(endingOffsets={"another": ids[0]})


def test_what_kafka_deleted_is_told_apart_from_what_nobody_misses(
    spark: SparkSession, client: pulsar.Client, bootstrap: str, service_url: str, unique: Unique
) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic)
    for number in range(10):
        producer.send(str(number).encode())
    for message in receive(consumer, 10)[1:4]:
        consumer.acknowledge(message)
    consumer.close()

    def values(**options: Any) -> list[str]:
        found = read_pulsar(spark, service_url=service_url, topic=topic, **options).collect()
        return [bytes(row["value"]).decode() for row in found]

    tool = KafkaTool({"bootstrap.servers": bootstrap})
    for future in tool.delete_records([TopicPartition(f"public.default.{topic}", 0, 3)]).values():
        future.result(30)
    with pytest.raises(DataLoss, match="at most 1 messages of partitions \\[0\\]"):
        values(subscription="s")
    assert values(subscription="s", failOnDataLoss=False) == ["4", "5", "6", "7", "8", "9"]
    assert values() == [str(number) for number in range(3, 10)]


@pytest.mark.long
def test_what_holds_no_message_is_passed_by_who_acknowledges_what_is_behind_it(
    spark: SparkSession,
    transactional: pulsar.Client,
    bootstrap: str,
    service_url: str,
    unique: Unique,
    tmp_path: Path,
) -> None:
    topic = unique()
    where = {"service_url": service_url, "topic": topic}
    for subscription in ("batch", "stream"):
        transactional.subscribe(topic, subscription).close()
    producer = transactional.create_producer(topic)
    for ending in ("abort", "commit"):
        txn = transactional.new_transaction(60_000)
        producer.send(ending.encode(), txn=txn)
        getattr(txn, ending)()
    producer.send(b"alone")
    producer.send(b"last")

    def values(subscription: str) -> list[bytes]:
        return [bytes(row["value"]) for row in read_pulsar(spark, subscription=subscription, **where).collect()]

    assert values("batch") == [b"commit", b"alone", b"last"]
    frame = read_pulsar(spark, subscription="batch", **where).where("value <> cast('last' as binary)")
    assert acknowledge(frame, subscription="batch", **where) == 2
    stream = stream_pulsar(spark, subscription="stream", **where)
    query = stream.foreach_batch(lambda df, number: None, checkpoint=str(tmp_path), available_now=True)
    query.awaitTermination()
    # Aborted, its marker, committed, its marker, alone: of all that only two were messages.
    with AdminClient(service_url) as admin:
        marks = [admin.subscription_stats(topic, name).partitions[0].mark_delete for name in ("batch", "stream")]
    assert marks == [4, 5]
    tool = KafkaTool({"bootstrap.servers": bootstrap})
    for future in tool.delete_records([TopicPartition(f"public.default.{topic}", 0, 5)]).values():
        future.result(30)
    assert values("batch") == [b"last"]
    assert values("stream") == []


def test_a_subscription_that_is_not_there_is_named_beside_those_that_are(
    spark: SparkSession, client: pulsar.Client, service_url: str, unique: Unique
) -> None:
    topic = unique()
    client.subscribe(topic, "here").close()
    with pytest.raises(NotReadable, match="has no subscription 'there'; it has here"):
        read_pulsar(spark, service_url=service_url, topic=topic, subscription="there")


def test_what_a_former_exclusive_producer_wrote_too_late_is_left_out(
    spark: SparkSession, client: pulsar.Client, service_url: str, unique: Unique
) -> None:
    topic = unique()
    first = client.create_producer(topic)
    first.send(b"before")
    first.close()
    a_paused_producer_writes(service_url, topic, b"in time", epoch=0)
    exclusive = client.create_producer(topic, access_mode=pulsar.ProducerAccessMode.Exclusive)
    exclusive.send(b"first of its epoch")
    a_paused_producer_writes(service_url, topic, b"void", epoch=0)
    exclusive.send(b"after")
    found = read_pulsar(spark, service_url=service_url, topic=topic).collect()
    assert [bytes(row["value"]) for row in found] == [b"before", b"in time", b"first of its epoch", b"after"]
    client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest).close()
    assert read_pulsar(spark, service_url=service_url, topic=topic, subscription="s").count() == 4


@pytest.mark.kills
def test_what_a_dead_holder_of_a_producer_name_wrote_too_late_is_left_out(
    spark: SparkSession, client: pulsar.Client, admin: AdminClient, service_url: str, unique: Unique
) -> None:
    topic = unique()
    epoch = a_name_with_a_dead_holder(client, admin, service_url, topic)
    producer = client.create_producer(topic, producer_name="p")
    producer.send(b"2", sequence_id=2)
    a_paused_producer_writes(service_url, topic, b"late", epoch=epoch, name="p", sequence_id=2)
    producer.send(b"3", sequence_id=3)
    for columns in ([], ["value"]):
        found = read_pulsar(spark, service_url=service_url, topic=topic, columns=",".join(columns) or None).collect()
        assert [bytes(row["value"]) for row in found] == [b"0", b"1", b"2", b"3"]
    client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest).close()
    assert read_pulsar(spark, service_url=service_url, topic=topic, subscription="s").count() == 4


@pytest.mark.long
def test_many_aborted_transactions_cost_no_more_than_their_offsets(
    spark: SparkSession, transactional: pulsar.Client, service_url: str, unique: Unique
) -> None:
    topic = unique()
    producer = transactional.create_producer(topic, block_if_queue_full=True)
    for number in range(90):
        txn = transactional.new_transaction(60_000)
        producer.send(str(number).encode(), txn=txn)
        if number % 3:
            txn.abort()
        else:
            txn.commit()
    frame = read_pulsar(spark, service_url=service_url, topic=topic)
    assert [int(bytes(row["value"])) for row in frame.collect()] == list(range(0, 90, 3))
