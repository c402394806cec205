"""Closed consumers and readers leave no messages behind, although the garbage collector does not visit messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

import pulsar_on_kafka as pulsar
from tests.live_objects import leaves_nothing
from tests.steps import EARLIEST, SHARED, Unique

pytestmark = pytest.mark.kafka

SENT: Final = 2_000
"""More than an inbox takes, so that a reader holds some beside it."""


class _Kept:
    """An application's object, which its listener refers to and which keeps a message."""

    def __init__(self) -> None:
        self.messages: list[pulsar.Message] = []

    def listen(self, consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        self.messages.append(message)


def _consumed(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST, receiver_queue_size=500)
    consumer.receive(60_000)
    consumer.close()


def _listened(client: pulsar.Client, topic: str) -> None:
    kept = _Kept()
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST, message_listener=kept.listen)
    consumer.close()


def _merged(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe([topic], "s", SHARED, initial_position=EARLIEST, receiver_queue_size=500)
    consumer.receive(60_000)
    consumer.close()


def _read(client: pulsar.Client, topic: str) -> None:
    reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=10)
    reader.read_next(60_000)
    reader.close()


@pytest.mark.parametrize("use", [_consumed, _listened, _merged, _read])
def test_a_closed_consumer_leaves_no_messages(
    client: pulsar.Client, unique: Unique, use: Callable[[pulsar.Client, str], None]
) -> None:
    topic = unique()
    producer = client.create_producer(topic, block_if_queue_full=True)
    for _ in range(SENT):
        producer.send_async(b"x", None)
    producer.flush()
    leaves_nothing(lambda: use(client, topic))
    producer.close()
