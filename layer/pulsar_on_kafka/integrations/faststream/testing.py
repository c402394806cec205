"""`TestPulsarBroker`: FastStream's broker in memory, for tests of handlers. No cluster is involved."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
from faststream._internal.testing.broker import EnterType, TestBroker, change_producer
from faststream.exceptions import SubscriberNotFound

from pulsar_on_kafka.asyncio.client import Client
from pulsar_on_kafka.client.values.message import Message
from pulsar_on_kafka.client.values.message_id import MessageId, ReceivedId
from pulsar_on_kafka.integrations.faststream.broker import PulsarBroker
from pulsar_on_kafka.integrations.faststream.message import CORRELATION_ID
from pulsar_on_kafka.integrations.faststream.producer import PulsarProducer, properties_of
from pulsar_on_kafka.integrations.faststream.publisher import TopicPublisher
from pulsar_on_kafka.integrations.faststream.response import PulsarPublishCommand
from pulsar_on_kafka.integrations.faststream.subscriber import PulsarSubscriber
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.names.topic_name import TopicName

if TYPE_CHECKING:
    from faststream._internal.endpoint.subscriber import SubscriberUsecase

_SUBSCRIPTION: Final = "test"
_entries: Final = itertools.count()


class MemoryMessage(Message[bytes]):
    """A message that was published in memory; its entry ids count the messages of the process."""

    def __init__(self, cmd: PulsarPublishCommand, payload: bytes, content_type: str | None) -> None:
        self._payload = payload
        self._properties = properties_of(cmd, content_type)
        self._key, self._ordering_key = cmd.key or "", cmd.ordering_key or ""
        self._event_timestamp = cmd.event_timestamp or 0
        self._topic = str(TopicName.parse(cmd.destination))
        self._id = NativeMessageId(-1, 0, next(_entries), -1)

    def data(self) -> bytes:
        return self._payload

    def value(self) -> bytes:
        return self._payload

    def has_null_value(self) -> bool:
        return False

    def properties(self) -> dict[str, str]:
        return dict(self._properties)

    def partition_key(self) -> str:
        return self._key

    def ordering_key(self) -> str:
        return self._ordering_key

    def publish_timestamp(self) -> int:
        """0: nothing stored it."""
        return 0

    def event_timestamp(self) -> int:
        return self._event_timestamp

    def producer_name(self) -> str:
        return ""

    def message_id(self) -> ReceivedId:
        return cast("ReceivedId", self._id)

    def topic_name(self) -> str:
        return self._topic

    def redelivery_count(self) -> int:
        return 0

    def schema_version(self) -> str:
        return ""

    def encryption_context(self) -> None:
        return None


class MemoryProducer(PulsarProducer):
    """Runs the handlers of published messages at once: one subscriber of each subscription, whatever the delay. An
    error of a handler is raised to the publisher, so that tests see it."""

    def __init__(self, broker: PulsarBroker, brokers: Sequence[PulsarBroker]) -> None:
        super().__init__(broker._parser, broker._decoder)
        self._brokers = brokers
        self.codec = broker.config.broker_codec or self.codec
        self._config = broker.config

    async def publish(self, cmd: PulsarPublishCommand) -> MessageId:
        message = await self._message(cmd)
        for subscriber in self._receivers(cmd.destination):
            await subscriber.process_message(message)
        return MessageId.wrap(message.message_id())

    async def request(self, cmd: PulsarPublishCommand) -> Message:
        message = await self._message(cmd)
        for subscriber in self._receivers(cmd.destination):
            with anyio.fail_after(cmd.timeout):
                response = await subscriber.process_message(message)
            reply = PulsarPublishCommand.from_cmd(response.as_publish_command())
            reply.destination = cmd.destination
            reply.correlation_id = response.correlation_id or message.properties().get(CORRELATION_ID)
            return await self._message(reply)
        raise SubscriberNotFound(f"no subscriber of topic {cmd.destination!r}")

    async def _message(self, cmd: PulsarPublishCommand) -> MemoryMessage:
        payload, content_type = await self.codec.encode(cmd.body, self._config.fd_config._serializer)
        return MemoryMessage(cmd, payload, content_type)

    def _receivers(self, topic: str) -> Iterator[PulsarSubscriber]:
        taken: set[tuple[str, str]] = set()
        for subscriber in _subscribers(self._brokers):
            if subscriber.takes(topic) and (place := (subscriber.topic, subscriber.subscription)) not in taken:
                taken.add(place)
                yield subscriber


class MemoryConsumer:
    """The consumer of a subscriber that starts during a test: `MemoryProducer` runs its handlers."""

    async def receive(self) -> Message:
        """Waits until the subscriber stops."""
        never: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        return await never

    async def close(self) -> None:
        """Has nothing to close."""


class MemoryClient:
    """The client of a broker in memory."""

    async def subscribe(self, _topic: str, _subscription: str, **_settings: Any) -> MemoryConsumer:
        return MemoryConsumer()


def _subscribers(brokers: Iterable[PulsarBroker]) -> Iterator[PulsarSubscriber]:
    return (cast("PulsarSubscriber", each) for broker in brokers for each in broker.subscribers)


class TestPulsarBroker(TestBroker[PulsarBroker, EnterType], broker=PulsarBroker):
    """FastStream's test broker for `PulsarBroker`. Source: FastStream's `TestBroker`.

    Published messages go to the handlers in memory; with `with_real=True` they go through the cluster.
    """

    @contextmanager
    def _patch_producer(self, broker: PulsarBroker) -> Iterator[None]:
        config = broker.config.broker_config
        connected = config.connected
        try:
            with change_producer(config, MemoryProducer(broker, self.brokers)):
                yield
        finally:
            config.connected = connected  # `_fake_connect` changed it

    async def _fake_connect(self, broker: PulsarBroker, *args: Any, **kwargs: Any) -> None:
        broker.config.broker_config.connected = cast("Client", MemoryClient())

    def create_publisher_fake_subscriber(
        self, broker: PulsarBroker, publisher: TopicPublisher
    ) -> tuple[SubscriberUsecase[Any], bool]:
        for subscriber in _subscribers(self.brokers):
            if subscriber.takes(publisher.topic):
                return subscriber, True
        return broker.subscriber(publisher.topic, _SUBSCRIPTION, persistent=False), False
