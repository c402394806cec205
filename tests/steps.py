"""Tests of the SDK on a broker share these words and steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pulsar_on_kafka as pulsar

Unique = Callable[..., str]
"""The fixture `unique`."""
Process = Callable[..., pulsar.Client]
"""The fixture `process`."""
Missing = Callable[[str, str], None]
"""The fixture `missing`."""

EARLIEST = pulsar.InitialPosition.Earliest
EXCLUSIVE = pulsar.ConsumerType.Exclusive
SHARED = pulsar.ConsumerType.Shared
KEY_SHARED = pulsar.ConsumerType.KeyShared
FAILOVER = pulsar.ConsumerType.Failover

PATIENCE_MS = 60_000
"""For what must come."""

SILENCE_MS = 400
"""For what must not come."""

PAUSE_MS = 1_500
"""Longer than a busy machine lets wait for the next one of what comes."""


def payloads(messages: Iterable[pulsar.Message]) -> list[str]:
    return [message.data().decode() for message in messages]


def counted(messages: Iterable[pulsar.Message]) -> list[tuple[str, int]]:
    return [(message.data().decode(), message.redelivery_count()) for message in messages]


def receive(consumer: pulsar.Consumer, count: int) -> list[pulsar.Message]:
    """The next `count` messages."""
    return [consumer.receive(PATIENCE_MS) for _ in range(count)]


def nothing_comes(consumer: pulsar.Consumer) -> bool:
    """Nothing for `SILENCE_MS`."""
    return receive_rest(consumer, SILENCE_MS) == []


def receive_rest(consumer: pulsar.Consumer, silence_ms: int = PAUSE_MS, *, least: int = 0) -> list[pulsar.Message]:
    """What comes until nothing came for `silence_ms`; the first `least` are waited for, however busy the machine is."""
    found = receive(consumer, least)
    while True:
        try:
            found.append(consumer.receive(silence_ms))
        except pulsar.Timeout:
            return found


def send(client: pulsar.Client, topic: str, count: int, start: int = 0, **options: Any) -> list[Any]:
    """Send the texts of `count` numbers and give the message ids."""
    producer = client.create_producer(topic, **options)
    ids = [producer.send(str(number).encode()) for number in range(start, start + count)]
    producer.close()
    return ids


def send_fast(client: pulsar.Client, topic: str, count: int) -> None:
    producer = client.create_producer(topic, block_if_queue_full=True, max_pending_messages=10_000)
    for number in range(count):
        producer.send_async(str(number).encode(), None)
    producer.flush()
    producer.close()


def read_all(client: pulsar.Client, topic: str) -> list[pulsar.Message]:
    """All messages of a topic that a reader gets now."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(20_000))
    reader.close()
    return found
