"""`Client`: makes producers and consumers on one Kafka cluster."""

from __future__ import annotations

import logging
import re
import secrets
import threading
from collections.abc import Mapping
from typing import Any, Final

from layer.client.consumer import Consumer, MessageListener, inbox_capacity
from layer.client.enums import (
    BatchingType,
    CompressionType,
    ConsumerCryptoFailureAction,
    ConsumerType,
    InitialPosition,
    PartitionsRoutingMode,
    ProducerAccessMode,
    RegexSubscriptionMode,
)
from layer.client.errors import pulsar_errors
from layer.client.listener import ListenerThreads
from layer.client.logger import install_logger
from layer.client.message import Message
from layer.client.message_id import NativeMessageId
from layer.client.options import check_range, check_type, check_type_or_none, not_yet
from layer.client.producer import MessageRouter, Producer
from layer.client.service_url import parse_service_url
from layer.deadline import Deadline
from layer.dispatch.endpoint import Endpoint
from layer.dispatch.strategy import SubscriptionType
from layer.exceptions import AlreadyClosed, InvalidConfiguration, NotSupported
from layer.kafka.producer import KafkaProducer
from layer.kafka.settings import KafkaSettings
from layer.node import Node, acquire, release
from layer.schema.plain import BytesSchema, Schema
from mapping.topic_name import TopicName

_log = logging.getLogger(__name__)

_COMPRESSION: Final = {
    CompressionType.NONE: "none",
    CompressionType.LZ4: "lz4",
    CompressionType.ZLib: "gzip",
    CompressionType.ZSTD: "zstd",
    CompressionType.SNAPPY: "snappy",
}

_TYPES: Final = {
    ConsumerType.Exclusive: SubscriptionType.EXCLUSIVE,
    ConsumerType.Shared: SubscriptionType.SHARED,
    ConsumerType.Failover: SubscriptionType.FAILOVER,
    ConsumerType.KeyShared: SubscriptionType.KEY_SHARED,
}


class Client:
    """A connection to one cluster. Source: `pulsar.Client`.

    All Clients of a process that name the same cluster with the same settings share one node (producers, admin client,
    one group membership per subscription). The network is touched first by the first producer or consumer.

    `io_threads` and `concurrent_lookup_requests` are checked and have no effect: librdkafka has its own threads, and
    there are no lookups (docs/differences.md).
    """

    def __init__(
        self,
        service_url: str,
        authentication: object | None = None,
        operation_timeout_seconds: int = 30,
        io_threads: int = 1,
        message_listener_threads: int = 1,
        concurrent_lookup_requests: int = 50000,
        log_conf_file_path: str | None = None,
        stats_interval_in_seconds: int = 600,
        use_tls: bool = False,
        tls_trust_certs_file_path: str | None = None,
        tls_allow_insecure_connection: bool = False,
        tls_validate_hostname: bool = False,
        logger: Any = None,
        connection_timeout_ms: int = 10000,
        listener_name: str | None = None,
        tls_private_key_file_path: str | None = None,
        tls_certificate_file_path: str | None = None,
        *,
        kafka_config: Mapping[str, str] | None = None,
        ack_persist_interval_ms: int = 1000,
    ) -> None:
        """Ours beyond the official arguments: `kafka_config` (raw librdkafka options) and `ack_persist_interval_ms`
        (1 to 60,000: how long an acknowledgement may wait before it is durable).

        Raises:
            ValueError: the URL is not `kafka://host:port[,host:port...]`, or an argument has a wrong type.
            InvalidConfiguration: a number is out of range, or `kafka_config` sets what is not the user's to set.
            NotSupported: an option that this version does not have.
        """
        check_type(str, "service_url", service_url)
        for name, number in (
            ("operation_timeout_seconds", operation_timeout_seconds),
            ("io_threads", io_threads),
            ("message_listener_threads", message_listener_threads),
            ("concurrent_lookup_requests", concurrent_lookup_requests),
            ("connection_timeout_ms", connection_timeout_ms),
        ):
            check_type(int, name, number)
            check_range(name, number, 1)
        check_type(int, "stats_interval_in_seconds", stats_interval_in_seconds)
        check_type(int, "ack_persist_interval_ms", ack_persist_interval_ms)
        check_range("ack_persist_interval_ms", ack_persist_interval_ms, 1, 60_000)
        check_type_or_none(str, "log_conf_file_path", log_conf_file_path)
        for name, flag in (
            ("use_tls", use_tls),
            ("tls_allow_insecure_connection", tls_allow_insecure_connection),
            ("tls_validate_hostname", tls_validate_hostname),
        ):
            check_type(bool, name, flag)
            not_yet(f"{name} (use kafka_config)", when=flag)
        for name, text in (
            ("tls_trust_certs_file_path", tls_trust_certs_file_path),
            ("tls_private_key_file_path", tls_private_key_file_path),
            ("tls_certificate_file_path", tls_certificate_file_path),
            ("listener_name", listener_name),
        ):
            check_type_or_none(str, name, text)
            not_yet(f"{name} (use kafka_config)", when=text is not None)
        not_yet("authentication (use kafka_config)", when=authentication is not None)
        not_yet("log_conf_file_path (use logger)", when=log_conf_file_path is not None)
        not_yet(
            "periodic statistics in the log (stats_interval_in_seconds)", when=stats_interval_in_seconds not in (0, 600)
        )
        install_logger(logger)
        self._settings = KafkaSettings(
            parse_service_url(service_url), dict(kafka_config or {}), connect_timeout_ms=connection_timeout_ms
        )
        with pulsar_errors():
            self._settings.check()
        self._operation_timeout_s = float(operation_timeout_seconds)
        self._connect_timeout_s = connection_timeout_ms / 1000
        self._ack_persist_interval_s = ack_persist_interval_ms / 1000
        self._threads = ListenerThreads(message_listener_threads)
        self._node: Node | None = None
        self._producers: set[Producer] = set()
        self._consumers: set[Consumer] = set()
        self._lock = threading.RLock()
        self._closed = False

    # Producers ----------------------------------------------------------------------------------------------------

    def create_producer(
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
        batching_enabled: bool = False,
        batching_max_messages: int = 1000,
        batching_max_allowed_size_in_bytes: int = 128 * 1024,
        batching_max_publish_delay_ms: int = 10,
        chunking_enabled: bool = False,
        message_routing_mode: PartitionsRoutingMode = PartitionsRoutingMode.RoundRobinDistribution,
        lazy_start_partitioned_producers: bool = False,
        properties: dict[str, str] | None = None,
        batching_type: BatchingType = BatchingType.Default,
        encryption_key: str | None = None,
        crypto_key_reader: object | None = None,
        access_mode: ProducerAccessMode = ProducerAccessMode.Shared,
        message_router: MessageRouter | None = None,
    ) -> Producer:
        """A producer of `topic`, which is made if it does not exist.

        Raises:
            TopicNotFound: tenant, namespace or partition do not exist.
            InvalidTopicName, ConnectError, AlreadyClosed: as the official client.
            NotSupported: an option that this version does not have.
        """
        schema = schema if schema is not None else BytesSchema()
        check_type(str, "topic", topic)
        check_type_or_none(str, "producer_name", producer_name)
        check_type(Schema, "schema", schema)
        check_type_or_none(int, "initial_sequence_id", initial_sequence_id)
        for name, number in (
            ("send_timeout_millis", send_timeout_millis),
            ("max_pending_messages", max_pending_messages),
            ("max_pending_messages_across_partitions", max_pending_messages_across_partitions),
            ("batching_max_messages", batching_max_messages),
            ("batching_max_allowed_size_in_bytes", batching_max_allowed_size_in_bytes),
            ("batching_max_publish_delay_ms", batching_max_publish_delay_ms),
        ):
            check_type(int, name, number)
        for name, flag in (
            ("block_if_queue_full", block_if_queue_full),
            ("batching_enabled", batching_enabled),
            ("chunking_enabled", chunking_enabled),
            ("lazy_start_partitioned_producers", lazy_start_partitioned_producers),
        ):
            check_type(bool, name, flag)
        check_type(CompressionType, "compression_type", compression_type)
        check_type(PartitionsRoutingMode, "message_routing_mode", message_routing_mode)
        check_type_or_none(dict, "properties", properties)
        check_type(BatchingType, "batching_type", batching_type)
        check_type(ProducerAccessMode, "access_mode", access_mode)
        check_range("send_timeout_millis", send_timeout_millis, 0)
        check_range("max_pending_messages", max_pending_messages, 0)
        check_range("max_pending_messages_across_partitions", max_pending_messages_across_partitions, 0)
        if message_router is not None and not callable(message_router):
            raise ValueError(f"message_router must be callable, got {message_router!r:.60}")
        if message_routing_mode is PartitionsRoutingMode.CustomPartition and message_router is None:
            raise InvalidConfiguration("message_routing_mode CustomPartition needs a message_router")
        not_yet("batch entries (batching_enabled=True)", when=batching_enabled)
        not_yet("chunking_enabled", when=chunking_enabled)
        not_yet("producer properties", when=bool(properties))
        not_yet("end-to-end encryption", when=encryption_key is not None or crypto_key_reader is not None)
        not_yet(f"access_mode {access_mode.name}", when=access_mode is not ProducerAccessMode.Shared)
        with pulsar_errors():
            name_of_topic = self._topic_name(topic)
            node = self._connected()
            opened = node.topics.open(name_of_topic, self._deadline())

            def shared_producer() -> KafkaProducer:
                return node.producer(_COMPRESSION[compression_type], send_timeout_millis)

            producer = Producer(
                opened,
                shared_producer(),
                name=producer_name or node.unique_name(),
                schema=schema,
                initial_sequence_id=initial_sequence_id,
                max_pending=_max_pending(
                    max_pending_messages, max_pending_messages_across_partitions, opened.partitions
                ),
                block_if_full=block_if_queue_full,
                routing=message_routing_mode,
                router=message_router,
                fixed_partition=name_of_topic.partition if name_of_topic.partition >= 0 else None,
                renew=shared_producer,
                on_close=self._producers.discard,
            )
        self._producers.add(producer)
        return producer

    # Consumers ----------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topic: str,
        subscription_name: str,
        consumer_type: ConsumerType = ConsumerType.Exclusive,
        schema: Schema | None = None,
        message_listener: MessageListener | None = None,
        receiver_queue_size: int = 1000,
        max_total_receiver_queue_size_across_partitions: int = 50000,
        consumer_name: str | None = None,
        unacked_messages_timeout_ms: int | None = None,
        broker_consumer_stats_cache_time_ms: int = 30000,
        negative_ack_redelivery_delay_ms: int = 60000,
        is_read_compacted: bool = False,
        properties: dict[str, str] | None = None,
        pattern_auto_discovery_period: int = 60,
        initial_position: InitialPosition = InitialPosition.Latest,
        crypto_key_reader: object | None = None,
        replicate_subscription_state_enabled: bool = False,
        max_pending_chunked_message: int = 10,
        auto_ack_oldest_chunked_message_on_queue_full: bool = False,
        start_message_id_inclusive: bool = False,
        batch_receive_policy: object | None = None,
        key_shared_policy: object | None = None,
        batch_index_ack_enabled: bool = False,
        regex_subscription_mode: RegexSubscriptionMode = RegexSubscriptionMode.PersistentOnly,
        dead_letter_policy: object | None = None,
        crypto_failure_action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL,
    ) -> Consumer:
        """A consumer of a subscription, which is created if it does not exist (as is the topic).

        Raises:
            ConsumerBusy: the subscription has consumers that exclude this one.
            TopicNotFound, InvalidTopicName, ConnectError, AlreadyClosed: as the official client.
            NotSupported: an option that this version does not have.
        """
        schema = schema if schema is not None else BytesSchema()
        not_yet("subscriptions over several topics or patterns", when=isinstance(topic, (list, re.Pattern)))
        check_type(str, "topic", topic)
        check_type(str, "subscription_name", subscription_name)
        check_type(ConsumerType, "consumer_type", consumer_type)
        check_type(Schema, "schema", schema)
        for name, number in (
            ("receiver_queue_size", receiver_queue_size),
            ("max_total_receiver_queue_size_across_partitions", max_total_receiver_queue_size_across_partitions),
            ("broker_consumer_stats_cache_time_ms", broker_consumer_stats_cache_time_ms),
            ("negative_ack_redelivery_delay_ms", negative_ack_redelivery_delay_ms),
            ("pattern_auto_discovery_period", pattern_auto_discovery_period),
            ("max_pending_chunked_message", max_pending_chunked_message),
        ):
            check_type(int, name, number)
        for name, flag in (
            ("is_read_compacted", is_read_compacted),
            ("replicate_subscription_state_enabled", replicate_subscription_state_enabled),
            ("auto_ack_oldest_chunked_message_on_queue_full", auto_ack_oldest_chunked_message_on_queue_full),
            ("start_message_id_inclusive", start_message_id_inclusive),
            ("batch_index_ack_enabled", batch_index_ack_enabled),
        ):
            check_type(bool, name, flag)
        check_type_or_none(str, "consumer_name", consumer_name)
        check_type_or_none(int, "unacked_messages_timeout_ms", unacked_messages_timeout_ms)
        check_type_or_none(dict, "properties", properties)
        check_type(InitialPosition, "initial_position", initial_position)
        check_type(RegexSubscriptionMode, "regex_subscription_mode", regex_subscription_mode)
        check_type(ConsumerCryptoFailureAction, "crypto_failure_action", crypto_failure_action)
        check_range("negative_ack_redelivery_delay_ms", negative_ack_redelivery_delay_ms, 0)
        if message_listener is not None and not callable(message_listener):
            raise ValueError(f"message_listener must be callable, got {message_listener!r:.60}")
        not_yet(
            "Key_Shared subscriptions", when=consumer_type is ConsumerType.KeyShared or key_shared_policy is not None
        )
        not_yet("unacked_messages_timeout_ms", when=bool(unacked_messages_timeout_ms))
        not_yet("is_read_compacted", when=is_read_compacted)
        not_yet("consumer properties", when=bool(properties))
        not_yet("end-to-end encryption", when=crypto_key_reader is not None)
        not_yet("replicate_subscription_state_enabled", when=replicate_subscription_state_enabled)
        not_yet("batch_receive_policy", when=batch_receive_policy is not None)
        not_yet("batch_index_ack_enabled", when=batch_index_ack_enabled)
        not_yet("dead_letter_policy", when=dead_letter_policy is not None)
        with pulsar_errors():
            name_of_topic = self._topic_name(topic)
            not_yet("subscriptions on one partition of a topic", when=name_of_topic.partition >= 0)
            node = self._connected()
            deadline = self._deadline()
            opened = node.topics.open(name_of_topic, deadline)
            inbox = Endpoint(
                consumer_name or secrets.token_hex(5),
                inbox_capacity(receiver_queue_size, max_total_receiver_queue_size_across_partitions, opened.partitions),
                delivery_type=Message,
                schema=schema,
            )
            subscription, member = node.subscribe(
                opened,
                subscription_name,
                _TYPES[consumer_type],
                inbox,
                from_earliest=initial_position is InitialPosition.Earliest,
                ack_persist_interval_s=self._ack_persist_interval_s,
                deadline=deadline,
            )
            consumer = Consumer(
                node,
                subscription,
                member,
                inbox,
                kind=consumer_type,
                nack_delay_ms=negative_ack_redelivery_delay_ms,
                operation_timeout_s=self._operation_timeout_s,
                seek_inclusive=start_message_id_inclusive,
                listener=message_listener,
                threads=self._threads,
                on_close=self._consumers.discard,
            )
        self._consumers.add(consumer)
        return consumer

    def create_reader(self, topic: str, start_message_id: NativeMessageId, *args: Any, **kwargs: Any) -> Any:
        """Raises NotSupported: readers are not in this version."""
        raise NotSupported(f"create_reader({topic!r}, {start_message_id!r}): readers are not in this version")

    def create_table_view(self, topic: str, *args: Any, **kwargs: Any) -> Any:
        """Raises NotSupported: table views are not in this version."""
        raise NotSupported(f"create_table_view({topic!r}): table views are not in this version")

    def get_service_info(self) -> Any:
        """Raises NotSupported: switching clusters is not in this version."""
        raise NotSupported("get_service_info: not in this version")

    def get_topic_partitions(self, topic: str) -> list[str]:
        """Names of the topic's partitions; the topic's own name when it is not partitioned."""
        check_type(str, "topic", topic)
        with pulsar_errors():
            name = self._topic_name(topic)
            return list(self._connected().topics.open(name, self._deadline()).partition_names)

    # Life ---------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close every producer and consumer, end every thread.

        Raises:
            AlreadyClosed: it was closed before.
        """
        with self._lock:
            if self._closed:
                raise AlreadyClosed("the client is closed already")
            self._closed = True
            node, self._node = self._node, None
        try:
            for consumer in list(self._consumers):
                consumer.stop_receiving()  # or the messages of the first to leave would go to the next one
            for consumer in list(self._consumers):
                consumer.leave()
            for producer in list(self._producers):
                producer.close()
        finally:
            self._threads.close()
            if node is not None:
                release(node)

    def shutdown(self) -> None:
        """`close` that may be called again, and that tells of failures only in the log."""
        try:
            self.close()
        except AlreadyClosed:
            return
        except Exception:
            _log.exception("shutdown left something open")

    def _connected(self) -> Node:
        with self._lock:
            if self._closed:
                raise AlreadyClosed("the client is closed")
            if self._node is None:
                limit = min(self._connect_timeout_s, self._operation_timeout_s)
                self._node = acquire(self._settings, Deadline.after(limit))
            return self._node

    def _deadline(self) -> Deadline:
        return Deadline.after(self._operation_timeout_s)

    @staticmethod
    def _topic_name(topic: str) -> TopicName:
        name = TopicName.parse(topic)
        not_yet("non-persistent topics", when=not name.is_persistent)
        return name


def _max_pending(per_partition: int, across: int, partitions: int) -> int:
    """The official limits: so many per partition, and so many over all of them; 0 is no limit."""
    unlimited = 2**62
    total = per_partition * partitions if per_partition else unlimited
    return min(total, across) if across and partitions > 1 else total
