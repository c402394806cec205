"""The asyncio `Client`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Annotated, Any, TypeVar

from pulsar_on_kafka.asyncio.bridge import Bridge, FairSemaphore, asyncio_errors
from pulsar_on_kafka.asyncio.consumer import Consumer
from pulsar_on_kafka.asyncio.producer import Producer
from pulsar_on_kafka.asyncio.reader import Reader
from pulsar_on_kafka.asyncio.transaction import Transaction
from pulsar_on_kafka.base.forks import OfOneProcess
from pulsar_on_kafka.broker.publishing.arguments import check_type
from pulsar_on_kafka.broker.publishing.outlet import room_for_pending
from pulsar_on_kafka.broker.transactions.client_transaction import DEFAULT_TIMEOUT_MS
from pulsar_on_kafka.client.client import Client as BlockingClient
from pulsar_on_kafka.client.consumer.consumer import Consumer as BlockingConsumer
from pulsar_on_kafka.client.consumer.consumer import ConsumerOptions
from pulsar_on_kafka.client.producer.producer import Producer as BlockingProducer
from pulsar_on_kafka.client.producer.producer import ProducerOptions
from pulsar_on_kafka.client.reader.reader import Reader as BlockingReader
from pulsar_on_kafka.client.reader.reader import ReaderOptions
from pulsar_on_kafka.client.values.option_tables import BYTES, ELSEWHERE, takes
from pulsar_on_kafka.client.values.service_info import AutoClusterFailover, ServiceInfoProvider
from pulsar_on_kafka.schema.plain import Schema
from pulsar_on_kafka.schema.value_type import V

_Options = TypeVar("_Options", ProducerOptions, ConsumerOptions, ReaderOptions)


@dataclass(frozen=True, slots=True)
class ProducerDefaults(ProducerOptions):
    """The options of `create_producer` with the defaults of asyncio."""

    schema: Schema | None = None  # type: ignore[assignment]  # `_as` takes None for bytes, as officially
    batching_enabled: bool = True

    def check(self) -> None:
        with asyncio_errors():
            ProducerOptions.check(self)


@dataclass(frozen=True, slots=True)
class ConsumerDefaults(ConsumerOptions[V]):
    """The options of `subscribe` with the defaults of asyncio, which has no listeners."""

    schema: Schema[V] | None = None  # type: ignore[assignment]  # as of a producer
    message_listener: None = field(default=None, init=False)
    pattern_auto_discovery_period: int = field(default=60, init=False)
    is_pattern_topic: Annotated[bool, ELSEWHERE] = False  # officially anything that is true

    def check(self) -> None:
        check_type((str, list), "topic", self.topic)
        if self.is_pattern_topic and isinstance(self.topic, list):
            raise ValueError("topic must be a str when is_pattern_topic is True, got a list")
        with asyncio_errors():
            ConsumerOptions.check(self)


@dataclass(frozen=True, slots=True)
class ReaderDefaults(ReaderOptions[V]):
    """The options of `create_reader` with the defaults of asyncio, which has no listeners."""

    schema: Schema[V] | None = None  # type: ignore[assignment]  # as of a producer
    reader_listener: None = field(default=None, init=False)

    def check(self) -> None:
        with asyncio_errors():
            ReaderOptions.check(self)


def _as(table: type[_Options], options: _Options, **changed: Any) -> _Options:
    """The same for the blocking client."""
    given = {each.name: getattr(options, each.name) for each in fields(table)}
    return table(**{**given, "schema": BYTES if given["schema"] is None else given["schema"], **changed})


class Client(OfOneProcess):
    """A connection to one cluster, for event loops. Source: `pulsar.asyncio.Client`.

    Its producers and consumers may be used from one loop at a time. Nothing blocks the loop: what blocks runs in at
    most 16 threads, which end with `close`.
    """

    def __init__(
        self, service_url: str | AutoClusterFailover | ServiceInfoProvider | None = None, **kwargs: Any
    ) -> None:
        """`kwargs` and exceptions are those of the blocking `Client`."""
        self._client = BlockingClient(service_url, **kwargs)
        self._bridge = Bridge()

    @takes(ProducerDefaults)
    async def create_producer(self, options: ProducerDefaults) -> Producer:
        """A producer of `topic`, which is created if it does not exist. It batches by default.

        Raises:
            PulsarException: `error()` returns the reason.
            ValueError: batching and chunking together, or an argument of a wrong type.
        """

        def made() -> tuple[BlockingProducer, int]:
            producer = self._client._producer(_as(ProducerOptions, options))
            partitions = len(self._client.get_topic_partitions(options.topic)) if options.block_if_queue_full else 1
            return producer, room_for_pending(
                options.max_pending_messages, options.max_pending_messages_across_partitions, partitions
            )

        producer, room = await self._bridge.call(made, lambda unwanted: unwanted[0].close())
        return Producer(producer, self._bridge, FairSemaphore(room) if options.block_if_queue_full else None)

    @takes(ConsumerDefaults)
    async def subscribe(self, options: ConsumerDefaults[V]) -> Consumer[V]:
        """A consumer of a subscription, which is created if it does not exist (as is the topic).

        With `is_pattern_topic` the topic is a regular expression. Keyword-only arguments are not in the official
        client, as in `pulsar_on_kafka.Client`.

        Raises:
            PulsarException: `error()` returns the reason.
            ValueError: an argument of a wrong type, or a list of topics as a pattern.
        """
        topic = options.topic
        requested = _as(ConsumerOptions, options, topic=re.compile(topic) if options.is_pattern_topic else topic)
        subscribe = partial(self._client._consumer, requested)
        return Consumer(await self._bridge.call(subscribe, BlockingConsumer.close), self._bridge)

    @takes(ReaderDefaults)
    async def create_reader(self, options: ReaderDefaults[V]) -> Reader[V]:
        """A reader of a topic, from a place of its own. Parameters are the blocking client's.

        Raises:
            PulsarException: TopicNotFound, InvalidTopicName, ConnectError, as the blocking client.
        """
        create = partial(self._client._reader, _as(ReaderOptions, options))
        return Reader(await self._bridge.call(create, BlockingReader.close), self._bridge)

    async def get_topic_partitions(self, topic: str) -> list[str]:
        """Names of the topic's partitions; the topic's own name when it is not partitioned."""
        return await self._bridge.call(lambda: self._client.get_topic_partitions(topic))

    async def new_transaction(self, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> Transaction:
        """Begins a transaction; the client must have been created with `enable_transaction=True`.

        Raises:
            PulsarException: `error()` returns the reason.
        """
        return Transaction(await self._bridge.call(lambda: self._client.new_transaction(timeout_ms)), self._bridge)

    async def close(self, *, drain_timeout_ms: int | None = None) -> None:
        """Close every producer and consumer, end every thread. `drain_timeout_ms` is the blocking client's.

        Raises:
            PulsarException: AlreadyClosed.
        """
        try:
            await self._bridge.call(partial(self._client.close, drain_timeout_ms=drain_timeout_ms))
        finally:
            self._bridge.close()

    def shutdown(self) -> None:
        """Closes the client and blocks; may be called again, and only logs failures."""
        self._client.shutdown()
        self._bridge.close()
