"""The place of an entry in a partition of a Pulsar topic is one number; cursors acknowledge places. Pure.

    place = ledger id (33 bits) | entry id (30 bits)

Places grow along the log, so a place is to an imported message what the original's offset is to a replicated one. A
topic that was deleted and made anew has higher ledger ids, so no two entries of a Pulsar cluster have one place in it.
Decision: mapping/decisions/0022.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pyroaring import BitMap

from pulsar_on_kafka.broker.replication_state.acks import ReplicatedAcks
from pulsar_on_kafka.broker.replication_state.origin_index import CopiedRun
from pulsar_on_kafka_mapping.errors import CorruptRecord

LEDGER_BITS: Final = 33
ENTRY_BITS: Final = 30

_POSITION: Final = re.compile(r"(\d{1,19}):(-?\d{1,19})")
_RANGE: Final = re.compile(r"([(\[])(\d{1,19}):(-?\d{1,19})(?:\.\.|‥)(\d{1,19}):(-?\d{1,19})([)\]])")


class Position(NamedTuple):
    """Pulsar's position; ordered as places are. `entry_id` -1: before the ledger's first entry."""

    ledger_id: int
    entry_id: int

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


def place_of(position: Position) -> int:
    """Raises CorruptRecord: the ids are too large for a place, or there is no such entry."""
    ledger_id, entry_id = position
    if not (0 <= ledger_id < 1 << LEDGER_BITS and 0 <= entry_id < 1 << ENTRY_BITS):
        raise CorruptRecord(
            f"position {position}: only ledger ids below {1 << LEDGER_BITS} and entry ids below {1 << ENTRY_BITS} have "
            "a place"
        )
    return ledger_id << ENTRY_BITS | entry_id


def position_at(place: int) -> Position:
    return Position(place >> ENTRY_BITS, place & (1 << ENTRY_BITS) - 1)


def end_of(position: Position) -> int:
    """The place that comes next. Raises CorruptRecord."""
    if position.entry_id < 0:
        return place_of(Position(position.ledger_id, 0))
    return place_of(position) + 1


def parse_position(text: str) -> Position:
    """`12:3`. Raises CorruptRecord."""
    found = _POSITION.fullmatch(text)
    if found is None:
        raise CorruptRecord(f"a position is {text!r:.60}, expected <ledger id>:<entry id>")
    return Position(int(found[1]), int(found[2]))


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Everything below the place `end`, and above it `ranges` of places: [start, end), ascending, apart."""

    end: int
    ranges: tuple[tuple[int, int], ...] = ()

    def __contains__(self, place: int) -> bool:
        if place < self.end:
            return True
        at = bisect_right(self.ranges, (place, 1 << 64)) - 1
        return at >= 0 and place < self.ranges[at][1]

    def within(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of [start, end) that are acknowledged, ascending."""
        if start < min(self.end, end):
            yield start, min(self.end, end)
        at = max(0, bisect_right(self.ranges, (start, 1 << 64)) - 1)
        while at < len(self.ranges) and self.ranges[at][0] < end:
            low, high = max(start, self.ranges[at][0]), min(end, self.ranges[at][1])
            if low < high:
                yield low, high
            at += 1


def parse_cursor(cursor: dict[str, Any]) -> Acknowledged:
    """One of `cursors` in the answer of `internalStats`.

    `individuallyDeletedMessages` is Pulsar's text `[(12:3..12:7],(12:9..13:1]]`; '(' excludes the position.

    Raises:
        CorruptRecord: it is none, or not as known.
    """
    mark_delete, deleted = cursor.get("markDeletePosition"), cursor.get("individuallyDeletedMessages", "[]")
    if not isinstance(mark_delete, str) or not isinstance(deleted, str):
        raise CorruptRecord(f"a cursor is {cursor!r:.200}, expected markDeletePosition and individuallyDeletedMessages")
    end = end_of(parse_position(mark_delete))
    text = deleted.replace(" ", "")
    found = list(_RANGE.finditer(text))
    if text != "[" + ",".join(each[0] for each in found) + "]":
        raise CorruptRecord(f"individuallyDeletedMessages is {deleted!r:.200}, expected [(L:E..L:E],...]")
    ranges = []
    for each in found:
        low, high = Position(int(each[2]), int(each[3])), Position(int(each[4]), int(each[5]))
        start = end_of(low) if each[1] == "(" or low.entry_id < 0 else place_of(low)
        ranges.append((start, end_of(high) if each[6] == "]" or high.entry_id < 0 else place_of(high)))
    return acknowledged(end, ranges)


def acknowledged(end: int, ranges: Iterable[tuple[int, int]]) -> Acknowledged:
    """Merge ranges in any order, which may touch and overlap, and lie below `end`."""
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if stop <= max(start, end):
            continue
        if start <= end:
            end = stop
        elif merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], stop))
        else:
            merged.append((start, stop))
    while merged and merged[0][0] <= end:
        end = max(end, merged.pop(0)[1])
    return Acknowledged(end, tuple(merged))


def acknowledged_copies(done: Acknowledged, runs: Iterable[CopiedRun], entries_per_ledger: int) -> ReplicatedAcks:
    """The offsets here of the copies of what is acknowledged there. Memory: a bitmap of them."""
    found = ReplicatedAcks(entries_per_ledger)
    for run in runs:
        relative = BitMap()
        for start, end in done.within(run.there, run.there + run.length):
            relative.add_range(start - run.there, end - run.there)
        found.add(run.here, relative)
    return found
