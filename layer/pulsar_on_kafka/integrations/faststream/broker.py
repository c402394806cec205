"""`PulsarBroker`: FastStream's broker class on the SDK's asyncio client."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
from fast_depends import Provider, dependency_provider
from faststream._internal.broker import BrokerUsecase
from faststream._internal.constants import EMPTY
from faststream._internal.context.repository import ContextRepo
from faststream._internal.di import FastDependsConfig
from faststream.message import gen_cor_id
from faststream.middlewares import AckPolicy
from faststream.response.publish_type import PublishType
from faststream.specification.schema import BrokerSpec

from pulsar_on_kafka.asyncio.bridge import PulsarException
from pulsar_on_kafka.asyncio.client import Client
from pulsar_on_kafka.client.values.message import Message
from pulsar_on_kafka.client.values.message_id import MessageId
from pulsar_on_kafka.exceptions import Result
from pulsar_on_kafka.integrations.faststream.config import PulsarBrokerConfig
from pulsar_on_kafka.integrations.faststream.log_format import make_pulsar_logger_state
from pulsar_on_kafka.integrations.faststream.message import StreamedMessage
from pulsar_on_kafka.integrations.faststream.producer import PulsarProducer
from pulsar_on_kafka.integrations.faststream.registrator import PulsarRegistrator
from pulsar_on_kafka.integrations.faststream.response import PulsarPublishCommand
from pulsar_on_kafka.integrations.faststream.subscriber import PulsarSubscriber

if TYPE_CHECKING:
    from fast_depends.dependencies import Dependant
    from fast_depends.library.serializer import SerializerProto
    from faststream._internal.basic_types import LoggerProto
    from faststream._internal.parser import CodecProto
    from faststream._internal.types import BrokerMiddleware, CustomCallable, IdGenerator
    from faststream.security import BaseSecurity
    from faststream.specification.schema.extra import Tag, TagDict

_PING_TOPIC: Final = "persistent://public/default/ping-partition-0"
"""A topic to look up. No look-up creates the topic of a partition, whatever the policies of its namespace."""


class PulsarBroker(PulsarRegistrator, BrokerUsecase[Message, Client, PulsarBrokerConfig]):
    """A FastStream broker with Pulsar's subscriptions, on Kafka. Source: FastStream's broker classes."""

    def __init__(
        self,
        url: str = "kafka://localhost:9092",
        *,
        client_options: dict[str, Any] | None = None,
        reply_topic: str | None = None,
        graceful_timeout: float | None = 15.0,
        ack_policy: AckPolicy = EMPTY,
        decoder: CustomCallable | None = None,
        parser: CustomCallable | None = None,
        codec: CodecProto | None = None,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        routers: Iterable[PulsarRegistrator] = (),
        id_generator: IdGenerator = gen_cor_id,
        specification_url: str | Iterable[str] | None = None,
        protocol: str | None = None,
        protocol_version: str | None = None,
        description: str | None = None,
        tags: Iterable[Tag | TagDict] = (),
        security: BaseSecurity | None = None,
        logger: LoggerProto | None = EMPTY,
        log_level: int = logging.INFO,
        apply_types: bool = True,
        serializer: SerializerProto | None = EMPTY,
        provider: Provider | None = None,
        context: ContextRepo | None = None,
    ) -> None:
        """The network is touched by `connect` at the earliest.

        Args:
            url: the address of the cluster, as for the SDK's `Client`.
            client_options: the other arguments of the SDK's `Client`, for example `kafka_config` with a login.
            reply_topic: the topic for replies to `request`. Processes may share it; each skips replies to others.
            graceful_timeout: seconds that `stop` waits for messages in handlers; None: it does not wait.
            ack_policy: the policy of subscribers without one; by default NACK_ON_ERROR.
            security: for the AsyncAPI document only; logins are in `client_options`.

        The other arguments are those of FastStream's brokers.
        """
        super().__init__(
            url=url,
            **(client_options or {}),
            routers=routers,
            config=PulsarBrokerConfig(
                producer=PulsarProducer(parser, decoder, reply_topic),
                broker_middlewares=middlewares,
                broker_parser=parser,
                broker_decoder=decoder,
                broker_codec=codec,
                logger=make_pulsar_logger_state(logger=logger, log_level=log_level),
                fd_config=FastDependsConfig(
                    use_fastdepends=apply_types,
                    serializer=serializer,
                    provider=provider or dependency_provider,
                    context=context or ContextRepo(),
                ),
                broker_dependencies=dependencies,
                graceful_timeout=graceful_timeout,
                ack_policy=ack_policy,
                id_generator=id_generator,
                extra_context={"broker": self},
            ),
            specification=_server(url, specification_url, protocol, protocol_version, description, tags, security),
        )

    async def _connect(self) -> Client:
        options = dict(self._connection_kwargs)
        client = Client(options.pop("url"), **options)
        config = self.config.broker_config
        config.connected = client
        producer = cast("PulsarProducer", config.producer)
        producer.connect(client, self.config.fd_config._serializer, self.config.broker_codec)
        return client

    async def start(self) -> None:
        """Connects, and starts the subscribers.

        Raises:
            PulsarException: a topic or subscription cannot be opened; `error()` returns the reason.
        """
        await self.connect()
        await super().start()

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Stops the subscribers, which finish the messages in their handlers, and closes the client."""
        try:
            await super().stop(exc_type, exc_val, exc_tb)
        finally:
            await self._disconnect()

    async def _disconnect(self) -> None:
        client, self._connection = self._connection, None
        if client is None:
            return
        config = self.config.broker_config
        try:
            await cast("PulsarProducer", config.producer).disconnect()
        finally:
            config.connected = None
            await client.close()

    async def ping(self, timeout: float | None = None) -> bool:
        """Whether the cluster answers within `timeout` seconds; None: 5 seconds. It reads the metadata of topics."""
        if self._connection is None:
            return False
        with anyio.move_on_after(5.0 if timeout is None else timeout):
            try:
                await self._connection.get_topic_partitions(_PING_TOPIC)
            except PulsarException as refused:
                return refused.error() is Result.TopicNotFound
            return True
        return False

    async def publish(
        self,
        message: Any = None,
        topic: str = "",
        *,
        key: str | None = None,
        ordering_key: str | None = None,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> MessageId:
        """Publishes one message and returns its id when it is stored.

        Args:
            message: the body; FastStream's codec encodes it (bytes, text, and JSON for everything else).
            topic: the topic, which is created if it does not exist.
            key, ordering_key: Pulsar's keys.
            headers: the message's properties.
            correlation_id: by default a new one.
            reply_to: the topic to which receivers send their handlers' responses.
            event_timestamp, deliver_at: Unix times in ms.
            deliver_after: the delay of the delivery on Shared and Key_Shared subscriptions.

        Raises:
            IncorrectState: the broker is not connected.
            PulsarException: `error()` returns the reason.
        """
        cmd = PulsarPublishCommand(
            message,
            _publish_type=PublishType.PUBLISH,
            topic=topic,
            key=key,
            ordering_key=ordering_key,
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            reply_to=reply_to,
            event_timestamp=event_timestamp,
            deliver_at=deliver_at,
            deliver_after=deliver_after,
        )
        return cast("MessageId", await self._basic_publish(cmd, producer=self.config.producer))

    async def request(  # type: ignore[override]  # each broker of FastStream has options of its own
        self,
        message: Any = None,
        topic: str = "",
        *,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        timeout: float = 0.5,
    ) -> StreamedMessage:
        """Publishes a request and returns the response of the handler that receives it.

        Raises:
            FeatureNotSupportedException: the broker has no `reply_topic`.
            TimeoutError: no reply came within `timeout` seconds.
            PulsarException: `error()` returns the reason.
        """
        cmd = PulsarPublishCommand(
            message,
            _publish_type=PublishType.REQUEST,
            topic=topic,
            key=key,
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            timeout=timeout,
        )
        return cast("StreamedMessage", await self._basic_request(cmd, producer=self.config.producer))

    def channels(self) -> Iterator[tuple[str, str]]:
        """Topic and name of each channel in an AsyncAPI document, except those of patterns."""
        for subscriber in cast("list[PulsarSubscriber]", self.subscribers):
            if not subscriber.settings.get("is_pattern_topic"):
                yield subscriber.topic, subscriber.specification.name
        for publisher in self.publishers:
            yield cast("Any", publisher).topic, publisher.specification.name


def _server(
    url: str,
    specification_url: str | Iterable[str] | None,
    protocol: str | None,
    protocol_version: str | None,
    description: str | None,
    tags: Iterable[Tag | TagDict],
    security: BaseSecurity | None,
) -> BrokerSpec:
    urls = [specification_url or url] if isinstance(specification_url, str | None) else list(specification_url)
    return BrokerSpec(
        url=urls,
        protocol=protocol or (urls[0].partition("://")[0] if "://" in urls[0] else "kafka"),
        protocol_version=protocol_version,
        description=description,
        tags=tags,
        security=security,
    )
