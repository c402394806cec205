"""Routers: subscribers and publishers that a broker includes later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from faststream._internal.broker.router import ArgsContainer, BrokerRouter, SubscriberRoute
from faststream._internal.constants import EMPTY
from faststream.middlewares import AckPolicy

from pulsar_on_kafka.client.values.message import Message
from pulsar_on_kafka.integrations.faststream.config import PulsarBrokerConfig
from pulsar_on_kafka.integrations.faststream.registrator import PulsarRegistrator

if TYPE_CHECKING:
    from fast_depends.dependencies import Dependant
    from faststream._internal.types import BrokerMiddleware, CustomCallable


class PulsarPublisher(ArgsContainer):
    """A publisher of a `PulsarRoute`. Its arguments are those of `PulsarBroker.publisher`."""

    def __init__(self, topic: str, **options: Any) -> None:
        super().__init__(topic, **options)


class PulsarRoute(SubscriberRoute):
    """A handler of a `PulsarRouter`. Its other arguments are those of `PulsarBroker.subscriber`."""

    def __init__(
        self,
        call: Callable[..., Any],
        topic: str,
        subscription: str,
        *,
        publishers: Iterable[PulsarPublisher] = (),
        **options: Any,
    ) -> None:
        super().__init__(call, topic, subscription, publishers=publishers, **options)


class PulsarRouter(PulsarRegistrator, BrokerRouter[Message, PulsarBrokerConfig]):
    """Subscribers and publishers, for `PulsarBroker.include_router`. `prefix` begins the names of their topics."""

    def __init__(
        self,
        prefix: str = "",
        handlers: Iterable[PulsarRoute] = (),
        *,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        routers: Iterable[PulsarRegistrator] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        include_in_schema: bool | None = None,
        ack_policy: AckPolicy = EMPTY,
    ) -> None:
        """All arguments are those of FastStream's routers."""
        config = PulsarBrokerConfig(
            prefix=prefix,
            ack_policy=ack_policy,
            broker_dependencies=dependencies,
            broker_middlewares=middlewares,
            broker_parser=parser,
            broker_decoder=decoder,
            include_in_schema=include_in_schema,
        )
        super().__init__(handlers=handlers, config=config, routers=routers)
