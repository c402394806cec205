"""The header `__pulsar.original_id` holds the place of a replicated record's original.

    "<offset>:<partition>:<incarnation>:<epoch>" decimal

Everything behind the first ':' is the same for all records that one owner of a replicator copies from one partition: so
a reader of a batch compares these bytes once, and then the offsets as numbers. Decision: mapping/decisions/0017.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from pulsar_on_kafka_mapping.encoding.decimals import OFFSET_MAX, decimal
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.records.record_headers import ORIGINAL_ID, REPLICATED_FROM

EPOCH_MAX: Final = 2**128 - 1
_MAX_PARTS: Final = (OFFSET_MAX, 2**31 - 1, OFFSET_MAX, EPOCH_MAX)


class OriginalPosition(NamedTuple):
    """The position is that of a record of the origin cluster. Of a batch entry, or a chunk, it is that entry's or that
    chunk's own.

    `incarnation`: the life of the topic there (its ledger ids have it, too). `epoch` is the replicator's, which only
    grows: of two owners of one replicator the later one has the higher.
    """

    kafka_offset: int
    partition: int
    incarnation: int
    epoch: int = 0


class CopyHeaders(NamedTuple):
    """Two headers make a record a copy, as they stand there: the origin's name and the position of the original."""

    cluster: bytes
    position: bytes


def copy_headers(headers: Iterable[tuple[str, bytes | None]] | None) -> CopyHeaders | None:
    """None of a record that is no copy."""
    cluster = position = None
    for name, value in headers or ():
        if name == REPLICATED_FROM:
            cluster = value
        elif name == ORIGINAL_ID:
            position = value
    return None if cluster is None or position is None else CopyHeaders(cluster, position)


def original_of(reported: CopyHeaders) -> tuple[str, OriginalPosition] | None:
    """The origin's name, and the place of the original there; None when they cannot be read: then no replicator of this
    product wrote the record, and it counts as published where it lies."""
    try:
        return reported.cluster.decode("utf-8"), decode_original(reported.position)
    except ValueError:
        return None


def original_suffix(partition: int, incarnation: int, epoch: int) -> bytes:
    """The common suffix of the positions that one owner of a replicator writes: `b"%d" % offset + suffix` is the whole.

    Raises:
        MappingError: a number is negative.
    """
    if min(partition, incarnation, epoch) < 0:
        raise MappingError(
            f"partition {partition}, incarnation {incarnation}, epoch {epoch} of an original: expected 0 or more"
        )
    return b":%d:%d:%d" % (partition, incarnation, epoch)


def encode_original(position: OriginalPosition) -> bytes:
    """Raises MappingError for a negative number."""
    if position.kafka_offset < 0:
        raise MappingError(f"offset of an original is {position.kafka_offset}, expected 0 or more")
    return b"%d%b" % (
        position.kafka_offset,
        original_suffix(position.partition, position.incarnation, position.epoch),
    )


def decode_original(value: bytes) -> OriginalPosition:
    """Raises ValueError."""
    parts = value.split(b":", len(_MAX_PARTS))
    if len(parts) != len(_MAX_PARTS):
        raise ValueError("expected <offset>:<partition>:<incarnation>:<epoch>")
    return OriginalPosition(*(decimal(part, most=most) for part, most in zip(parts, _MAX_PARTS, strict=True)))
