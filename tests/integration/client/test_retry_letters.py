"""`reconsume_later`, as Java's client has it."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

import pulsar_on_kafka as pulsar
import pulsar_on_kafka.asyncio as pulsar_asyncio
from tests.steps import EARLIEST, PATIENCE_MS, SHARED, Process, Unique, send


def subscribed(client: pulsar.Client, topic: str, **options: Any) -> pulsar.Consumer:
    return client.subscribe(
        topic, "s", SHARED, initial_position=EARLIEST, retry_enable=True,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(2), **options,
    )  # fmt: skip


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


def test_delays_grow_from_process_to_process(process: Process, unique: Unique) -> None:
    topic = unique()
    backoff = pulsar.MultiplierRedeliveryBackoff(min_delay_ms=20, max_delay_ms=100, multiplier=3)
    send(process(), topic, 1)
    delays = []
    for _ in range(3):
        consumer = subscribed(process(), topic, retry_letter_backoff=backoff)
        message = consumer.receive(PATIENCE_MS)
        delays.append(message.properties().get("DELAY_TIME"))
        consumer.reconsume_later(message)
        consumer.close()
    assert delays == [None, "20", "60"]
    dead = process().create_reader(f"{topic}-s-DLQ", pulsar.MessageId.earliest).read_next(PATIENCE_MS)
    assert (dead.properties()["RECONSUMETIMES"], dead.properties()["DELAY_TIME"]) == ("3", "100")


class _Wrong:
    def next(self, redelivery_count: int) -> int:
        return -redelivery_count - 1


def test_a_delay_is_required(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    send(client, topic, 1)
    with pytest.raises(pulsar.InvalidConfiguration, match="retry_enable=True"):
        client.subscribe(topic, "s", SHARED, retry_letter_backoff=_Wrong())
    consumer = subscribed(client, topic)
    message = consumer.receive(PATIENCE_MS)
    with pytest.raises(pulsar.InvalidConfiguration, match="retry_letter_backoff"):
        consumer.reconsume_later(message)
    consumer.close()
    wrong = subscribed(client, topic, retry_letter_backoff=_Wrong())
    with pytest.raises(pulsar.InvalidConfiguration, match="got -1"):
        wrong.reconsume_later(wrong.receive(PATIENCE_MS))


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
