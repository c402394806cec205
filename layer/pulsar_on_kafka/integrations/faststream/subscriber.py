"""Subscribers: a consumer of the SDK each, whose messages go to the handlers."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, cast

import anyio
from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream._internal.endpoint.subscriber.mixins import ConcurrentMixin, TasksMixin
from faststream._internal.endpoint.subscriber.utils import MultiLock
from faststream._internal.endpoint.utils import process_msg

from pulsar_on_kafka.asyncio.bridge import PulsarException
from pulsar_on_kafka.asyncio.consumer import Consumer
from pulsar_on_kafka.client.values.message import Message
from pulsar_on_kafka.exceptions import Result
from pulsar_on_kafka.integrations.faststream.config import PulsarBrokerConfig, SubscriberConfig
from pulsar_on_kafka.integrations.faststream.message import PulsarParser, StreamedMessage
from pulsar_on_kafka.integrations.faststream.response import PulsarPublishCommand
from pulsar_on_kafka_mapping.names.topic_name import TopicName

if TYPE_CHECKING:
    from faststream._internal.endpoint.subscriber import SubscriberSpecification
    from faststream._internal.endpoint.subscriber.call_item import CallsCollection
    from faststream._internal.producer import ProducerProto
    from faststream.message import StreamMessage
    from faststream.response.response import PublishCommand


class ReplyPublisher(FakePublisher):
    """Publishes a handler's response to the topic that its message names."""

    def __init__(self, producer: ProducerProto[PulsarPublishCommand], topic: str) -> None:
        super().__init__(producer=producer)
        self._topic = topic

    def patch_command(self, cmd: PublishCommand) -> PulsarPublishCommand:
        reply = PulsarPublishCommand.from_cmd(super().patch_command(cmd))
        reply.destination = self._topic
        return reply


class PulsarSubscriber(TasksMixin):
    """Passes the messages of one subscription to its handlers, one after the other.

    Memory: the consumer's receiver queue (`receiver_queue_size`, 1,000 messages by default).
    """

    _outer_config: PulsarBrokerConfig

    def __init__(
        self,
        config: SubscriberConfig,
        specification: SubscriberSpecification[Any, Any],
        calls: CallsCollection[Message],
    ) -> None:
        parser = PulsarParser()
        config.parser = parser.parse_message
        config.decoder = parser.decode_message
        super().__init__(config, specification, calls)
        self._pulsar_parser = parser
        self._topic = config.topic
        self.subscription = config.subscription
        self.settings = config.settings
        self._consumer: Consumer | None = None

    @property
    def topic(self) -> str:
        """The topic or pattern, with the prefix of the routers."""
        return f"{self._outer_config.prefix}{self._topic}"

    def takes(self, topic: str) -> bool:
        """Whether messages of the topic go to this subscriber."""
        full = TopicName.parse(topic)
        if self.settings.get("is_pattern_topic"):
            pattern = self.topic.partition("://")[2] or self.topic
            return re.fullmatch(pattern, str(full).partition("://")[2]) is not None
        return TopicName.parse(self.topic) == full

    async def start(self) -> None:
        """Opens the consumer and begins to receive, if there are handlers.

        Raises:
            PulsarException: as the SDK's `subscribe`; `error()` returns the reason.
        """
        await super().start()
        if self.calls:
            await self._opened()
            self.add_task(self._receive)
        self._post_start()

    async def _opened(self) -> Consumer:
        if self._consumer is None:
            consumer = await self._outer_config.client.subscribe(self.topic, self.subscription, **self.settings)
            self._consumer = self._pulsar_parser.consumer = consumer
        return self._consumer

    async def _receive(self) -> None:
        consumer = self._consumer
        while consumer is not None and self.running:
            try:
                message = await consumer.receive()
            except PulsarException as ended:
                if ended.error() is not Result.AlreadyClosed:
                    raise
                if self.running:
                    self._log(logging.ERROR, "its consumer was closed", self.get_log_context(None))
                return
            await self._take(message)

    async def _take(self, message: Message) -> None:
        await self.consume(message)

    async def stop(self) -> None:
        """Waits for the messages in handlers (`graceful_timeout` of the broker), then saves acknowledgements and closes
        the consumer. Messages that were received and not acknowledged are redelivered.

        `StopConsume` calls this in the receiving task, which `super().stop()` cancels; so the consumer closes first.
        """
        self.running = False
        if isinstance(self.lock, MultiLock):
            await self.lock.wait_release(self._outer_config.graceful_timeout)
        self.lock = nullcontext()  # `super().stop()` would wait as long again
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.close()
        await super().stop()

    async def get_one(self, *, timeout: float = 5.0) -> StreamedMessage | None:
        """The next message, or None after `timeout` seconds. It is not acknowledged."""
        assert not self.calls, (  # noqa: S101 - the class of the error is FastStream's contract
            "You can't use `get_one` method if subscriber has registered handlers."
        )
        consumer = await self._opened()
        try:
            raw = await asyncio.wait_for(consumer.receive(), timeout)
        except asyncio.TimeoutError:
            return None
        return await self._processed(raw)

    async def __aiter__(self) -> AsyncIterator[StreamedMessage]:
        """The messages, without end. They are not acknowledged."""
        assert not self.calls, (  # noqa: S101 - as above
            "You can't use iterator if subscriber has registered handlers."
        )
        consumer = await self._opened()
        while True:
            yield await self._processed(await consumer.receive())

    async def _processed(self, raw: Message) -> StreamedMessage:
        parser, decoder = self._get_parser_and_decoder()
        context = self._outer_config.context
        message: Any = await process_msg(
            msg=raw,
            middlewares=(middleware(raw, context=context) for middleware in self._broker_middlewares),
            parser=parser,
            decoder=decoder,
        )
        return cast("StreamedMessage", message)

    def _make_response_publisher(self, message: StreamMessage[Any]) -> Iterable[ReplyPublisher]:
        return (ReplyPublisher(self._outer_config.producer, message.reply_to),)

    def get_log_context(self, message: StreamMessage[Message] | None) -> dict[str, str]:
        topic = self.topic if message is None else message.raw_message.topic_name()
        return {
            "topic": topic,
            "subscription": self.subscription,
            "message_id": getattr(message, "message_id", ""),
        }


class ConcurrentSubscriber(ConcurrentMixin[Message], PulsarSubscriber):
    """Passes up to `max_workers` messages to its handlers at a time; they are acknowledged one by one."""

    async def start(self) -> None:
        await super().start()
        self.start_consume_task()

    async def _take(self, message: Message) -> None:
        try:
            await self._put_msg(message)
        except anyio.ClosedResourceError:  # the subscriber stops; the message is redelivered
            return
