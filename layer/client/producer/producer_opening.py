"""Making a Producer: its options, and its admission to the topic."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from pulsar_on_kafka.client.connection.session import Session
from pulsar_on_kafka.client.producer.batching_producer import (
    BatchingOptions,
    BatchingProducer,
    ConfirmedBatchingProducer,
)
from pulsar_on_kafka.client.producer.chunking import ChunkingProducer, ConfirmedChunkingProducer, record_limit
from pulsar_on_kafka.client.producer.confirmed_producer import ConfirmedProducer
from pulsar_on_kafka.client.producer.producer import Producer
from pulsar_on_kafka.client.values.encryption import producer_encryption
from pulsar_on_kafka.client.values.enums import BatchingType, CompressionType, PartitionsRoutingMode, ProducerAccessMode
from pulsar_on_kafka.client.values.options import (
    check_batching,
    check_range,
    check_schema,
    check_texts,
    check_type,
    check_type_or_none,
)
from pulsar_on_kafka.crypto.encryptor import Encryptor
from pulsar_on_kafka.crypto.keys import CryptoKeyReader
from pulsar_on_kafka.exceptions import InvalidConfiguration
from pulsar_on_kafka.kafka.producer import KafkaProducer
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.mapping.state.metadata.producer_records import MAX_PROPERTIES_BYTES, Publisher, properties_bytes
from pulsar_on_kafka.metadata.producers.admission import AccessMode
from pulsar_on_kafka.metadata.topics import Topic, check_backlog
from pulsar_on_kafka.node.node import Node
from pulsar_on_kafka.schema.plain import Schema
from pulsar_on_kafka.sending.deduplication import Deduplication
from pulsar_on_kafka.sending.official_errors import pulsar_errors
from pulsar_on_kafka.sending.outgoing_schema import outgoing_schema
from pulsar_on_kafka.sending.routing import MessageRouter

_COMPRESSION: Final = {
    CompressionType.NONE: "none",
    CompressionType.LZ4: "lz4",
    CompressionType.ZLib: "gzip",
    CompressionType.ZSTD: "zstd",
    CompressionType.SNAPPY: "snappy",
}

_ACCESS_MODES: Final = {
    ProducerAccessMode.Shared: AccessMode.SHARED,
    ProducerAccessMode.Exclusive: AccessMode.EXCLUSIVE,
    ProducerAccessMode.WaitForExclusive: AccessMode.WAIT_FOR_EXCLUSIVE,
    ProducerAccessMode.ExclusiveWithFencing: AccessMode.EXCLUSIVE_WITH_FENCING,
}

_UNLIMITED: Final = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """The official options of `create_producer`, but for the topic."""

    producer_name: str | None = None
    schema: Schema
    initial_sequence_id: int | None = None
    send_timeout_millis: int = 30000
    compression_type: CompressionType = CompressionType.NONE
    max_pending_messages: int = 1000
    max_pending_messages_across_partitions: int = 50000
    block_if_queue_full: bool = False
    batching_enabled: bool = False
    batching_max_messages: int = 1000
    batching_max_allowed_size_in_bytes: int = 128 * 1024
    batching_max_publish_delay_ms: int = 10
    chunking_enabled: bool = False
    message_routing_mode: PartitionsRoutingMode = PartitionsRoutingMode.RoundRobinDistribution
    lazy_start_partitioned_producers: bool = False
    properties: dict[str, str] | None = None
    batching_type: BatchingType = BatchingType.Default
    encryption_key: str | None = None
    crypto_key_reader: CryptoKeyReader | None = field(default=None, repr=False)
    access_mode: ProducerAccessMode = ProducerAccessMode.Shared
    message_router: MessageRouter | None = None

    def check(self) -> None:
        """Raises ValueError, TypeError, InvalidConfiguration or NotSupported; the message names the value."""
        check_type_or_none(str, "producer_name", self.producer_name)
        check_schema(self.schema)
        check_type_or_none(int, "initial_sequence_id", self.initial_sequence_id)
        for name in (
            "send_timeout_millis",
            "max_pending_messages",
            "max_pending_messages_across_partitions",
            "batching_max_messages",
            "batching_max_allowed_size_in_bytes",
            "batching_max_publish_delay_ms",
        ):
            check_type(int, name, getattr(self, name))
        for name in (
            "block_if_queue_full",
            "batching_enabled",
            "chunking_enabled",
            "lazy_start_partitioned_producers",
        ):
            check_type(bool, name, getattr(self, name))
        check_type(CompressionType, "compression_type", self.compression_type)
        routing = self.message_routing_mode
        if not isinstance(routing, PartitionsRoutingMode):  # TypeError here alone, as officially
            raise TypeError(f"message_routing_mode must be a PartitionsRoutingMode, got {routing!r:.60}")
        _check_properties(self.properties)
        check_type(BatchingType, "batching_type", self.batching_type)
        check_type(ProducerAccessMode, "access_mode", self.access_mode)
        check_range("send_timeout_millis", self.send_timeout_millis, 0)
        for name in ("max_pending_messages", "max_pending_messages_across_partitions"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")
        if self.message_router is not None and not callable(self.message_router):
            raise ValueError(f"message_router must be callable, got {self.message_router!r:.60}")
        if routing is PartitionsRoutingMode.CustomPartition and self.message_router is None:
            raise InvalidConfiguration("message_routing_mode CustomPartition needs a message_router")
        check_batching(
            self.batching_max_messages, self.batching_max_allowed_size_in_bytes, self.batching_max_publish_delay_ms,
            enabled=self.batching_enabled, with_chunking=self.chunking_enabled,
        )  # fmt: skip

    def batching(self) -> BatchingOptions:
        return BatchingOptions(
            self.batching_max_messages,
            self.batching_max_allowed_size_in_bytes,
            self.batching_max_publish_delay_ms / 1000,
            self.batching_type,
        )


def kafka_producer(node: Node, options: ProducerOptions) -> KafkaProducer:
    """What a producer with these options sends through; shared with others of the same ones."""
    return node.producer(_COMPRESSION[options.compression_type], options.send_timeout_millis)


def open_producer(topic: str, options: ProducerOptions, session: Session) -> Producer:
    """A producer that was admitted to `topic`. `options` are checked. Raises what `Client.create_producer` says."""
    with pulsar_errors():
        encryptor = producer_encryption(options.encryption_key, options.crypto_key_reader)
        name = TopicName.parse(topic)
        node = session.node()
        opened = node.topics.open(name, session.deadline())
        check_backlog(opened, node.clock.now_ms())
        fixed = name.partition if name.partition >= 0 else None
        producer = _admitted(node, opened, options, encryptor, fixed, session)
    session.producer_opened(producer, opened)
    return producer


def _admitted(
    node: Node,
    topic: Topic,
    options: ProducerOptions,
    encryptor: Encryptor | None,
    fixed_partition: int | None,
    session: Session,
) -> Producer:
    """Raises what `ProducerRegistry.join` does, and ConnectFailed: no broker answered."""
    meter = node.meters.topic(str(topic.name))

    def forget(closed: Producer) -> None:
        meter.closed(closed)
        session.producer_closed(closed)

    def shared_producer() -> KafkaProducer:
        return kafka_producer(node, options)

    kafka = shared_producer()
    if topic.partitioned:
        kafka.learn_partitions(topic.kafka_topic, topic.partitions, session.deadline())
    mode = _ACCESS_MODES[options.access_mode]
    made_up = node.unique_name()
    claimed = options.producer_name or (None if mode is AccessMode.SHARED else made_up)
    wanted = node.deduplicated([topic.name], session.deadline())[topic.name]
    schema = outgoing_schema(options.schema, topic, node.schemas, session.deadline())

    def more_than_plain(*, chunks: bool = False, markers: bool = False) -> None:
        with pulsar_errors():
            if markers:
                node.producers.marked(topic, session.deadline())
            else:
                node.producers.more_than_plain(topic, session.deadline(), chunks=chunks)

    if options.batching_enabled or options.chunking_enabled or encryptor is not None:
        more_than_plain()
    membership = node.producers.join(topic, claimed, mode, session.deadline(), own_epoch=wanted)
    name = options.producer_name or made_up
    lasting = bool(options.producer_name)
    deduplication = Deduplication(topic, name, membership, node.sequences, lasting=lasting)
    settings: dict[str, Any] = {
        "cluster_id": node.cluster_id,
        "name": name,
        "schema": schema,
        "initial_sequence_id": options.initial_sequence_id,
        "max_pending": room_for_pending(
            options.max_pending_messages, options.max_pending_messages_across_partitions, topic.partitions
        ),
        "block_if_full": options.block_if_queue_full,
        "routing": options.message_routing_mode,
        "router": options.message_router,
        "fixed_partition": fixed_partition,
        "encryptor": encryptor,
        "renew": shared_producer,
        "membership": membership,
        "deduplication": deduplication,
        "on_close": forget,
        "more_than_plain": more_than_plain,
        "send_timeout_ms": options.send_timeout_millis,
    }
    producer: Producer
    try:
        if wanted:
            partitions = range(topic.partitions) if fixed_partition is None else (fixed_partition,)
            deduplication.open(partitions, session.deadline())
            deduplication.active = True
        else:
            deduplication.end(session.deadline())
        if options.batching_enabled:
            batching = BatchingProducer if mode is AccessMode.SHARED else ConfirmedBatchingProducer
            producer = batching(topic, kafka, batching=options.batching(), timer=node.timer, **settings)
        elif options.chunking_enabled:
            chunking = ChunkingProducer if mode is AccessMode.SHARED else ConfirmedChunkingProducer
            limit = record_limit(node.admin, topic.kafka_topic, session.deadline())
            producer = chunking(topic, kafka, record_bytes=limit, **settings)
        else:
            kind = Producer if mode is AccessMode.SHARED else ConfirmedProducer
            producer = kind(topic, kafka, **settings)
    except BaseException:
        membership.leave(session.deadline())
        raise
    meter.opened(producer)
    since_ms = node.clock.now_ms()

    def describe() -> Publisher:
        counts = producer.send_counts()
        return Publisher(
            producer.producer_name(), mode.value, membership.epoch, since_ms, counts.sent, counts.failed,
            options.properties or {},
        )  # fmt: skip

    membership.introduce(describe)
    return producer


def _check_properties(properties: dict[Any, Any] | None) -> None:
    check_texts("properties", properties)
    size = properties_bytes(properties or {})
    if size > MAX_PROPERTIES_BYTES:
        raise InvalidConfiguration(f"properties take {size} bytes, at most {MAX_PROPERTIES_BYTES} are kept")


def room_for_pending(per_partition: int, across: int, partitions: int) -> int:
    """Messages that may be under way. The official limits: so many per partition, and so many over all of them; 0 is
    no limit."""
    total = per_partition * partitions if per_partition else _UNLIMITED
    return min(total, across) if across and partitions > 1 else total
