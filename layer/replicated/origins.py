"""Headers of a copy name the place where the record was first published."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from pulsar_on_kafka.mapping.errors import CorruptRecord
from pulsar_on_kafka.mapping.records.original_position import copy_headers, decode_original
from pulsar_on_kafka.mapping.records.record_headers import MARKER
from pulsar_on_kafka.mapping.state.clusters.subscription_progress import Origin

Headers = Iterable[tuple[str, bytes | None]] | None

_PLAIN_DIGITS: Final = 19
"""Fewer of them are an offset for certain."""


class Copied(NamedTuple):
    """`there`: the original's offset. `epoch`: of the replicator that copied it."""

    origin: Origin
    there: int
    epoch: int


def copied(headers: Headers, partition: int) -> Copied | None:
    """What a record is the copy of; None of one that was published here, or copied from a partition of another number
    (of which nothing can be told).

    Raises:
        CorruptRecord: the headers say that it is a copy, and cannot be read.
    """
    said = copy_headers(headers)
    if said is None:
        return None
    offset, _, of_all = said.position.partition(b":")
    try:
        origin, its_partition, epoch = _of_all(said.cluster, of_all)
        there = int(offset) if len(offset) < _PLAIN_DIGITS and offset.isdigit() else decode_original(said.position)[0]
    except ValueError as error:
        raise CorruptRecord(f"a copy from {said.cluster!r:.100} says it was {said.position!r:.100}: {error}") from error
    return Copied(origin, there, epoch) if its_partition == partition else None


@lru_cache(maxsize=256)
def _of_all(cluster: bytes, behind_offset: bytes) -> tuple[Origin, int, int]:
    """The part that all copies of one partition by one owner of a replicator have in common; raises ValueError."""
    found = decode_original(b"0:" + behind_offset)
    return Origin(cluster.decode("utf-8"), found.incarnation), found.partition, found.epoch


def is_marker(headers: Headers) -> bool:
    return MARKER in dict(headers or ())
