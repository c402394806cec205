"""Splits an entry that a Pulsar client batched or compressed into messages, each as if it had been sent alone.

So any Kafka client reads them: a record for each message, with the payload as its value. Metadata of the batch are
copied to each. Decision: mapping/decisions/0028.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from msgspec import structs

from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.records.message_record import Codec, CompressionInfo
from pulsar_on_kafka_mapping.wire.compression import decompress
from pulsar_on_kafka_mapping.wire.entries import MAX_ENTRY_BYTES
from pulsar_on_kafka_mapping.wire.message_metadata import PulsarMetadata
from pulsar_on_kafka_mapping.wire.single_messages import SingleMessage, decode_batch, kafka_key

MAX_TAKEN_APART: Final = 2_000
"""Messages of an entry that becomes a record for each; a larger batch is stored as it came."""
_NULL_KEY: Final = (30, 1)
"""`null_partition_key` of MessageMetadata."""


class NativeMessage(NamedTuple):
    metadata: PulsarMetadata
    payload: bytes


def taken_apart(
    metadata: PulsarMetadata, payload: bytes, max_bytes: int, *, deduplicated: bool = False
) -> list[NativeMessage] | None:
    """The messages in order; None for an entry that is stored as it came.

    That is one message that is not compressed, and what cannot be had as messages: encrypted, a chunk of something
    compressed, more than `MAX_TAKEN_APART` messages, payloads above `max_bytes` or together above what a frame has,
    and what cannot be read.

    Args:
        deduplicated: each message is to be judged by its own sequence id. Of batches that clients make by key these do
            not ascend from one to the next: such a batch is one for Pulsar's deduplication, and stays one.
    """
    batched = metadata.messages is not None
    if not batched and (not metadata.compression or metadata.null_value):
        return None
    if (
        (metadata.messages or 0) > MAX_TAKEN_APART
        or metadata.encryption
        or (metadata.chunks or 0) > 1
        or metadata.marker_type is not None
    ):
        return None
    try:
        plain = _plain(metadata, payload)
        if not batched:
            alone = structs.replace(metadata, compression=None, uncompressed_bytes=None)
            return [NativeMessage(alone, plain)] if len(plain) <= max_bytes else None
        singles = decode_batch(plain, metadata.messages or 0)
        found = [_alone(metadata, single, at) for at, single in enumerate(singles)]
    except CorruptRecord:
        return None
    if not found or max(len(each.payload) for each in found) > max_bytes:
        return None
    return None if deduplicated and not _has_its_ids(metadata, found) else found


def _has_its_ids(metadata: PulsarMetadata, found: Sequence[NativeMessage]) -> bool:
    """The messages' ids ascend from the one that the batch names as its first to its last."""
    ids = [each.metadata.sequence_id or 0 for each in found]
    first, last = metadata.sequence_id or 0, metadata.highest_sequence_id
    ends = first + len(found) - 1 if last is None else last
    return (ids[0], ids[-1]) == (first, ends) and all(a < b for a, b in pairwise(ids))


def _plain(metadata: PulsarMetadata, payload: bytes) -> bytes:
    if not metadata.compression:
        return payload
    size = metadata.uncompressed_bytes or 0
    if size > MAX_ENTRY_BYTES:
        raise CorruptRecord(f"payload has {size} bytes uncompressed, expected up to {MAX_ENTRY_BYTES}")
    try:
        codec = Codec(metadata.compression)
    except ValueError as unknown:
        raise CorruptRecord(f"compression is {metadata.compression}") from unknown
    return decompress(payload, CompressionInfo(codec, size))


def _alone(of_all: PulsarMetadata, single: SingleMessage, at: int) -> NativeMessage:
    """The metadata of a message in a batch. Source: MessageImpl.create of the Java client, which defines the parts that
    come from the batch."""
    sequence_id = (of_all.sequence_id or 0) + at if single.sequence_id is None else single.sequence_id
    key = single.partition_key
    if key is not None and single.in_base64 and base64.b64encode(kafka_key(key, in_base64=True) or b"") != key:
        raise CorruptRecord(f"partition key is {key[:60]!r}, expected base64, as its metadata say")
    others = [field for field in of_all.others if field[0] != _NULL_KEY[0]]
    return NativeMessage(
        PulsarMetadata(
            producer_name=of_all.producer_name,
            sequence_id=sequence_id,
            publish_time_ms=of_all.publish_time_ms,
            properties=single.properties,
            replicated_from=of_all.replicated_from,
            partition_key=key,
            replicate_to=of_all.replicate_to,
            event_time_ms=single.event_time_ms or None,
            schema_version=of_all.schema_version,
            in_base64=1 if key is not None and single.in_base64 else None,
            ordering_key=single.ordering_key,
            deliver_at_ms=of_all.deliver_at_ms,
            txn_least=of_all.txn_least,
            txn_most=of_all.txn_most,
            null_value=1 if single.is_null else None,
            schema_id=of_all.schema_id,
            entry_hash_min=of_all.entry_hash_min,
            entry_hash_max=of_all.entry_hash_max,
            others=[*others, _NULL_KEY] if single.has_null_key else others,
        ),
        single.payload,
    )
