"""A batch entry of this SDK becomes the payload of a Pulsar batch (`single_messages`)."""

from __future__ import annotations

from collections.abc import Iterable

from pulsar_on_kafka_mapping.encoding.varint import utf8
from pulsar_on_kafka_mapping.records.batch_entry import BatchMessage
from pulsar_on_kafka_mapping.wire.message_metadata import Field, encode_fields
from pulsar_on_kafka_mapping.wire.stored_entries import key_as_sent

_PROPERTY, _PARTITION_KEY, _PAYLOAD_SIZE, _EVENT_TIME, _IN_BASE64, _ORDERING_KEY, _SEQUENCE_ID, _NULL_VALUE = (
    1, 2, 3, 5, 6, 7, 8, 9,
)  # fmt: skip


def pulsar_batch(messages: Iterable[BatchMessage]) -> bytes:
    """The payload, uncompressed. Raises MappingError: a property has lone surrogates."""
    out = bytearray()
    for each in messages:
        payload = each.payload or b""
        metadata = encode_fields(_fields(each, len(payload)))
        out += len(metadata).to_bytes(4, "big")
        out += metadata
        out += payload
    return bytes(out)


def _fields(each: BatchMessage, size: int) -> list[Field]:
    fields: list[Field] = [
        (_PROPERTY, encode_fields([(1, utf8(name, "property name")), (2, utf8(value, f"property {name!r}"))]))
        for name, value in (each.properties or {}).items()
    ]
    key, in_base64 = key_as_sent(each.key, None)
    if key is not None:
        fields.append((_PARTITION_KEY, key))
    fields.append((_PAYLOAD_SIZE, size))
    if each.event_time_ms:
        fields.append((_EVENT_TIME, each.event_time_ms))
    if in_base64:
        fields.append((_IN_BASE64, 1))
    if each.ordering_key is not None:
        fields.append((_ORDERING_KEY, each.ordering_key))
    if each.sequence_id is not None:
        fields.append((_SEQUENCE_ID, each.sequence_id))
    if each.payload is None:
        fields.append((_NULL_VALUE, 1))
    return fields
