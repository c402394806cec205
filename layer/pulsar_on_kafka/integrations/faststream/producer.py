"""The producer of a FastStream broker: one SDK producer for each topic, and the replies to requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import anyio
from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import CodecProto, DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream.exceptions import FeatureNotSupportedException, IncorrectState

from pulsar_on_kafka.asyncio.bridge import PulsarException
from pulsar_on_kafka.asyncio.client import Client
from pulsar_on_kafka.asyncio.producer import Producer
from pulsar_on_kafka.asyncio.reader import Reader
from pulsar_on_kafka.client.values.message import Message
from pulsar_on_kafka.client.values.message_id import MessageId
from pulsar_on_kafka.integrations.faststream.message import CONTENT_TYPE, CORRELATION_ID, REPLY_TO, PulsarParser
from pulsar_on_kafka.integrations.faststream.response import PulsarPublishCommand

if TYPE_CHECKING:
    from fast_depends.library.serializer import SerializerProto
    from faststream._internal.types import CustomCallable


def properties_of(cmd: PulsarPublishCommand, content_type: str | None) -> dict[str, str]:
    """The properties of the message that a command publishes: its headers, and FastStream's own fields."""
    own = {CONTENT_TYPE: content_type, CORRELATION_ID: cmd.correlation_id, REPLY_TO: cmd.reply_to}
    return {**{name: value for name, value in own.items() if value}, **cmd.headers}


class ReplyReader:
    """Passes the replies in one topic to the requests of this process, by their correlation id.

    A reader at the end of the topic begins with the first request. Replies to other processes are skipped. Memory: one
    entry for each request under way.
    """

    def __init__(self, client: Client, topic: str) -> None:
        self._client = client
        self.topic = topic
        self._waiting: dict[str, asyncio.Future[Message]] = {}
        self._reader: Reader[Any] | None = None
        self._task: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()

    async def expect(self, correlation_id: str) -> asyncio.Future[Message]:
        """A future with the reply to this request, which may be published once this returns."""
        if correlation_id in self._waiting:
            raise ValueError(f"correlation_id {correlation_id!r} belongs to a request that is under way")
        async with self._opening:
            if self._reader is None:
                self._reader = await self._client.create_reader(self.topic, MessageId.latest)
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._read(self._reader))
        reply = self._waiting[correlation_id] = asyncio.get_running_loop().create_future()
        return reply

    def forget(self, correlation_id: str) -> None:
        """Drops a request that ended; a later reply to it is skipped."""
        self._waiting.pop(correlation_id, None)

    async def _read(self, reader: Reader[Any]) -> None:
        try:
            while True:
                message = await reader.read_next()
                reply = self._waiting.pop(message.properties().get(CORRELATION_ID, ""), None)
                if reply is not None and not reply.done():
                    reply.set_result(message)
        except PulsarException as failure:
            for reply in self._waiting.values():
                if not reply.done():
                    reply.set_exception(failure)
            self._waiting.clear()

    async def close(self) -> None:
        """Stops reading. Requests under way end with their time-out."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._reader is not None:
            await self._reader.close()


class PulsarProducer(ProducerProto[PulsarPublishCommand]):
    """Publishes the commands of one broker. Memory: an SDK producer for each topic that was published to."""

    def __init__(
        self, parser: CustomCallable | None, decoder: CustomCallable | None, reply_topic: str | None = None
    ) -> None:
        default = PulsarParser()
        self._parser = ParserComposition(parser, default.parse_message)
        self._decoder = ParserComposition(decoder, default.decode_message)
        self.codec: CodecProto = DefaultCodec()
        self._serializer: SerializerProto | None = None
        self._reply_topic = reply_topic
        self._client: Client | None = None
        self._replies: ReplyReader | None = None
        self._producers: dict[str, asyncio.Task[Producer]] = {}

    def connect(self, client: Client, serializer: SerializerProto | None, codec: CodecProto | None) -> None:
        self._client = client
        self._serializer = serializer
        self.codec = codec or DefaultCodec()
        if self._reply_topic is not None:
            self._replies = ReplyReader(client, self._reply_topic)

    async def disconnect(self) -> None:
        """Ends the reading of replies. The client closes the SDK's producers, whose sends are awaited by then."""
        replies, self._replies, self._client = self._replies, None, None
        self._producers.clear()
        if replies is not None:
            await replies.close()

    async def publish(self, cmd: PulsarPublishCommand) -> MessageId:
        """Publishes one message and returns when it is stored.

        Raises:
            IncorrectState: the broker is not connected.
            PulsarException: `error()` returns the reason.
        """
        payload, content_type = await self.codec.encode(cmd.body, self._serializer)
        producer = await self._producer(cmd.destination)
        return await producer.send(
            payload,
            properties=properties_of(cmd, content_type),
            partition_key=cmd.key,
            ordering_key=cmd.ordering_key,
            event_timestamp=cmd.event_timestamp,
            deliver_at=cmd.deliver_at,
            deliver_after=cmd.deliver_after,
        )

    async def _producer(self, topic: str) -> Producer:
        """The topic's producer. Concurrent calls share one opening; a failed one is repeated by the next call."""
        if self._client is None:
            raise IncorrectState("PulsarBroker is not connected: call `broker.connect()` or `broker.start()` first")
        opening = self._producers.get(topic)
        if opening is None:
            opening = self._producers[topic] = asyncio.create_task(self._client.create_producer(topic))
        try:
            return await asyncio.shield(opening)
        except Exception:
            if self._producers.get(topic) is opening:
                del self._producers[topic]
            raise

    async def request(self, cmd: PulsarPublishCommand) -> Message:
        """Publishes a request and returns its reply, from the broker's reply topic.

        Raises:
            FeatureNotSupportedException: the broker has no `reply_topic`.
            TimeoutError: no reply came within `cmd.timeout` seconds.
            PulsarException: `error()` returns the reason.
        """
        if self._reply_topic is None:
            raise FeatureNotSupportedException("PulsarBroker has requests with a reply topic only: set `reply_topic`")
        if self._replies is None:
            raise IncorrectState("PulsarBroker is not connected: call `broker.connect()` or `broker.start()` first")
        correlation_id = cmd.correlation_id or ""
        cmd.reply_to = self._reply_topic
        with anyio.fail_after(cmd.timeout):
            reply = await self._replies.expect(correlation_id)
            try:
                await self.publish(cmd)
                return await reply
            finally:
                self._replies.forget(correlation_id)

    async def publish_batch(self, cmd: PulsarPublishCommand) -> None:
        """Raises FeatureNotSupportedException: concurrent publishes share batches anyway."""
        raise FeatureNotSupportedException("PulsarBroker has no batch of its own: concurrent publishes share batches")
