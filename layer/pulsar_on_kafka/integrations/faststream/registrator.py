"""Registration of subscribers and publishers, for brokers and routers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from faststream._internal.broker.registrator import Registrator
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream.exceptions import SetupError
from faststream.middlewares import AckPolicy
from typing_extensions import Unpack

from pulsar_on_kafka.asyncio.client import ConsumerDefaults
from pulsar_on_kafka.client.values.message import Message
from pulsar_on_kafka.integrations.faststream.config import (
    ConsumerSettings,
    PublisherConfig,
    PublisherDocument,
    PulsarBrokerConfig,
    SubscriberConfig,
    SubscriberDocument,
)
from pulsar_on_kafka.integrations.faststream.publisher import TopicPublisher
from pulsar_on_kafka.integrations.faststream.specification import (
    TopicPublisherSpecification,
    TopicSubscriberSpecification,
)
from pulsar_on_kafka.integrations.faststream.subscriber import ConcurrentSubscriber, PulsarSubscriber

if TYPE_CHECKING:
    from fast_depends.dependencies import Dependant
    from faststream._internal.parser import CodecProto
    from faststream._internal.types import BrokerMiddleware, CustomCallable


class PulsarRegistrator(Registrator[Message, PulsarBrokerConfig]):
    """Registers subscribers and publishers of a broker or router."""

    def subscriber(  # type: ignore[override]  # each broker of FastStream has options of its own
        self,
        topic: str,
        subscription: str,
        *,
        ack_policy: AckPolicy = EMPTY,
        no_reply: bool = False,
        dependencies: Sequence[Dependant] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        codec: CodecProto | None = None,
        max_workers: int = 1,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        include_in_schema: bool = True,
        **settings: Unpack[ConsumerSettings],
    ) -> PulsarSubscriber:
        """Subscribes a handler to a topic.

        Args:
            topic: the topic; with `is_pattern_topic` a regular expression. Routers put their prefix before it.
            subscription: the name of the subscription.
            ack_policy: by default the broker's, else `NACK_ON_ERROR`: a message whose handler fails is redelivered.
            no_reply: whether the handler's response is not sent to the message's `reply_to`.
            dependencies, parser, decoder, codec, persistent, title, description, include_in_schema: as in FastStream.
            max_workers: the number of messages that are handled at a time, 1 or more.
            settings: options of the SDK's `subscribe`, for example `consumer_type` and `dead_letter_policy`.

        Raises:
            SetupError: `max_workers` is below 1.
            ValueError, TypeError, PulsarException: an option of the SDK is unknown or has a wrong value.
        """
        if max_workers < 1:
            raise SetupError(f"max_workers must be at least 1, got {max_workers}")
        ConsumerDefaults(topic, subscription, **settings).check()
        outer = cast("PulsarBrokerConfig", self.config)
        config = SubscriberConfig(
            topic=topic,
            subscription=subscription,
            settings=settings,
            no_reply=no_reply,
            _outer_config=outer,
            _ack_policy=ack_policy,
        )
        document = SubscriberDocument(
            topic=topic, title_=title, description_=description, include_in_schema=include_in_schema
        )
        calls = CallsCollection[Message]()
        specification = TopicSubscriberSpecification(outer, document, calls)
        if max_workers == 1:
            made = PulsarSubscriber(config, specification, calls)
        else:
            made = ConcurrentSubscriber(config, specification, calls, max_workers=max_workers)
        super().subscriber(made, persistent=persistent)
        return made.add_call(
            parser_=parser or self._parser,
            decoder_=decoder or self._decoder,
            codec_=codec,
            dependencies_=dependencies,
        )

    def publisher(  # type: ignore[override]  # as above
        self,
        topic: str,
        *,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        reply_to: str = "",
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        schema: Any | None = None,
        include_in_schema: bool = True,
    ) -> TopicPublisher:
        """A publisher to a topic, for its `publish` and as a decorator of handlers.

        Args:
            topic: the topic. Routers put their prefix before it.
            key: the partition key of messages without one of their own.
            headers: properties of every message; those of a message take precedence.
            reply_to: the topic for responses of the receivers.
            persistent, title, description, schema, include_in_schema: as in FastStream.
        """
        outer = cast("PulsarBrokerConfig", self.config)
        document = PublisherDocument(
            topic=topic,
            title_=title,
            description_=description,
            schema_=schema,
            include_in_schema=include_in_schema,
        )
        made = TopicPublisher(
            PublisherConfig(topic=topic, key=key, headers=headers or {}, reply_to=reply_to, _outer_config=outer),
            TopicPublisherSpecification(outer, document),
        )
        super().publisher(made, persistent=persistent)
        return made

    def include_router(
        self,
        router: Registrator[Any, Any],
        *,
        prefix: str = "",
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        include_in_schema: bool | None = None,
    ) -> None:
        """Includes a router's subscribers and publishers. Raises SetupError when it is another broker's router."""
        if not isinstance(router, PulsarRegistrator):
            raise SetupError(f"a PulsarRouter is expected, got {type(router).__name__}")
        super().include_router(
            router,
            prefix=prefix,
            dependencies=dependencies,
            middlewares=middlewares,
            include_in_schema=include_in_schema,
        )
