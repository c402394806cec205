"""A partition's records show the sequence ids of one producer name. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pulsar_on_kafka_mapping.encoding.decimals import decimal
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.records.record_headers import BATCH, CHUNK, HIGHEST_SEQUENCE, PRODUCER


class StoredSequence(NamedTuple):
    """A record has these sequence ids: the first one in it, and the highest."""

    first: int
    highest: int


def stored_sequence(headers: Sequence[tuple[str, bytes | None]] | None, producer_name: bytes) -> StoredSequence | None:
    """The ids of `producer_name` (UTF-8) in a record; None for another producer's record, and for a chunk that is not
    the last of its message (all chunks have one id, and without the last one there is no message).

    Raises:
        CorruptRecord: one of the headers cannot be read.
    """
    producer = batch = chunk = highest = None
    for name, value in headers or ():
        if name == PRODUCER:
            producer = value
        elif name == BATCH:
            batch = value
        elif name == CHUNK:
            chunk = value
        elif name == HIGHEST_SEQUENCE:
            highest = value
    if producer is None or not producer.endswith(producer_name):
        return None
    parts = producer.split(b":", 2)
    if len(parts) != 3 or parts[2] != producer_name:
        return None
    try:
        first = decimal(parts[0], least=-1)
        if chunk is not None:
            chunk_id, chunks = chunk.split(b":", 2)[:2]
            if decimal(chunk_id) + 1 < decimal(chunks):
                return None
        if highest is not None:
            return StoredSequence(first, max(first, decimal(highest)))
        count = 1 if batch is None else decimal(batch.split(b":", 1)[1], least=1)
    except (ValueError, IndexError) as error:
        raise CorruptRecord(f"record of producer {producer_name!r} has headers {headers!r:.200}: {error}") from error
    return StoredSequence(first, first + count - 1)
