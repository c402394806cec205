"""Values that a client of Pulsar's compressed, as its entries are stored (mapping/decisions/0028). Pure."""

from __future__ import annotations

from typing import Any

from pulsar_on_kafka.kafka.records import headers_of
from pulsar_on_kafka_mapping.records.message_record import CompressionInfo, batch_info, compression_info
from pulsar_on_kafka_mapping.records.record_headers import COMPRESSION, PayloadFormat
from pulsar_on_kafka_mapping.wire.compression import MAX_UNCOMPRESSED_BYTES, decompress


def compression_of(record: Any) -> CompressionInfo | None:
    """Returns the compression of a record's value; None for none.

    Raises:
        CorruptRecord: its headers cannot be read.
    """
    headers = headers_of(record)
    if not any(name == COMPRESSION for name, _ in headers or ()):
        return None
    info = batch_info(headers)
    if info is None or info.format_version == PayloadFormat.COLUMNS:
        return None  # our records have both or none
    return compression_info(headers)


def uncompressed_size(record: Any) -> int | None:
    """The size of a record's value after decompression, as its headers have it; None when it is not compressed. A size
    that `decompress` refuses counts as 0. Raises as `compression_of`."""
    info = compression_of(record)
    if info is None:
        return None
    return info.uncompressed_bytes if info.uncompressed_bytes <= MAX_UNCOMPRESSED_BYTES else 0


def uncompressed(record: Any, value: bytes) -> bytes:
    """The value of a record, which was decrypted if that was needed, as it was before it was compressed.

    Raises:
        CorruptRecord: it is not what the headers say.
    """
    info = compression_of(record)
    return value if info is None else decompress(value, info)
