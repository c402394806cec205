"""Messages in chunks and encrypted ones: rows are what the next consumer gets, and acknowledgements take all chunks."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient as KafkaTool
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from pyspark.errors import SparkRuntimeException
from pyspark.sql import DataFrame, SparkSession

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.spark import acknowledge, read_pulsar
from pulsar_on_kafka_spark.streaming.stream import BatchContext
from tests.integration.client.test_encryption import key_pair
from tests.spark.streams import Stream, receive_all
from tests.spark.test_subscriptions import EVERYTHING, Shown, rows_of, shown
from tests.steps import EARLIEST, SHARED, Unique, receive_rest
from tests.waiting import until

RECORD_BYTES = 4096
LARGE = bytes(range(256)) * 40
"""Four chunks and more."""


@pytest.fixture
def topics(admin: AdminClient, unique: Unique) -> Callable[[int], str]:
    """Makes a topic with a subscription."""

    def make(partitions: int) -> str:
        topic = unique()
        admin.create_partitioned_topic(topic, partitions, entries_per_ledger=10)
        admin.create_subscription(topic, "s", from_earliest=True)
        return topic

    return make


Chunking = Callable[..., Any]


@pytest.fixture
def chunking(admin: AdminClient, bootstrap: str) -> Chunking:
    """Makes a producer that takes four kilobytes for the most that a record may have."""
    tool = KafkaTool({"bootstrap.servers": bootstrap})

    def make(client: pulsar.Client, topic: str, **options: Any) -> Any:
        kafka_topic = admin.topic_stats(topic).kafka_topic

        def limit(operation: AlterConfigOpType) -> None:
            """Brokers learn of it after the request was answered."""
            entry = ConfigEntry("max.message.bytes", str(RECORD_BYTES), incremental_operation=operation)
            resource = ConfigResource(ResourceType.TOPIC, kafka_topic, incremental_configs=[entry])
            for done in tool.incremental_alter_configs([resource]).values():
                done.result(20)
            lower = operation is AlterConfigOpType.SET
            until(lambda: (told() == str(RECORD_BYTES)) is lower, "the broker to learn of it")

        def told() -> str:
            return admin.node.admin.topic_configs(kafka_topic, Deadline.after(20))["max.message.bytes"]

        limit(AlterConfigOpType.SET)
        made = client.create_producer(topic, chunking_enabled=True, **options)
        limit(AlterConfigOpType.DELETE)
        return made

    return make


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 30))])
def test_rows_are_the_messages_that_chunks_make(
    spark: SparkSession,
    transactional: pulsar.Client,
    admin: AdminClient,
    topics: Callable[[int], str],
    chunking: Chunking,
    service_url: str,
    bootstrap: str,
    seed: int,
) -> None:
    """Whole, incomplete, acknowledged, aborted and held by an open transaction, among small ones."""
    chance = random.Random(seed)
    topic = topics(1 + seed % 3)
    producers = [chunking(transactional, topic) for _ in range(2)]
    foreign = Producer({"bootstrap.servers": bootstrap})
    kafka_topic = admin.topic_stats(topic).kafka_topic
    for number in range(25):
        what = chance.random()
        size = chance.choice([0, 3, RECORD_BYTES * 2, RECORD_BYTES * 5])
        message: dict[str, Any] = {
            "content": f"m{number} ".encode() + LARGE[:size],
            "partition_key": chance.choice([None, f"k{number % 3}"]),
            "properties": {"n": str(number)},
            "event_timestamp": chance.choice([None, 1_700_000_000_000 + number]),
        }
        if what < 0.6:
            chance.choice(producers).send_async(callback=None, **message)
        elif what < 0.8:
            txn = transactional.new_transaction(60_000)
            producers[0].send(txn=txn, **message)
            (txn.abort if what < 0.7 else txn.commit)()
        else:
            chunk = f"{chance.randrange(3)}:3:6:orphan-{number // 9}".encode()
            foreign.produce(kafka_topic, b"ab", headers=[("__pulsar.chunk", chunk)], partition=0)
            assert foreign.flush(20) == 0
    for producer in producers:
        producer.flush()
    consumer = transactional.subscribe(topic, "s", consumer_type=SHARED)
    for received in receive_rest(consumer):
        if chance.random() < 0.4:
            consumer.acknowledge(received)
    consumer.close()
    producers[1].send(LARGE)  # of every seed one that nobody acknowledged
    if seed % 2:
        held = transactional.new_transaction(60_000)
        producers[0].send(LARGE, txn=held)
        producers[0].send(b"behind")
    options = {"service_url": service_url, "topic": topic, "subscription": "s"}
    frame = read_pulsar(spark, columns=EVERYTHING, **options)
    found = rows_of(frame)
    consumer = transactional.subscribe(topic, "s", consumer_type=SHARED)
    assert found == shown(receive_all(consumer, sum(found.values())))
    consumer.close()
    assert any(_size(row) > RECORD_BYTES for row in found)
    assert frame.count() == found.total()
    acknowledge(frame.where("length(value) > 100"), **options)
    assert all(_size(row) <= 100 for row in rows_of(read_pulsar(spark, columns=EVERYTHING, **options)))


def _size(row: Shown) -> int:
    return len(cast("bytes", row[1]))


@pytest.mark.long
def test_a_stream_has_a_message_when_its_last_chunk_has_come(
    spark: SparkSession,
    client: pulsar.Client,
    admin: AdminClient,
    topics: Callable[[int], str],
    chunking: Chunking,
    service_url: str,
    bootstrap: str,
    tmp_path: Path,
) -> None:
    """Batches of four offsets cut messages; one is refused, one was never finished."""
    topic = topics(1)
    kafka_topic = admin.topic_stats(topic).kafka_topic
    producer = chunking(client, topic)
    foreign = Producer({"bootstrap.servers": bootstrap})
    foreign.produce(kafka_topic, b"ab", headers=[("__pulsar.chunk", b"0:3:6:orphan")])
    assert foreign.flush(20) == 0
    for number in range(2):
        producer.send(f"{number} ".encode() + LARGE)
        producer.send(f"{number} small".encode())
    stream = Stream(spark, service_url, topic, tmp_path, maxOffsetsPerTrigger=4)
    got: list[bytes] = []
    refused: list[bytes] = []

    def take(df: DataFrame, batch_id: int, context: BatchContext) -> None:
        rows = [bytes(row["value"]) for row in df.collect()]
        if not refused and any(row.startswith(b"1 ") and len(row) > 100 for row in rows):
            context.negative_acknowledge(df.where("length(value) > 100"))
            refused.extend(row for row in rows if len(row) > 100)
            rows = [row for row in rows if len(row) <= 100]
        got.extend(rows)

    stream.run(take)
    assert [len(refused), sorted(got)] == [1, sorted(_all(2) - {b"1 " + LARGE})]
    stream.run(take)
    assert sorted(got) == sorted(_all(2))
    assert admin.subscription_stats(topic, "s").backlog == 1, "what was never finished"
    for chunk in (1, 2):
        foreign.produce(kafka_topic, b"ab", headers=[("__pulsar.chunk", f"{chunk}:3:6:orphan".encode())])
    assert foreign.flush(20) == 0
    stream.run(take)
    assert got[-1] == b"ababab"
    assert admin.subscription_stats(topic, "s").backlog == 0


def _all(count: int) -> set[bytes]:
    return {f"{number} ".encode() + LARGE for number in range(count)} | {f"{n} small".encode() for n in range(count)}


@pytest.mark.soak
def test_encrypted_messages_are_opened_with_the_key_or_dealt_with_as_asked(
    spark: SparkSession,
    client: pulsar.Client,
    topics: Callable[[int], str],
    chunking: Chunking,
    service_url: str,
    tmp_path: Path,
) -> None:
    topic = topics(1)
    keys, others = key_pair(tmp_path, "ours"), key_pair(tmp_path, "others")
    own: dict[str, Any] = {"encryption_key": "k1", "crypto_key_reader": keys}
    client.create_producer(topic).send(b"clear", partition_key="k")
    client.create_producer(topic, **own).send(b"secret", properties={"a": "b"})
    chunking(client, topic, **own).send(LARGE)
    batching = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000, **own)
    for number in range(3):
        batching.send_async(f"batch {number}".encode(), None)
    batching.flush()
    options = {"service_url": service_url, "topic": topic, "subscription": "s", "columns": EVERYTHING}
    with pytest.raises(SparkRuntimeException, match=r"partition 0, offset \d is encrypted and cannot be opened"):
        rows_of(read_pulsar(spark, **options))
    for reader, action in ((keys, "FAIL"), (others, "CONSUME"), (None, "CONSUME"), (others, "DISCARD")):
        found = rows_of(read_pulsar(spark, cryptoKeyReader=reader, cryptoFailureAction=action, **options))
        subscription = f"{action} {reader is None}"
        consumer = client.subscribe(
            topic, subscription, initial_position=EARLIEST, crypto_key_reader=reader,
            crypto_failure_action=pulsar.ConsumerCryptoFailureAction[action],
        )  # fmt: skip
        assert found == shown(receive_all(consumer, sum(found.values()))), action
        consumer.close()
