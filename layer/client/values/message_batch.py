"""`MessageBatch`: takes the payload of a Pulsar batch apart. No connection is needed."""

from __future__ import annotations

from operator import index
from typing import Any

from pulsar_on_kafka.client.values.encryption import EncryptionContext
from pulsar_on_kafka.client.values.message import Message
from pulsar_on_kafka.client.values.message_id import MessageId, native
from pulsar_on_kafka.mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka.mapping.records.message_record import key_text
from pulsar_on_kafka.mapping.records.single_message import SingleMessage, decode_batch
from pulsar_on_kafka.sending.official_errors import pulsar_errors


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
        return dict(self._single.properties)

    def partition_key(self) -> str:
        return self._single.partition_key

    def ordering_key(self) -> str:
        return key_text(self._single.ordering_key)

    def publish_timestamp(self) -> int:
        """0: the metadata of the whole batch has it, which is not part of the payload."""
        return 0

    def event_timestamp(self) -> int:
        return self._single.event_time_ms

    def producer_name(self) -> str:
        return ""

    def message_id(self) -> NativeMessageId:
        return self._id

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
            InvalidMessage: `data` does not hold that many messages. (The official client makes up empty ones.)
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
