"""One message as the application sees it. All properties are decoded on demand."""

from __future__ import annotations

import logging
from operator import index
from typing import Any, Final, Generic, cast

from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.broker.publishing.outgoing_schema import RecordKey
from pulsar_on_kafka.broker.subscriptions.records.chunks import WholeMessage
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import BatchEntry, Delivery, PartitionConsumer
from pulsar_on_kafka.broker.subscriptions.records.decryption import OpenedRecord
from pulsar_on_kafka.client.values.encryption import EncryptionContext
from pulsar_on_kafka.client.values.message_id import MessageId, ReceivedId, native
from pulsar_on_kafka.kafka.records import KafkaRecord, headers_of, packed_headers_of
from pulsar_on_kafka.schema.value_type import V
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.ids.native_message_id import (
    BatchedMessageId,
    ChunkedMessageId,
    NativeMessageId,
    PartitionOrigin,
    StoredMessageId,
)
from pulsar_on_kafka_mapping.records.message_record import RecordHeaders, decode_headers, key_text
from pulsar_on_kafka_mapping.records.record_headers import SCHEMA_VERSION, PayloadFormat
from pulsar_on_kafka_mapping.wire.single_messages import SingleMessage, decode_batch
from pulsar_on_kafka_mapping.wire.stored_entries import kept_properties

_log: Final = logging.getLogger(__name__)


class Message(Generic[V]):
    """A received message. Source: `pulsar.Message`.

    Consumers create `ReceivedMessage`s. A subclass of an application may have attributes and a constructor of its own.
    """

    __slots__ = ()

    record: KafkaRecord
    feed: PartitionConsumer
    offset: int
    redeliveries: int
    trace_context: object
    """Set by a traced consumer alone; ours (`client.tracing.context_of`)."""
    _decoded: RecordHeaders | None

    def _headers(self) -> RecordHeaders:
        headers = self._decoded
        if headers is None:
            headers = self._decoded = self._decode()  # type: ignore[misc] # a field of ReceivedMessage
        return headers

    def _decode(self) -> RecordHeaders:
        """Unreadable headers count as missing: one odd header of a foreign program spoils no other."""

        def left_out(reason: CorruptRecord) -> None:
            _log.warning("message=%s is read without one of its headers: %s", self.message_id(), reason)

        return decode_headers(packed_headers_of(self.record), left_out)

    def data(self) -> bytes:
        """The payload; b'' when it is null (see `has_null_value`)."""
        value = self.record.value()
        return b"" if value is None else value

    def value(self) -> V:
        """The payload, decoded by the consumer's schema from the one that it was written with.

        None for a null payload, except by BytesSchema and StringSchema, to which it is empty.

        Raises:
            InvalidMessage, ...: see `IncomingValues.value`; other messages can be read all the same.
        """
        endpoint = self.feed.endpoint
        found = endpoint.schema.decode(self.data()) if endpoint.values is None else endpoint.values.value(self)
        return cast("V", found)

    def has_null_value(self) -> bool:
        """Whether the payload is null, which is not an empty one."""
        return self.record.value() is None

    def payload(self) -> bytes | None:
        """The payload; None when it is null. Ours, for decoding."""
        return self.record.value()

    def written_with(self) -> bytes | None:
        """The header that names the schema of its payload. Not in the official client, for decoding: every value needs
        it."""
        version = None
        for name, value in headers_of(self.record) or ():
            if name == SCHEMA_VERSION:
                version = value
        return version

    def properties(self) -> dict[str, str]:
        """Text; what is no UTF-8 is read as Latin-1, one character a byte."""
        headers = self._headers()
        return {**kept_properties(headers.pulsar_fields), **headers.properties}

    def partition_key(self) -> str:
        """'' when there is none; base64 when the Kafka key is no UTF-8, as Pulsar shows binary keys."""
        return "" if self._headers().key_is_ordering_key else key_text(self.record.key())

    def record_key(self) -> RecordKey | None:
        """The partition key as it is in the log. Ours, for copies and for keys with a schema."""
        key = None if self._headers().key_is_ordering_key else self.record.key()
        return None if key is None else RecordKey(key)

    def ordering_key(self) -> str:
        """The ordering key; '' for none."""
        headers = self._headers()
        if headers.key_is_ordering_key:
            return key_text(self.record.key())
        return key_text(headers.ordering_key)

    def publish_timestamp(self) -> int:
        """Unix time in ms at which it was sent."""
        original = self._headers().publish_time_ms
        return original if original is not None else self.record.timestamp()[1]

    def event_timestamp(self) -> int:
        """Unix time in ms that the sender gave; 0 when it gave none."""
        return self._headers().event_time_ms

    def producer_name(self) -> str:
        """The name of the producer."""
        return self._headers().producer_name

    def message_id(self) -> ReceivedId:
        """The message's id."""
        return cast("ReceivedId", StoredMessageId(self._origin(), self.offset))

    def _origin(self) -> PartitionOrigin:
        slot = self.feed.slot
        return PartitionOrigin(slot.layout, slot.partition_field, slot.topic_name)

    def topic_name(self) -> str:
        """Full name, with the partition's suffix on a partitioned topic."""
        return self.feed.slot.topic_name

    def redelivery_count(self) -> int:
        """The number of redeliveries; always 0 on Exclusive and Failover subscriptions, as in Pulsar."""
        return self.redeliveries

    def schema_version(self) -> str:
        """'' when it was sent without a schema."""
        version = self._headers().schema_version
        return "" if version is None else version.decode("latin-1")

    def encryption_context(self) -> EncryptionContext | None:
        """The encryption of the message; None when it was sent in clear."""
        headers = self._headers()
        if headers.encryption is None:
            return None
        batch = headers.batch
        if batch is not None and batch.format_version == PayloadFormat.PULSAR_MESSAGE:
            batch = None
        return EncryptionContext(
            headers.encryption,
            batch_size=-1 if batch is None else batch.messages,
            failed=self._undecrypted(),
            compression=headers.compression,
        )

    def _undecrypted(self) -> bool:
        return not isinstance(self.record, OpenedRecord)

    def __repr__(self) -> str:
        return f"<Message {self.topic_name()} {self.message_id()}>"


class ReceivedMessage(Message, Delivery, kw_only=True, gc=False, eq=False):
    """A message as a consumer or reader receives it; one record, unless it is of a subclass."""

    _decoded: RecordHeaders | None = None
    trace_context: object = None


class BatchedMessage(ReceivedMessage, gc=False, eq=False):
    """One message of a batch entry: content, keys, properties and event time are its own, the rest is the record's."""

    batch_index: int
    entry: BatchEntry

    def _headers(self) -> RecordHeaders:
        headers = self.entry.headers
        if headers is None:
            headers = self.entry.headers = self._decode()
        return headers

    def written_with(self) -> bytes | None:
        return self._headers().schema_version

    def data(self) -> bytes:
        return self.entry.columns.payloads[self.batch_index]

    def has_null_value(self) -> bool:
        return self.payload() is None

    def payload(self) -> bytes | None:
        return self.entry.columns.payload(self.batch_index)

    def properties(self) -> dict[str, str]:
        return dict(self.entry.columns.message(self.batch_index).properties or {})

    def partition_key(self) -> str:
        return key_text(self.entry.columns.message(self.batch_index).key)

    def record_key(self) -> RecordKey | None:
        key = self.entry.columns.message(self.batch_index).key
        return None if key is None else RecordKey(key)

    def ordering_key(self) -> str:
        return key_text(self.entry.columns.message(self.batch_index).ordering_key)

    def event_timestamp(self) -> int:
        return self.entry.columns.message(self.batch_index).event_time_ms

    def message_id(self) -> ReceivedId:
        return cast("ReceivedId", BatchedMessageId(self._origin(), self.offset, self.batch_index, self.entry.size))


class ChunkedMessage(ReceivedMessage, gc=False, eq=False):
    """A message that came in chunks. Its id is the last one's, and remembers the first one."""

    def message_id(self) -> ReceivedId:
        return cast("ReceivedId", ChunkedMessageId(self._origin(), self._whole().offsets[0], self.offset))

    def _undecrypted(self) -> bool:
        return not self._whole().decrypted

    def _whole(self) -> WholeMessage:
        return cast("WholeMessage", self.record)


ReceivedMessage.in_batch = BatchedMessage
ReceivedMessage.in_chunks = ChunkedMessage


def acknowledge_in_slot(message: Message) -> None:
    """Acknowledge a message, whatever became of the consumer that it was for."""
    if isinstance(message, BatchedMessage):
        message.feed.slot.ack_in_batch((message.offset, message.batch_index, message.entry.size))
    else:
        message.feed.slot.ack(message.offset)


class ParsedMessage(Message):
    """A message that `MessageBatch` made: in no topic, and of no consumer's."""

    __slots__ = ("_id", "_single")

    def __init__(self, single: SingleMessage, message_id: NativeMessageId) -> None:
        self._single = single
        self._id = message_id

    def data(self) -> bytes:
        return self._single.payload

    def value(self) -> Any:
        """The payload: a batch knows no schema."""
        return self._single.payload

    def has_null_value(self) -> bool:
        return self._single.is_null

    def properties(self) -> dict[str, str]:
        return self._single.property_texts()

    def partition_key(self) -> str:
        return key_text(self._single.partition_key)

    def ordering_key(self) -> str:
        return key_text(self._single.ordering_key)

    def publish_timestamp(self) -> int:
        """0: the metadata of the whole batch has it, which is not part of the payload."""
        return 0

    def event_timestamp(self) -> int:
        return self._single.event_time_ms

    def producer_name(self) -> str:
        return ""

    def message_id(self) -> ReceivedId:
        return cast("ReceivedId", self._id)

    def topic_name(self) -> str:
        return self._id.topic_of_message()

    def redelivery_count(self) -> int:
        return 0

    def schema_version(self) -> str:
        return ""

    def encryption_context(self) -> EncryptionContext | None:
        return None


class MessageBatch:
    """A message batch takes the payload of a Pulsar batch apart. Source: `pulsar.MessageBatch`."""

    def __init__(self) -> None:
        self._id = NativeMessageId(-1, -1, -1, -1)

    def with_message_id(self, msg_id: NativeMessageId | MessageId) -> MessageBatch:
        """Name the batch's id: its messages have the same, each with its batch index.

        Raises:
            TypeError: `msg_id` is no message id.
        """
        found = native(msg_id)
        if found is None:
            raise TypeError(f"msg_id must be a message id, got {type(msg_id).__name__}")
        self._id = found
        return self

    def parse_from(self, data: bytes | bytearray | str, size: int) -> list[Message]:
        """The first `size` messages (0 or more) of the batch with the payload `data`, uncompressed and in clear.

        Raises:
            TypeError: an argument is of another type, or `size` is negative.
            InvalidMessage: `data` does not hold that many messages, or one of them cannot be read. (The official
                client makes up empty ones.)
        """
        if isinstance(data, str):
            data = data.encode()
        if not isinstance(data, bytes | bytearray):
            raise TypeError(f"data must be bytes, got {type(data).__name__}")
        if index(size) < 0:
            raise TypeError(f"size must be 0 or more, got {size}")
        with pulsar_errors():
            found = decode_batch(bytes(data), size)
            return [ParsedMessage(single, self._id.in_batch(at, size)) for at, single in enumerate(found)]
