"""`Producer`: sends messages to a topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Any, Final, Protocol, cast

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.forks import OfOneProcess
from pulsar_on_kafka.base.meters import SendCounts
from pulsar_on_kafka.broker.metadata.producers.admission import AccessMode
from pulsar_on_kafka.broker.publishing.admission import Application, TopicAdmission
from pulsar_on_kafka.broker.publishing.arguments import check_texts, of_type
from pulsar_on_kafka.broker.publishing.batching import BatchingOptions
from pulsar_on_kafka.broker.publishing.in_flight import SendCallback, SendResult
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.broker.publishing.outgoing_message import MAX_SEQUENCE_ID
from pulsar_on_kafka.broker.publishing.outgoing_schema import RecordKey
from pulsar_on_kafka.broker.publishing.outlet import Limits
from pulsar_on_kafka.broker.publishing.routing import MessageRouter
from pulsar_on_kafka.broker.publishing.sender import SenderOptions
from pulsar_on_kafka.broker.publishing.transactional_sends import Transaction
from pulsar_on_kafka.client.connection.session import Session
from pulsar_on_kafka.client.values.encryption import producer_encryption
from pulsar_on_kafka.client.values.enums import (
    BatchingType,
    CompressionType,
    HashingScheme,
    PartitionsRoutingMode,
    ProducerAccessMode,
)
from pulsar_on_kafka.client.values.message_id import ReceivedId
from pulsar_on_kafka.client.values.option_tables import BYTES, ELSEWHERE, OptionRange, check_table
from pulsar_on_kafka.client.values.stats_log import StatsLine
from pulsar_on_kafka.crypto.encryptor import Sealer
from pulsar_on_kafka.crypto.keys import CryptoKeyReader
from pulsar_on_kafka.exceptions import InvalidConfiguration
from pulsar_on_kafka.schema.plain import Schema
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.routing.key_hashes import KeyHash
from pulsar_on_kafka_mapping.state.metadata.producer_records import MAX_PROPERTIES_BYTES, properties_bytes


class Sends(Protocol):
    """The sender of a producer: the `Sender` on its cluster, or one that moves between clusters."""

    @property
    def name(self) -> str: ...
    @property
    def send(self) -> Callable[..., None]: ...
    def topic(self) -> str: ...
    def last_sequence_id(self) -> int: ...
    def send_counts(self) -> SendCounts: ...
    def is_connected(self) -> bool: ...
    def wait_for_all(self, deadline: Deadline) -> int: ...
    def wait_for_callbacks(self) -> None: ...
    def flush(self) -> None: ...
    def close(self, reported: Callable[[], None]) -> None: ...


class Producer(OfOneProcess):
    """A producer publishes to one topic. Thread-safe. Source: `pulsar.Producer`.

    Memory: at most `max_pending_messages` unanswered messages; beyond that `send_async` waits
    (`block_if_queue_full`) or answers `ProducerQueueIsFull`.
    """

    def __init__(self, sender: Sends, on_close: Callable[[Producer], None]) -> None:
        self.sender = sender
        self._on_close = on_close
        if type(self).send_async is _SEND_ASYNC:  # the method is not overridden
            # The way of messages was chosen when this was opened: by the method below each would cost one more call.
            self.send_async = sender.send  # type: ignore[method-assign]

    def topic(self) -> str:
        """The topic's full name."""
        return self.sender.topic()

    def producer_name(self) -> str:
        """The name, given or made up."""
        return self.sender.name

    def last_sequence_id(self) -> int:
        """Sequence id of the message that was stored last; -1 (or the initial one) before the first. Each partition
        counts for itself: of several the highest. Source: PartitionedProducerImpl of the official client."""
        return self.sender.last_sequence_id()

    def send_counts(self) -> SendCounts:
        """Counts of messages and bytes. Not in the official client."""
        return self.sender.send_counts()

    def stats_line(self) -> StatsLine:
        """The line of this producer in the log of statistics. Not in the official client."""
        counts = self.send_counts()
        return StatsLine(
            f"producer={self.producer_name()} topic={self.topic()}",
            {"sent": counts.sent, "failed": counts.failed},
            {"pending": counts.pending},
        )

    def is_connected(self) -> bool:
        """Whether it is open and can send."""
        return self.sender.is_connected()

    def send(
        self,
        content: Any,
        properties: dict[str, str] | None = None,
        partition_key: str | RecordKey | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        replication_clusters: Sequence[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
        *,
        txn: Transaction | None = None,
    ) -> ReceivedId:
        """Sends one message and waits until every in-sync replica has it. Callbacks of messages that were answered
        before have returned then, unless they take more than a second.

        In a transaction (`txn`) it is invisible before the commit, and has a record of its own. The first message of a
        transaction to a partition waits for its registration with the coordinator.

        With `deliver_at` (Unix time in ms) or `deliver_after`, which wins, Shared and Key_Shared subscriptions deliver
        it then: never earlier, and within 0.1 s when a consumer has room (Pulsar: within 1 s, perhaps earlier).
        Exclusive and Failover subscriptions and readers deliver it at once, as in Pulsar. 0 and times that have passed
        are at once everywhere.

        Raises:
            MessageTooBig, ProducerQueueIsFull, Timeout, AlreadyClosed: as the official client.
            InvalidTxnStatusError: the transaction is not open.
        """
        answer = SendResult()
        self.send_async(
            content, answer, properties, partition_key, ordering_key, sequence_id, replication_clusters,
            disable_replication, event_timestamp, deliver_at, deliver_after, txn=txn,
        )  # fmt: skip
        with pulsar_errors():
            message_id = answer.answer()
        self.sender.wait_for_callbacks()
        return cast("ReceivedId", message_id)

    def send_async(
        self,
        content: Any,
        callback: SendCallback | None,
        properties: dict[str, str] | None = None,
        partition_key: str | RecordKey | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        replication_clusters: Sequence[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
        *,
        txn: Transaction | None = None,
    ) -> None:
        """Send one message; `callback(result, message_id)` is called from another thread or from a later send, one
        callback at a time. It may call this package, also `send`, `flush` and `close`.

        A refusal (closed, too big, queue full) goes to the callback as well, as officially. What a callback raises is
        logged. A synchronous send waits for its batch like any other message, as officially.
        """
        self.sender.send(
            content, callback, properties, partition_key, ordering_key, sequence_id, replication_clusters,
            disable_replication, event_timestamp, deliver_at, deliver_after, txn,
        )  # fmt: skip

    def flush(self) -> None:
        """Return when everything sent before this call was answered (stored or failed).

        Raises:
            AlreadyClosed: it was closed.
            ProducerFenced: another exclusive producer has the topic now; some of it may be void.
        """
        self.sender.flush()

    def close(self) -> None:
        """Wait for what is under way, then refuse further calls.

        Raises:
            AlreadyClosed: it was closed before.
            Timeout: messages are still unanswered after 30 s.
        """
        self.sender.close(lambda: self._on_close(self))


_SEND_ASYNC: Final = Producer.send_async


_COMPRESSION: Final = {
    CompressionType.NONE: "none",
    CompressionType.LZ4: "lz4",
    CompressionType.ZLib: "gzip",
    CompressionType.ZSTD: "zstd",
    CompressionType.SNAPPY: "snappy",
}


@dataclass(frozen=True, slots=True)
class _Official:
    """The official options of `create_producer`, in their order."""

    topic: str
    producer_name: str | None = None
    schema: Schema = BYTES
    initial_sequence_id: Annotated[int | None, OptionRange(-1, MAX_SEQUENCE_ID)] = None
    send_timeout_millis: Annotated[int, OptionRange(0)] = 30000
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions(_Official):
    """The official options of `create_producer`, and ours, which are given by keyword only."""

    hashing_scheme: HashingScheme = HashingScheme.Crc32Hash

    def check(self) -> None:
        """Raises ValueError, TypeError, InvalidConfiguration or NotSupported; the message names the value."""
        check_table(self)
        routing = of_type(PartitionsRoutingMode, "message_routing_mode", self.message_routing_mode)
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
        """The application of a producer with these options; `sealer` encrypts instead of the key that they name. Raises
        the errors of `producer_encryption`."""
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
            hashing=KeyHash(self.hashing_scheme.name),
            batching=batching if self.batching_enabled else None,
        )
        return Application(
            name=self.producer_name,
            schema=self.schema,
            options=options,
            mode=AccessMode(self.access_mode.name),
            compression=_COMPRESSION[self.compression_type],
            chunked=self.chunking_enabled,
            properties=self.properties or {},
        )


def open_producer(options: ProducerOptions, session: Session, sealer: Sealer | None = None) -> Producer:
    """A producer that was admitted to its topic. `options` are checked. Raises the errors of
    `Client.create_producer`."""
    with pulsar_errors():
        requires = options.application(sealer)
        name = TopicName.parse(options.topic)
        admission = TopicAdmission(session.node(), name, session.deadline)
        sender = admission.admit(requires)
    meter = session.node().meters.topic(str(admission.topic.name))

    def forget(closed: Producer) -> None:
        meter.closed(sender)
        session.producer_closed(closed, sender)

    producer = Producer(sender, forget)
    meter.opened(sender)
    session.producer_opened(producer, sender, admission.topic)
    return producer
