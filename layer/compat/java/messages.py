"""Java's messages and ids with the calls of the official Python client's."""

from __future__ import annotations

from typing import Any

from pulsar_on_kafka.compat.java.bridge import Bridge


class JavaMessageId:
    """Id of one entry, or of one message of a batch. `native` is Java's."""

    def __init__(self, native: Any) -> None:
        self.native = native

    def ledger_id(self) -> int:
        return int(self.native.getLedgerId())

    def entry_id(self) -> int:
        return int(self.native.getEntryId())

    def partition(self) -> int:
        return int(self.native.getPartitionIndex())

    def batch_index(self) -> int:
        return int(self.native.getBatchIndex())

    def serialize(self) -> bytes:
        return bytes(self.native.toByteArray())

    def __str__(self) -> str:
        return str(self.native.toString())

    def __eq__(self, other: object) -> bool:
        return bool(self.native.equals(other.native)) if isinstance(other, JavaMessageId) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


def native_id(bridge: Bridge, message_id: Any) -> Any:
    """Java's id for one of either client."""
    if isinstance(message_id, JavaMessageId):
        return message_id.native
    return bridge.call(bridge.api.MessageId.fromByteArray, message_id.serialize())


class JavaMessage:
    """`native` is Java's."""

    def __init__(self, native: Any) -> None:
        self.native = native

    def data(self) -> bytes:
        return bytes(self.native.getData())

    def has_null_value(self) -> bool:
        return self.native.getData() is None

    def properties(self) -> dict[str, str]:
        return {str(name): str(value) for name, value in self.native.getProperties().items()}

    def message_id(self) -> JavaMessageId:
        return JavaMessageId(self.native.getMessageId())

    def topic_name(self) -> str:
        return str(self.native.getTopicName())

    def producer_name(self) -> str:
        return str(self.native.getProducerName())

    def redelivery_count(self) -> int:
        return int(self.native.getRedeliveryCount())

    def publish_timestamp(self) -> int:
        return int(self.native.getPublishTime())

    def event_timestamp(self) -> int:
        return int(self.native.getEventTime())

    def partition_key(self) -> str:
        """'' for none, as in Python."""
        return str(self.native.getKey()) if self.native.hasKey() else ""

    def ordering_key(self) -> str:
        return bytes(self.native.getOrderingKey()).decode() if self.native.hasOrderingKey() else ""
