"""A read fetches ranges of offsets of a topic's partitions. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from pyroaring import BitMap64

MAX_RANGES: Final = 8
"""The limit of one partition: each range costs a scan of its own."""
WORTH_A_RANGE: Final = 10
"""A hole is left out when it is at least a tenth of what is fetched otherwise: a further range costs about 5 % of a
whole read (measured)."""

_LENGTH: Final = attrgetter("length")


@dataclass(frozen=True, order=True, slots=True)
class Range:
    """A range is [start, end) of a partition."""

    start: int
    end: int

    @property
    def length(self) -> int:
        return max(0, self.end - self.start)

    def offsets(self) -> BitMap64:
        found = BitMap64()
        found.add_range(self.start, max(self.start, self.end))
        return found


def without_holes(whole: Range, holes: Sequence[Range], worth: int) -> list[Range]:
    """`whole` without the largest of these holes (ascending, apart from each other, inside of it), as at most
    `MAX_RANGES` ranges; holes below `worth` offsets stay in."""
    if not whole.length:
        return []
    largest = sorted((hole for hole in holes if hole.length >= max(1, worth)), key=_LENGTH, reverse=True)[
        : MAX_RANGES - 1
    ]
    found, position = [], whole.start
    for hole in sorted(largest):
        if hole.start > position:
            found.append(Range(position, hole.start))
        position = hole.end
    if position < whole.end:
        found.append(Range(position, whole.end))
    return found


def split(
    ranges: Mapping[int, Sequence[Range]], at: Mapping[int, int]
) -> tuple[dict[int, list[Range]], dict[int, list[Range]]]:
    """The parts of each partition below the offset that is given for it, and at or above; a partition without one lies
    below."""
    below: dict[int, list[Range]] = {}
    above: dict[int, list[Range]] = {}
    for partition, found in ranges.items():
        for one in found:
            middle = min(max(at.get(partition, one.end), one.start), one.end)
            for side, part in ((below, Range(one.start, middle)), (above, Range(middle, one.end))):
                if part.length:
                    side.setdefault(partition, []).append(part)
    return below, above


def scans(ranges: Mapping[int, Sequence[Range]]) -> list[dict[int, Range]]:
    """One range of each partition for each scan; as few scans as possible. Partitions with no ranges left are
    omitted."""
    number = max(map(len, ranges.values()), default=0)
    return [{p: found[i] for p, found in ranges.items() if i < len(found)} for i in range(number)]


def offsets_json(kafka_topic: str, ends: Mapping[int, int]) -> str:
    """Write offsets as Spark's Kafka source takes them."""
    return json.dumps({kafka_topic: {str(partition): offset for partition, offset in sorted(ends.items())}})


def assign_json(kafka_topic: str, partitions: Sequence[int]) -> str:
    return json.dumps({kafka_topic: sorted(partitions)})
