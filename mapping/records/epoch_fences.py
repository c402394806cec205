"""Fences part the records of one epoch from those of the next: of exclusive producers, of the holders of one producer
name, and of the replicators of each origin.

All follow one rule: behind the beginning of an epoch, records of lower epochs *of one origin* are void. An exclusive
producer's epoch begins with its first record. That of a replicator, or of a deduplicating producer's name, begins with
a marker, when it takes over from one that may still write. Records of the topic's own producers and copies from another
cluster never make one another void. Decisions: mapping/decisions/0018 and 0031.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from pulsar_on_kafka.mapping.encoding.decimals import decimal_or_none
from pulsar_on_kafka.mapping.records.original_position import EPOCH_MAX, copy_headers
from pulsar_on_kafka.mapping.records.record_headers import (
    MARKER,
    REPLICATOR,
    MarkerType,
    exclusive_epoch,
    producer_of,
)

RecordHeaders = Iterable[tuple[str, bytes | None]] | None

_NAME: Final = "/"
"""Begins no name of a cluster."""


class Fence(NamedTuple):
    """An epoch begins here in a partition. `origin` is the cluster that the records are copied from, or `name_origin`
    of a producer name; '' for the exclusive producers of the topic itself."""

    offset: int
    epoch: int
    origin: str = ""


class Claimed(NamedTuple):
    """A record was written under this epoch, by producers or replicators of this origin."""

    origin: str
    epoch: int


def name_origin(producer_name: str) -> str:
    """The origin of the records that holders of a producer name write, where a new holder fences the former ones."""
    return _NAME + producer_name


def claimed_by(headers: RecordHeaders) -> tuple[Claimed, ...]:
    """The epochs that a record was written under; none for a plain Kafka client's record."""
    copied = _copied_by(headers)
    if copied is not None:
        return (copied,)
    producer = producer_of(headers)
    if producer is None:
        return ()
    name = producer.name.decode("utf-8", "replace")
    return Claimed("", producer.epoch), Claimed(name_origin(name), producer.epoch)


def begun_by(headers: RecordHeaders) -> Claimed | None:
    """The epoch that begins with a record, if it does; that it may have begun before does no harm."""
    for name, value in headers or ():
        if name == REPLICATOR and value is not None:
            epoch, _, origin = value.partition(b":")
            return _claimed(origin, epoch)
    epoch_of_all = exclusive_epoch(headers)
    return None if epoch_of_all is None or _copied_by(headers) is not None else Claimed("", epoch_of_all)


def take_over_marker(origin: str, epoch: int) -> list[tuple[str, bytes | None]]:
    """The headers of the marker with which an epoch of a replicator or of a producer name begins."""
    return [(MARKER, MarkerType.REPLICATOR.value.encode("ascii")), (REPLICATOR, f"{epoch}:{origin}".encode())]


def _copied_by(headers: RecordHeaders) -> Claimed | None:
    found = copy_headers(headers)
    if found is None:
        return None
    return _claimed(found.cluster, found.position.rpartition(b":")[2])


def _claimed(origin: bytes, epoch: bytes) -> Claimed | None:
    number = decimal_or_none(epoch, most=EPOCH_MAX)
    return None if number is None else Claimed(origin.decode("utf-8", "replace"), number)
