"""A received message with its acknowledgements, and the parser that makes it of the SDK's message."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

from faststream.message import StreamMessage, decode_message

from pulsar_on_kafka.asyncio.consumer import Consumer
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Delivery
from pulsar_on_kafka.client.values.message import Message

CONTENT_TYPE: Final = "content-type"
CORRELATION_ID: Final = "correlation_id"
REPLY_TO: Final = "reply_to"
"""Properties that carry FastStream's fields, named as the headers of its Kafka brokers."""


class StreamedMessage(StreamMessage[Message]):
    """A received message. `raw_message` is the SDK's `Message`; `headers` are its properties.

    The first of `ack`, `nack` and `reject` counts, as in FastStream's other brokers.
    """

    def __init__(self, raw_message: Message, *, consumer: Consumer | None, **fields: Any) -> None:
        """`consumer` is None for replies and for messages of `TestPulsarBroker`, which have no acknowledgements."""
        super().__init__(raw_message, raw_message.data(), **fields)
        self._consumer = consumer

    async def ack(self) -> None:
        """Acknowledges this message alone. Raises PulsarException when the consumer is closed."""
        if self.committed is None and self._consumer is not None:
            await self._consumer.acknowledge(self.raw_message)
        await super().ack()

    async def nack(self, reason: str | None = None) -> None:
        """Requests redelivery after the subscriber's negative-ack delay. `reason` goes to the dead letter."""
        if self.committed is None and self._consumer is not None:
            await self._consumer.negative_acknowledge(self.raw_message, reason=reason)
        await super().nack()

    async def reject(self) -> None:
        """Moves the message to the dead letter topic of the subscriber's policy; without a policy acknowledges it.

        The message is acknowledged when its letter is stored. If the letter cannot be stored, the message is
        redelivered.
        """
        if self.committed is None and self._consumer is not None:
            letters = self.raw_message.feed.endpoint.dead_letters
            if letters is None:
                await self._consumer.acknowledge(self.raw_message)
            else:
                kept = partial(_redeliver, self._consumer, asyncio.get_running_loop())
                letters.publish_dead_letters([cast("Delivery", self.raw_message)], kept)
        await super().reject()


def _redeliver(consumer: Consumer, loop: asyncio.AbstractEventLoop, letter: Delivery) -> None:
    """Requests redelivery of a message whose letter could not be stored; called in the thread of the letters."""
    with suppress(RuntimeError):  # the loop is closed, and so is the consumer: the message is redelivered anyway
        asyncio.run_coroutine_threadsafe(consumer.negative_acknowledge(cast("Message", letter)), loop)


class PulsarParser:
    """Parses the SDK's messages; their acknowledgements go to `consumer`, which each start of a subscriber sets."""

    def __init__(self) -> None:
        self.consumer: Consumer | None = None

    async def parse_message(self, message: Message) -> StreamedMessage:
        properties = message.properties()
        return StreamedMessage(
            message,
            consumer=self.consumer,
            headers=properties,
            reply_to=properties.get(REPLY_TO, ""),
            content_type=properties.get(CONTENT_TYPE),
            correlation_id=properties.get(CORRELATION_ID),
            message_id=str(message.message_id()),
        )

    async def decode_message(self, message: StreamMessage[Message]) -> Any:
        return decode_message(message)
