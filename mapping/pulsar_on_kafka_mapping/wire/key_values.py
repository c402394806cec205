"""Pulsar's `KeyValue`, of which properties are made: 1 key, 2 value, both required."""

from __future__ import annotations

from pulsar_on_kafka_mapping.encoding.varint import ByteReader
from pulsar_on_kafka_mapping.errors import CorruptRecord


def decode_key_value(data: bytes, what: str) -> tuple[bytes, bytes]:
    """Raises CorruptRecord: it lacks one of both, or is no Protobuf; `what` names it."""
    size = len(data)
    # As all clients write it, with less than 128 bytes each.
    if size >= 4 and data[0] == 0x0A and data[1] < 0x80 and (second := data[1] + 2) + 2 <= size:
        start = second + 2
        if data[second] == 0x12 and data[second + 1] < 0x80 and start + data[second + 1] == size:
            return data[2:second], data[start:]
    parts = {field: value for field, value in ByteReader(data, what).fields() if isinstance(value, bytes)}
    if 1 not in parts or 2 not in parts:
        raise CorruptRecord(f"{what} lacks its key or its value")
    return parts[1], parts[2]
