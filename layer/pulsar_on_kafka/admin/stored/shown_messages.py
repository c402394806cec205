"""A message for display: its place, its metadata, and its value, decoded."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, time
from enum import Enum
from typing import Any, Final

from pulsar_on_kafka.broker.subscriptions.partition.delayed import deliver_at_ms
from pulsar_on_kafka.client.values.message import Message
from pulsar_on_kafka.kafka.records import headers_of
from pulsar_on_kafka.schema.key_value import KeyValue
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId

_REASON_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """One message. Times are Unix times in ms, 0 for missing ones; keys are '' where there is none."""

    message_id: NativeMessageId
    topic: str
    key: str
    ordering_key: str
    properties: Mapping[str, str]
    publish_time_ms: int
    event_time_ms: int
    producer: str
    redelivery_count: int
    payload: bytes | None
    """None for a null one; the ciphertext where `encrypted`."""
    encrypted: bool
    """Whether it is encrypted and the reader has no key: only its metadata can be read."""
    decoded: bool
    """Whether `value` was decoded by the schema of the message."""
    value: Any
    """Made of what JSON has: dicts, lists, text, numbers, booleans and None."""
    undecoded: str
    """Why there is no value though the message names a schema; '' else."""
    deliver_at_ms: int
    """Unix time before which Shared and Key_Shared subscriptions do not deliver it; 0 without one."""


def shown(message: Message) -> ShownMessage:
    """The message, received by `AutoConsumeSchema`. Never raises for what its payload is like."""
    context = message.encryption_context()
    encrypted = context is not None and context.is_decryption_failed()
    decoded, value, undecoded = False, None, ""
    if not encrypted and message.payload() is not None and message.written_with() is not None:
        try:
            value = message.value()
            decoded = not isinstance(value, bytes)
            value = plain(value) if decoded else None
        except Exception as reason:  # each codec has its own, and a schema may not be to be had
            decoded, value, undecoded = False, None, (str(reason) or type(reason).__name__)[:_REASON_CHARS]
    return ShownMessage(
        message.message_id(),
        message.topic_name(),
        message.partition_key(),
        message.ordering_key(),
        message.properties(),
        message.publish_timestamp(),
        message.event_timestamp(),
        message.producer_name(),
        message.redelivery_count(),
        message.payload(),
        encrypted,
        decoded,
        value,
        undecoded,
        deliver_at_ms(headers_of(message.record)),
    )


def plain(value: Any) -> Any:
    """A decoded value as JSON has it: times in ISO 8601, bytes as text where they are UTF-8 and else as base64, enums
    by name, a message of protobuf by its fields; numbers that JSON has not, and anything else, as text."""
    match value:
        case None | bool() | str():
            return value
        case Enum():
            return value.name
        case int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes() | bytearray():
            return bytes_text(bytes(value))
        case date() | time():  # a datetime is a date
            return value.isoformat()
        case KeyValue():
            return {"key": plain(value.key), "value": plain(value.value)}
        case Mapping():
            return {str(name): plain(each) for name, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(each) for each in value]
        case _ if hasattr(value, "DESCRIPTOR"):
            from google.protobuf.json_format import MessageToDict  # only here: most topics need none

            return MessageToDict(value, preserving_proto_field_name=True)
        case _:
            return str(value)


def bytes_text(data: bytes) -> str:
    """UTF-8, or else base64."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return base64.b64encode(data).decode("ascii")
