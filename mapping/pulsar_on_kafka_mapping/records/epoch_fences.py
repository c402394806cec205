"""Fences part the records of one epoch from those of the next: of exclusive producers, of the holders of one producer
name, and of the replicators of each origin.

All follow one rule: behind the beginning of an epoch, records of lower epochs *of one origin* are void. An exclusive
producer's epoch begins with its first record. That of a replicator, or of a deduplicating producer's name, begins with
a marker, when it takes over from one that may still write. Records of the topic's own producers and copies from another
cluster never make one another void. The end of a terminated topic (`END_ORIGIN`) makes all of them void. Decisions:
mapping/decisions/0018 and 0031.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from pulsar_on_kafka_mapping.encoding.decimals import decimal_or_none
from pulsar_on_kafka_mapping.records.original_position import EPOCH_MAX, copy_headers
from pulsar_on_kafka_mapping.records.record_headers import (
    MARKER,
    ORIGINAL_ID,
    PRODUCER,
    REPLICATED_FROM,
    REPLICATOR,
    MarkerType,
    exclusive_epoch,
)

RecordHeaders = Iterable[tuple[str, bytes | None]] | None

END_ORIGIN: Final = "\n"
"""The origin of the marker that ends a terminated topic: every record of a producer or replicator behind it is void."""
_NAME: Final = "/"
"""Begins no name of a cluster."""
_NAME_BYTES: Final = _NAME.encode()


class Fence(NamedTuple):
    """An epoch begins here in a partition. `origin` is the cluster that the records are copied from, or `name_origin`
    of a producer name; '' for the exclusive producers of the topic itself; `END_ORIGIN` for its end."""

    offset: int
    epoch: int
    origin: str = ""


class Claimed(NamedTuple):
    """An epoch of producers or replicators of this origin."""

    origin: str
    epoch: int


class RecordWriter(NamedTuple):
    """A record was written under this epoch, which counts among those of these origins (UTF-8)."""

    epoch: int
    origins: tuple[bytes, ...]


def name_origin(producer_name: str) -> str:
    """The origin of the records that holders of a producer name write, where a new holder fences the former ones."""
    return _NAME + producer_name


def writer_of(headers: RecordHeaders, below: int) -> RecordWriter | None:
    """The writer of a record, if its epoch lies below `below`; None for a plain Kafka client's record, too.

    Where a fence is known it is called for each record, so it makes one pass and decodes no text.
    """
    producer = cluster = position = None
    for name, value in headers or ():
        if name == PRODUCER and producer is None:
            producer = value
        elif name == REPLICATED_FROM:
            cluster = value
        elif name == ORIGINAL_ID:
            position = value
    if cluster is not None and position is not None:
        epoch = decimal_or_none(position.rpartition(b":")[2], most=EPOCH_MAX)
        if epoch is not None:
            return RecordWriter(epoch, (cluster,)) if epoch < below else None
    parts = [] if producer is None else producer.split(b":", 2)
    epoch = decimal_or_none(parts[1]) if len(parts) == 3 else None
    return None if epoch is None or epoch >= below else RecordWriter(epoch, (b"", _NAME_BYTES + parts[2]))


def begun_by(headers: RecordHeaders) -> Claimed | None:
    """The epoch that begins with a record, if it does; that it may have begun before does no harm."""
    for name, value in headers or ():
        if name == REPLICATOR and value is not None:
            epoch, _, origin = value.partition(b":")
            return _claimed(origin, epoch)
    epoch_of_all = exclusive_epoch(headers)
    return None if epoch_of_all is None or _copied_by(headers) is not None else Claimed("", epoch_of_all)


def take_over_marker(origin: str, epoch: int) -> list[tuple[str, bytes | None]]:
    """The headers of the marker with which an epoch of a replicator or of a producer name begins, or a topic ends."""
    return [(MARKER, MarkerType.REPLICATOR.value.encode("ascii")), (REPLICATOR, f"{epoch}:{origin}".encode())]


def _copied_by(headers: RecordHeaders) -> Claimed | None:
    found = copy_headers(headers)
    if found is None:
        return None
    return _claimed(found.cluster, found.position.rpartition(b":")[2])


def _claimed(origin: bytes, epoch: bytes) -> Claimed | None:
    number = decimal_or_none(epoch, most=EPOCH_MAX)
    return None if number is None else Claimed(origin.decode("utf-8", "replace"), number)
