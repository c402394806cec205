"""Where a record was first published, by its headers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from mapping.errors import CorruptRecord
from mapping.headers import MARKER
from mapping.original_position import copy_headers, decode_original
from mapping.state_records.subscription_progress import Origin

Headers = Iterable[tuple[str, bytes | None]] | None


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
    try:
        found = decode_original(said.position)
        origin = Origin(said.cluster.decode("utf-8"), found.incarnation)
    except ValueError as error:
        raise CorruptRecord(f"a copy from {said.cluster!r:.100} says it was {said.position!r:.100}: {error}") from error
    return Copied(origin, found.kafka_offset, found.epoch) if found.partition == partition else None


def is_marker(headers: Headers) -> bool:
    return any(name == MARKER for name, _ in headers or ())
