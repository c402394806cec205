"""An entry on Pulsar's wire, behind a command: what a producer sends, and what a broker stores and hands out.

    [0e02 | size (4) | BrokerEntryMetadata]  [0e01 | CRC-32C (4)]  size (4) | MessageMetadata | payload

Numbers are big-endian. The checksum is that of everything behind it. BrokerEntryMetadata: 1 broker_timestamp, 2 index.
Source: Commands.java of pulsar-common 4.0.7.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import google_crc32c

from pulsar_on_kafka_mapping.encoding.varint import ByteReader
from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka_mapping.wire.message_metadata import Field, encode_fields

ENTRY_PADDING_BYTES: Final = 10 * 1024
"""Pulsar's allowance for metadata beside a message."""
MAX_ENTRY_BYTES: Final = 5 * 1024 * 1024 + ENTRY_PADDING_BYTES
"""Pulsar's default `maxMessageSize`, and its allowance."""
MAX_MESSAGE_ENTRY_BYTES: Final = MAX_ENTRY_BYTES - 64
"""Metadata and payload of one entry, beside checksum and sizes."""

_BROKER: Final = b"\x0e\x02"
_CHECKSUM: Final = b"\x0e\x01"
_TIMESTAMP, _INDEX = 1, 2


class BrokerMetadata(NamedTuple):
    """A broker's own metadata of an entry, where they are enabled; None otherwise."""

    timestamp_ms: int | None = None
    entry_index: int | None = None


class WireEntry(NamedTuple):
    """`metadata` is a MessageMetadata in Protobuf."""

    metadata: bytes
    payload: bytes
    broker: BrokerMetadata | None = None


def read_entry(data: bytes, *, checksum_required: bool = False) -> WireEntry:
    """The parts of an entry.

    Raises:
        CorruptRecord: it is too large or cut, or does not fit its checksum, or has none where that is required.
    """
    if len(data) > MAX_ENTRY_BYTES:
        raise CorruptRecord(f"entry has {len(data)} bytes, expected up to {MAX_ENTRY_BYTES}")
    reader = ByteReader(data, "an entry")
    broker = None
    if data.startswith(_BROKER):
        reader.take(2)
        broker = _broker_metadata(reader.take(_size(reader)))
    if data.startswith(_CHECKSUM, reader.position):
        reader.take(2)
        reported = _size(reader)
        found = checksum(data[reader.position :])
        if reported != found:
            raise CorruptRecord(f"entry of {len(data)} bytes has the checksum {found:08x}, expected {reported:08x}")
    elif checksum_required:
        raise CorruptRecord(f"entry of {len(data)} bytes begins with {data[:8].hex()}, expected a checksum")
    metadata = reader.take(_size(reader))
    return WireEntry(metadata, data[reader.position :], broker)


def write_entry(entry: WireEntry) -> bytes:
    """The entry's bytes, with a checksum. Raises MappingError: it is too large."""
    metadata, payload, broker = entry
    body = b"%b%b%b" % (len(metadata).to_bytes(4, "big"), metadata, payload)
    start = b"" if broker is None else _broker_bytes(broker)
    found = b"%b%b%b%b" % (start, _CHECKSUM, checksum(body).to_bytes(4, "big"), body)
    if len(found) > MAX_ENTRY_BYTES:
        raise MappingError(f"entry has {len(found)} bytes, expected up to {MAX_ENTRY_BYTES}")
    return found


def checksum(data: bytes) -> int:
    """CRC-32C, as Pulsar has it."""
    return int(google_crc32c.value(data))


def _size(reader: ByteReader) -> int:
    return int.from_bytes(reader.take(4), "big")


def _broker_metadata(data: bytes) -> BrokerMetadata:
    numbers = {
        field: value for field, value in ByteReader(data, "a broker's metadata").fields() if isinstance(value, int)
    }
    return BrokerMetadata(numbers.get(_TIMESTAMP), numbers.get(_INDEX))


def _broker_bytes(broker: BrokerMetadata) -> bytes:
    fields: list[Field] = []
    if broker.timestamp_ms is not None:
        fields.append((_TIMESTAMP, broker.timestamp_ms))
    if broker.entry_index is not None:
        fields.append((_INDEX, broker.entry_index))
    data = encode_fields(fields)
    return b"%b%b%b" % (_BROKER, len(data).to_bytes(4, "big"), data)
