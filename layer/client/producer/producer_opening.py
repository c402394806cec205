"""The options of `create_producer` become what a producer applies with on the floor of sending."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Final

from pulsar_on_kafka.client.connection.session import Session
from pulsar_on_kafka.client.producer.producer import Producer
from pulsar_on_kafka.client.values.encryption import producer_encryption
from pulsar_on_kafka.client.values.enums import BatchingType, CompressionType, PartitionsRoutingMode, ProducerAccessMode
from pulsar_on_kafka.client.values.option_tables import BYTES, ELSEWHERE, Within, check_table
from pulsar_on_kafka.crypto.encryptor import Sealer
from pulsar_on_kafka.crypto.keys import CryptoKeyReader
from pulsar_on_kafka.exceptions import InvalidConfiguration
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.mapping.state.metadata.producer_records import MAX_PROPERTIES_BYTES, properties_bytes
from pulsar_on_kafka.metadata.producers.admission import AccessMode
from pulsar_on_kafka.schema.plain import Schema
from pulsar_on_kafka.sending.admission import Admission, Application
from pulsar_on_kafka.sending.arguments import check_texts
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


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """The official options of `create_producer`."""

    topic: str
    producer_name: str | None = None
    schema: Schema = BYTES
    initial_sequence_id: int | None = None
    send_timeout_millis: Annotated[int, Within(0)] = 30000
    compression_type: CompressionType = CompressionType.NONE
    max_pending_messages: int = 1000
    max_pending_messages_across_partitions: int = 50000
    block_if_queue_full: bool = False
    batching_enabled: bool = False
    batching_max_messages: int = 1000
    batching_max_allowed_size_in_bytes: int = 128 * 1024
    batching_max_publish_delay_ms: int = 10
    chunking_enabled: bool = False
    message_routing_mode: Annotated[PartitionsRoutingMode, ELSEWHERE] = PartitionsRoutingMode.RoundRobinDistribution
    lazy_start_partitioned_producers: bool = False
    properties: dict[str, str] | None = None
    batching_type: BatchingType = BatchingType.Default
    encryption_key: Annotated[str | None, ELSEWHERE] = None
    crypto_key_reader: Annotated[CryptoKeyReader | None, ELSEWHERE] = field(default=None, repr=False)
    access_mode: ProducerAccessMode = ProducerAccessMode.Shared
    message_router: MessageRouter | None = None

    def check(self) -> None:
        """Raises ValueError, TypeError, InvalidConfiguration or NotSupported; the message names the value."""
        check_table(self)
        routing = self.message_routing_mode
        if not isinstance(routing, PartitionsRoutingMode):  # TypeError here alone, as officially
            raise TypeError(f"message_routing_mode must be a PartitionsRoutingMode, got {routing!r:.60}")
        check_texts("properties", self.properties)
        size = properties_bytes(self.properties or {})
        if size > MAX_PROPERTIES_BYTES:
            raise InvalidConfiguration(f"properties take {size} bytes, at most {MAX_PROPERTIES_BYTES} are kept")
        for name in ("max_pending_messages", "max_pending_messages_across_partitions"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")
        if routing is PartitionsRoutingMode.CustomPartition and self.message_router is None:
            raise InvalidConfiguration("message_routing_mode CustomPartition needs a message_router")
        self._check_batching()

    def _check_batching(self) -> None:
        """The official checks: TypeError below 0, ValueError for a batch that could hold one message only."""
        if self.batching_enabled and self.chunking_enabled:
            raise ValueError("Batching and chunking of messages can't be enabled together.")
        for name in ("batching_max_messages", "batching_max_allowed_size_in_bytes", "batching_max_publish_delay_ms"):
            if getattr(self, name) < 0:
                raise TypeError(f"{name} must be 0 or more, got {getattr(self, name)}")
        if self.batching_max_messages <= 1:
            raise ValueError(f"batching_max_messages must be greater than 1, got {self.batching_max_messages}")

    def application(self, sealer: Sealer | None = None) -> Application:
        """What a producer with these options applies with; `sealer` encrypts instead of the key that they name. Raises
        as `producer_encryption`."""
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
            sealer=sealer or producer_encryption(self.encryption_key, self.crypto_key_reader),
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


def open_producer(options: ProducerOptions, session: Session, sealer: Sealer | None = None) -> Producer:
    """A producer that was admitted to its topic. `options` are checked. Raises what `Client.create_producer` says."""
    with pulsar_errors():
        wants = options.application(sealer)
        name = TopicName.parse(options.topic)
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
