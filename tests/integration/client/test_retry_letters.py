"""`reconsume_later`, as Java's client has it."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

import pytest

import pulsar_on_kafka as pulsar
import pulsar_on_kafka.asyncio as pulsar_asyncio
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.client.consumer.dead_letters import java_text
from tests.steps import EARLIEST, PATIENCE_MS, SHARED, Unique, nothing_comes, payloads, receive, send


def full(topic: str) -> str:
    return f"persistent://public/default/{topic}"


def subscribed(client: pulsar.Client, topic: str | list[str], most: int = 2) -> pulsar.Consumer:
    return client.subscribe(
        topic, "s", SHARED, initial_position=EARLIEST, retry_enable=True,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(most),
    )  # fmt: skip


def backlog(admin: AdminClient, topic: str) -> int:
    return sum(partition.backlog for partition in admin.subscription_stats(topic, "s").partitions)


def test_retries_come_after_their_delay_and_count_until_the_message_is_dead(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    consumer = subscribed(client, topic)
    sent = client.create_producer(topic).send(b"x", {"a": "1"}, partition_key="k", ordering_key="o", event_timestamp=7)
    message = consumer.receive(PATIENCE_MS)
    for times in (1, 2):
        began_ms = int(time.time() * 1000)  # both sides count whole milliseconds
        consumer.reconsume_later(message, 700, {"call": str(times)})
        message = consumer.receive(PATIENCE_MS)
        assert int(time.time() * 1000) - began_ms >= 700
        assert message.topic_name() == f"{full(topic)}-s-RETRY"
        assert message.data() == b"x"
        assert (message.partition_key(), message.ordering_key(), message.event_timestamp()) == ("k", "o", 7)
        assert message.properties() == {
            "a": "1", "call": str(times), "RECONSUMETIMES": str(times), "DELAY_TIME": "700",
            "REAL_TOPIC": full(topic), "REAL_SUBSCRIPTION": "s",
            "ORIGIN_MESSAGE_ID": java_text(sent), "ORIGIN_MESSAGE_IDY_TIME": java_text(sent),
        }  # fmt: skip
    consumer.reconsume_later(message, 60_000)
    inspector = client.subscribe(f"{topic}-s-DLQ", "inspector", initial_position=EARLIEST)
    dead = inspector.receive(PATIENCE_MS)
    assert (dead.data(), dead.partition_key(), dead.properties()["RECONSUMETIMES"]) == (b"x", "k", "3")
    assert nothing_comes(consumer)
    consumer.close()
    assert (backlog(admin, topic), backlog(admin, f"{topic}-s-RETRY")) == (0, 0)


def test_several_topics_partitions_and_batches_share_one_retry_topic(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    first, second = unique(), unique()
    admin.create_partitioned_topic(second, 2)
    consumer = subscribed(client, [first, second])
    send(client, first, 1)
    producer = client.create_producer(second, batching_enabled=True)
    for number in range(4):
        producer.send_async(str(10 + number).encode(), None)
    producer.send_async(None, None)
    producer.flush()
    for message in receive(consumer, 6):
        consumer.reconsume_later(message, 0)
    letters = receive(consumer, 6)
    assert sorted(payloads(letters)) == ["", "0", "10", "11", "12", "13"]
    assert [letter.has_null_value() for letter in letters if not letter.data()] == [True]
    assert {letter.topic_name() for letter in letters} == {f"{full(first)}-s-RETRY"}
    assert {letter.properties()["REAL_TOPIC"] for letter in letters} == {full(first), full(second)}


def test_what_is_refused(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    send(client, topic, 1)
    plain = client.subscribe(topic, "plain", initial_position=EARLIEST)
    message = plain.receive(PATIENCE_MS)
    with pytest.raises(pulsar.InvalidConfiguration, match="reconsume_later method not supported"):
        plain.reconsume_later(message, 10)
    wrongs: list[Any] = [re.compile(f"{topic}.*"), []]
    for topics in wrongs:
        with pytest.raises(pulsar.InvalidConfiguration, match="retry_enable takes"):
            client.subscribe(topics, "s", SHARED, retry_enable=True)
    consumer = subscribed(client, unique())
    with pytest.raises(pulsar.OperationNotSupported):
        consumer.reconsume_later(message, 10)  # of another topic
    with pytest.raises(pulsar.InvalidConfiguration, match="delay_ms"):
        consumer.reconsume_later(message, -1)
    with pytest.raises(TypeError):
        consumer.reconsume_later(message.message_id(), 10)  # type: ignore[arg-type]
    consumer.close()
    with pytest.raises(pulsar.AlreadyClosed):
        consumer.reconsume_later(message, 10)


def test_asyncio(service_url: str, unique: Unique) -> None:
    topic = unique()

    async def main() -> None:
        client = pulsar_asyncio.Client(service_url)
        try:
            consumer = await client.subscribe(topic, "s", SHARED, retry_enable=True)
            producer = await client.create_producer(topic)
            await producer.send(b"x")
            message = await asyncio.wait_for(consumer.receive(), 15)
            await consumer.reconsume_later(message, 100)
            letter = await asyncio.wait_for(consumer.receive(), 15)
            assert (letter.data(), letter.properties()["RECONSUMETIMES"]) == (b"x", "1")
            await consumer.acknowledge(letter)
            await client.close()
        finally:
            client.shutdown()

    asyncio.run(main())
