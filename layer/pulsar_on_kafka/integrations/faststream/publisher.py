"""Publishers: a topic, a key and properties that `publish` and decorated handlers use."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from faststream._internal.endpoint.publisher import PublisherUsecase
from faststream.response.publish_type import PublishType

from pulsar_on_kafka.client.values.message_id import MessageId
from pulsar_on_kafka.integrations.faststream.config import PublisherConfig, PulsarBrokerConfig
from pulsar_on_kafka.integrations.faststream.message import StreamedMessage
from pulsar_on_kafka.integrations.faststream.response import PulsarPublishCommand

if TYPE_CHECKING:
    from faststream._internal.endpoint.publisher import PublisherSpecification
    from faststream._internal.types import PublisherMiddleware
    from faststream.response.response import PublishCommand


class TopicPublisher(PublisherUsecase):
    """Publishes to one topic."""

    _outer_config: PulsarBrokerConfig

    def __init__(self, config: PublisherConfig, specification: PublisherSpecification[Any, Any]) -> None:
        super().__init__(config, specification)
        self._topic = config.topic
        self.key = config.key
        self.headers = config.headers
        self.reply_to = config.reply_to

    @property
    def topic(self) -> str:
        """The topic, with the prefix of the routers."""
        return f"{self._outer_config.prefix}{self._topic}"

    async def publish(
        self,
        message: Any,
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
        """Publishes one message, as `PulsarBroker.publish`; what is not given is this publisher's."""
        cmd = PulsarPublishCommand(
            message,
            _publish_type=PublishType.PUBLISH,
            topic=topic or self.topic,
            key=self.key if key is None else key,
            ordering_key=ordering_key,
            headers=self.headers | (headers or {}),
            correlation_id=correlation_id or self._outer_config.id_generator(),
            reply_to=reply_to or self.reply_to,
            event_timestamp=event_timestamp,
            deliver_at=deliver_at,
            deliver_after=deliver_after,
        )
        published = await self._basic_publish(cmd, producer=self._outer_config.producer, _extra_middlewares=())
        return cast("MessageId", published)

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]) -> None:
        own = PulsarPublishCommand.from_cmd(cmd)
        own.destination = self.topic
        own.key = self.key if own.key is None else own.key
        own.reply_to = own.reply_to or self.reply_to
        own.add_headers(self.headers, override=False)
        await self._basic_publish(own, producer=self._outer_config.producer, _extra_middlewares=_extra_middlewares)

    async def request(
        self,
        message: Any,
        topic: str = "",
        *,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        timeout: float = 0.5,
    ) -> StreamedMessage:
        """Publishes a request and returns its reply, as `PulsarBroker.request`."""
        cmd = PulsarPublishCommand(
            message,
            _publish_type=PublishType.REQUEST,
            topic=topic or self.topic,
            key=self.key if key is None else key,
            headers=self.headers | (headers or {}),
            correlation_id=correlation_id or self._outer_config.id_generator(),
            timeout=timeout,
        )
        return cast("StreamedMessage", await self._basic_request(cmd, producer=self._outer_config.producer))
