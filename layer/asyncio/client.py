"""The asyncio `Client`."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from pulsar_on_kafka.asyncio.bridge import Bridge, Room
from pulsar_on_kafka.asyncio.consumer import Consumer
from pulsar_on_kafka.asyncio.producer import Producer
from pulsar_on_kafka.asyncio.reader import Reader
from pulsar_on_kafka.asyncio.transaction import Transaction
from pulsar_on_kafka.client.client import Client as BlockingClient
from pulsar_on_kafka.client.consumer.consumer import Consumer as BlockingConsumer
from pulsar_on_kafka.client.producer.producer import Producer as BlockingProducer
from pulsar_on_kafka.client.reader.reader import Reader as BlockingReader
from pulsar_on_kafka.client.values.enums import (
    BatchingType,
    CompressionType,
    ConsumerCryptoFailureAction,
    ConsumerType,
    InitialPosition,
    PartitionsRoutingMode,
    ProducerAccessMode,
    RegexSubscriptionMode,
    SubscriptionMode,
)
from pulsar_on_kafka.client.values.message_id import MessageId
from pulsar_on_kafka.client.values.service_info import AutoClusterFailover, ServiceInfoProvider
from pulsar_on_kafka.mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka.schema.plain import BytesSchema, Schema
from pulsar_on_kafka.sending.outlet import room_for_pending
from pulsar_on_kafka.sending.routing import MessageRouter
from pulsar_on_kafka.transactions.client_transaction import DEFAULT_TIMEOUT_MS


class Client:
    """A connection to one cluster, for event loops. Source: `pulsar.asyncio.Client`.

    Its producers and consumers may be used from one loop at a time. Nothing blocks the loop: what blocks runs in at
    most 16 threads, which end with `close`.
    """

    def __init__(self, service_url: str | AutoClusterFailover | ServiceInfoProvider, **kwargs: Any) -> None:
        """`kwargs` and exceptions are those of the blocking `Client`."""
        self._client = BlockingClient(service_url, **kwargs)
        self._bridge = Bridge()

    async def create_producer(
        self,
        topic: str,
        producer_name: str | None = None,
        schema: Schema | None = None,
        initial_sequence_id: int | None = None,
        send_timeout_millis: int = 30000,
        compression_type: CompressionType = CompressionType.NONE,
        max_pending_messages: int = 1000,
        max_pending_messages_across_partitions: int = 50000,
        block_if_queue_full: bool = False,
        batching_enabled: bool = True,
        batching_max_messages: int = 1000,
        batching_max_allowed_size_in_bytes: int = 128 * 1024,
        batching_max_publish_delay_ms: int = 10,
        chunking_enabled: bool = False,
        message_routing_mode: PartitionsRoutingMode = PartitionsRoutingMode.RoundRobinDistribution,
        lazy_start_partitioned_producers: bool = False,
        properties: dict[str, str] | None = None,
        batching_type: BatchingType = BatchingType.Default,
        encryption_key: str | None = None,
        crypto_key_reader: Any = None,
        access_mode: ProducerAccessMode = ProducerAccessMode.Shared,
        message_router: MessageRouter | None = None,
    ) -> Producer:
        """A producer of `topic`, which is made if it does not exist. It batches unless told otherwise.

        Raises:
            PulsarException: `error()` says why.
            ValueError: batching and chunking together, or an argument of a wrong type.
        """
        if batching_enabled and chunking_enabled:
            raise ValueError("batching_enabled and chunking_enabled cannot be used together")

        def made() -> tuple[BlockingProducer, int]:
            producer = self._client.create_producer(
                topic, producer_name, schema or BytesSchema(), initial_sequence_id, send_timeout_millis,
                compression_type,
                max_pending_messages, max_pending_messages_across_partitions, block_if_queue_full, batching_enabled,
                batching_max_messages, batching_max_allowed_size_in_bytes, batching_max_publish_delay_ms,
                chunking_enabled, message_routing_mode, lazy_start_partitioned_producers, properties, batching_type,
                encryption_key, crypto_key_reader, access_mode, message_router,
            )  # fmt: skip
            partitions = len(self._client.get_topic_partitions(topic)) if block_if_queue_full else 1
            return producer, room_for_pending(max_pending_messages, max_pending_messages_across_partitions, partitions)

        producer, room = await self._bridge.call(made, lambda unwanted: unwanted[0].close())
        return Producer(producer, self._bridge, Room(room) if block_if_queue_full else None)

    async def subscribe(
        self,
        topic: str | list[str],
        subscription_name: str,
        consumer_type: ConsumerType = ConsumerType.Exclusive,
        schema: Schema | None = None,
        receiver_queue_size: int = 1000,
        max_total_receiver_queue_size_across_partitions: int = 50000,
        consumer_name: str | None = None,
        unacked_messages_timeout_ms: int | None = None,
        broker_consumer_stats_cache_time_ms: int = 30000,
        negative_ack_redelivery_delay_ms: int = 60000,
        is_read_compacted: bool = False,
        properties: dict[str, str] | None = None,
        initial_position: InitialPosition = InitialPosition.Latest,
        crypto_key_reader: Any = None,
        replicate_subscription_state_enabled: bool = False,
        max_pending_chunked_message: int = 10,
        auto_ack_oldest_chunked_message_on_queue_full: bool = False,
        start_message_id_inclusive: bool = False,
        batch_receive_policy: Any = None,
        key_shared_policy: Any = None,
        batch_index_ack_enabled: bool = False,
        regex_subscription_mode: RegexSubscriptionMode = RegexSubscriptionMode.PersistentOnly,
        dead_letter_policy: Any = None,
        crypto_failure_action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL,
        is_pattern_topic: bool = False,
        *,
        retry_enable: bool = False,
        subscription_mode: SubscriptionMode = SubscriptionMode.Durable,
    ) -> Consumer:
        """A consumer of a subscription, which is created if it does not exist (as is the topic).

        With `is_pattern_topic` the topic is a regular expression. `retry_enable` is ours, as in `layer.Client`.

        Raises:
            PulsarException: `error()` says why.
            ValueError: an argument of a wrong type, or a list of topics as a pattern.
        """
        if not isinstance(topic, (str, list)):
            raise ValueError(f"topic is expected to be a str or a list, got {type(topic).__name__}: {topic!r:.60}")
        wanted: Any = topic
        if is_pattern_topic:
            if isinstance(topic, list):
                raise ValueError("topic must be a str when is_pattern_topic is True, got a list")
            wanted = re.compile(topic)
        subscribe = partial(
            self._client.subscribe,
            wanted,
            subscription_name,
            consumer_type=consumer_type,
            schema=schema or BytesSchema(),
            receiver_queue_size=receiver_queue_size,
            max_total_receiver_queue_size_across_partitions=max_total_receiver_queue_size_across_partitions,
            consumer_name=consumer_name,
            unacked_messages_timeout_ms=unacked_messages_timeout_ms,
            broker_consumer_stats_cache_time_ms=broker_consumer_stats_cache_time_ms,
            negative_ack_redelivery_delay_ms=negative_ack_redelivery_delay_ms,
            is_read_compacted=is_read_compacted,
            properties=properties,
            initial_position=initial_position,
            crypto_key_reader=crypto_key_reader,
            replicate_subscription_state_enabled=replicate_subscription_state_enabled,
            max_pending_chunked_message=max_pending_chunked_message,
            auto_ack_oldest_chunked_message_on_queue_full=auto_ack_oldest_chunked_message_on_queue_full,
            start_message_id_inclusive=start_message_id_inclusive,
            batch_receive_policy=batch_receive_policy,
            key_shared_policy=key_shared_policy,
            batch_index_ack_enabled=batch_index_ack_enabled,
            regex_subscription_mode=regex_subscription_mode,
            dead_letter_policy=dead_letter_policy,
            crypto_failure_action=crypto_failure_action,
            retry_enable=retry_enable,
            subscription_mode=subscription_mode,
        )
        return Consumer(await self._bridge.call(subscribe, BlockingConsumer.close), self._bridge)

    async def create_reader(
        self,
        topic: str,
        start_message_id: MessageId | NativeMessageId,
        schema: Schema | None = None,
        receiver_queue_size: int = 1000,
        reader_name: str | None = None,
        subscription_role_prefix: str | None = None,
        is_read_compacted: bool = False,
        crypto_key_reader: Any = None,
        start_message_id_inclusive: bool = False,
        crypto_failure_action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL,
    ) -> Reader:
        """A reader of a topic, from a place of its own. Parameters are the blocking client's.

        Raises:
            PulsarException: TopicNotFound, InvalidTopicName, ConnectError, as the blocking client.
        """
        create = partial(
            self._client.create_reader,
            topic,
            start_message_id,
            schema=schema or BytesSchema(),
            receiver_queue_size=receiver_queue_size,
            reader_name=reader_name,
            subscription_role_prefix=subscription_role_prefix,
            is_read_compacted=is_read_compacted,
            crypto_key_reader=crypto_key_reader,
            start_message_id_inclusive=start_message_id_inclusive,
            crypto_failure_action=crypto_failure_action,
        )
        return Reader(await self._bridge.call(create, BlockingReader.close), self._bridge)

    async def get_topic_partitions(self, topic: str) -> list[str]:
        """Names of the topic's partitions; the topic's own name when it is not partitioned."""
        return await self._bridge.call(lambda: self._client.get_topic_partitions(topic))

    async def new_transaction(self, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> Transaction:
        """Begin a transaction; the client must have been made with `enable_transaction=True`.

        Raises:
            PulsarException: `error()` says why.
        """
        return Transaction(await self._bridge.call(lambda: self._client.new_transaction(timeout_ms)), self._bridge)

    async def close(self) -> None:
        """Close every producer and consumer, end every thread.

        Raises:
            PulsarException: AlreadyClosed.
        """
        try:
            await self._bridge.call(self._client.close)
        finally:
            self._bridge.close()

    def shutdown(self) -> None:
        """`close` that blocks, may be called again, and tells of failures only in the log."""
        self._client.shutdown()
        self._bridge.close()
