"""`Message`: one message as the application sees it. Everything is worked out when it is asked for."""

from __future__ import annotations

from typing import Any

from layer.client.message_id import NativeMessageId, PartitionOrigin, StoredMessageId
from layer.dispatch.delivery import Delivery
from mapping.message_record import RecordHeaders, decode_headers, key_text


class Message(Delivery):
    """A received message. Source: `pulsar.Message`."""

    __slots__ = ("_decoded",)

    _decoded: RecordHeaders

    def _headers(self) -> RecordHeaders:
        try:
            return self._decoded
        except AttributeError:
            self._decoded = decode_headers(self.record.headers())
            return self._decoded

    def data(self) -> bytes:
        """The payload; b'' when it is null (see `has_null_value`)."""
        value = self.record.value()
        return b"" if value is None else value

    def value(self) -> Any:
        """The payload, decoded by the consumer's schema."""
        return self.feed.endpoint.schema.decode(self.data())

    def has_null_value(self) -> bool:
        return self.record.value() is None

    def properties(self) -> dict[str, str]:
        return dict(self._headers().properties)

    def partition_key(self) -> str:
        """'' when there is none; base64 when the Kafka key is no UTF-8, as Pulsar shows binary keys."""
        return "" if self._headers().key_is_ordering_key else key_text(self.record.key())

    def ordering_key(self) -> str:
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
        return self._headers().producer_name

    def message_id(self) -> NativeMessageId:
        slot = self.feed.slot
        return StoredMessageId(PartitionOrigin(slot.layout, slot.partition_field, slot.topic_name), self.offset)

    def topic_name(self) -> str:
        """Full name, with the partition's suffix on a partitioned topic."""
        return self.feed.slot.topic_name

    def redelivery_count(self) -> int:
        """How often it was delivered again; always 0 on Exclusive and Failover subscriptions, as in Pulsar."""
        return self.redeliveries

    def schema_version(self) -> str:
        """'' when it was sent without a schema."""
        version = self._headers().schema_version
        return "" if version is None else version.decode("latin-1")

    def encryption_context(self) -> None:
        """None: this version neither writes nor reads encrypted messages."""
        return

    def __repr__(self) -> str:
        return f"<Message {self.topic_name()} {self.message_id()}>"
