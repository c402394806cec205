"""The options of `create_producer` become what a producer applies with on the floor of sending."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from pulsar_on_kafka.client.connection.session import Session
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
from pulsar_on_kafka.crypto.keys import CryptoKeyReader
from pulsar_on_kafka.exceptions import InvalidConfiguration
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.mapping.state.metadata.producer_records import MAX_PROPERTIES_BYTES, properties_bytes
from pulsar_on_kafka.metadata.producers.admission import AccessMode
from pulsar_on_kafka.schema.plain import Schema
from pulsar_on_kafka.sending.admission import Admission, Application
from pulsar_on_kafka.sending.batching import BatchingOptions
from pulsar_on_kafka.sending.official_errors import pulsar_errors
from pulsar_on_kafka.sending.outlet import Limits
from pulsar_on_kafka.sending.routing import MessageRouter
from pulsar_on_kafka.sending.sender import SenderOptions

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

    def application(self) -> Application:
        """What a producer with these options applies with. Raises as `producer_encryption`."""
        batching = BatchingOptions(
            self.batching_max_messages,
            self.batching_max_allowed_size_in_bytes,
            self.batching_max_publish_delay_ms / 1000,
            self.batching_type is BatchingType.KeyBased,
        )
        options = SenderOptions(
            limits=Limits(
                self.max_pending_messages,
                self.max_pending_messages_across_partitions,
                self.block_if_queue_full,
                self.send_timeout_millis,
            ),
            initial_sequence_id=self.initial_sequence_id,
            sealer=producer_encryption(self.encryption_key, self.crypto_key_reader),
            to_one=self.message_routing_mode is PartitionsRoutingMode.UseSinglePartition,
            router=self.message_router,
            batching=batching if self.batching_enabled else None,
        )
        return Application(
            name=self.producer_name,
            schema=self.schema,
            options=options,
            mode=_ACCESS_MODES[self.access_mode],
            compression=_COMPRESSION[self.compression_type],
            chunked=self.chunking_enabled,
            properties=self.properties or {},
        )


def open_producer(topic: str, options: ProducerOptions, session: Session) -> Producer:
    """A producer that was admitted to `topic`. `options` are checked. Raises what `Client.create_producer` says."""
    with pulsar_errors():
        wants = options.application()
        name = TopicName.parse(topic)
        admission = Admission(session.node(), name, session.deadline)
        sender = admission.admit(wants)
    meter = session.node().meters.topic(str(admission.topic.name))

    def forget(closed: Producer) -> None:
        meter.closed(sender)
        session.producer_closed(closed, sender)

    producer = Producer(sender, forget)
    meter.opened(sender)
    session.producer_opened(producer, sender, admission.topic)
    return producer


def _check_properties(properties: dict[Any, Any] | None) -> None:
    check_texts("properties", properties)
    size = properties_bytes(properties or {})
    if size > MAX_PROPERTIES_BYTES:
        raise InvalidConfiguration(f"properties take {size} bytes, at most {MAX_PROPERTIES_BYTES} are kept")
