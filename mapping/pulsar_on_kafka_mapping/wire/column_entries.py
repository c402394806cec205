"""Converts batched or compressed messages of Pulsar clients into the format of this SDK: a batch into a batch entry of
columns, one message into its payload. For readers of that format alone."""

from __future__ import annotations

from typing import Final

from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka_mapping.records.batch_entry import encode_columns
from pulsar_on_kafka_mapping.records.message_record import batch_info, compression_info
from pulsar_on_kafka_mapping.records.record_headers import BATCH, COMPRESSION, PayloadFormat
from pulsar_on_kafka_mapping.wire.compression import decompress
from pulsar_on_kafka_mapping.wire.single_messages import decode_batch, kafka_key

_MAX_NUMBER: Final = 2**63 - 1
"""The limit of a column of numbers."""

UNREADABLE: Final = -1
"""Event time of a message that cannot be read: an empty one, which is to be left out. Never stored."""


def as_columns(value: bytes, form: bytes, compression: bytes | None) -> bytes:
    """The value of a raw record, in clear, by its headers `__pulsar.batch` and `__pulsar.compression`. Numbers above
    2^63 - 1, which no column holds, are omitted. Messages that cannot be read have the event time `UNREADABLE`.

    Raises:
        CorruptRecord: it contradicts its headers, or no message of it can be read.
    """
    info, packed = batch_info([(BATCH, form)]), None
    if compression is not None:
        packed = compression_info([(COMPRESSION, compression)])
    plain = value if packed is None else decompress(value, packed)
    if info is None or info.format_version != PayloadFormat.PULSAR_BATCH:
        return plain
    unreadable: dict[int, CorruptRecord] = {}
    singles = decode_batch(plain, info.messages, unreadable)
    return encode_columns(
        [None if each.is_null else each.payload for each in singles],
        [kafka_key(each.partition_key, in_base64=each.in_base64) for each in singles],
        [each.ordering_key for each in singles],
        [each.property_texts() for each in singles],
        [
            UNREADABLE if index in unreadable else each.event_time_ms if each.event_time_ms <= _MAX_NUMBER else 0
            for index, each in enumerate(singles)
        ],
        [each.sequence_id if (each.sequence_id or 0) <= _MAX_NUMBER else None for each in singles],
    )


def as_columns_or_none(value: bytes | None, form: bytes | None, compression: bytes | None) -> bytes | None:
    """`as_columns`; None for what cannot be read."""
    if value is None or form is None:
        return None
    try:
        return as_columns(bytes(value), bytes(form), None if compression is None else bytes(compression))
    except MappingError:
        return None
