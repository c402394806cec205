"""Publish times of a partition's entries, estimated from a few landmarks in its log. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import sqrt
from typing import Final, NamedTuple

MAX_LANDMARKS: Final = 12
_NEAR_ENOUGH: Final = 1.1
"""The accepted ratio between an entry's age and its estimate: a tenth more."""
_LONGEST_MS: Final = 10 * 365 * 86_400_000


class Published(NamedTuple):
    """The publish time of an entry: at or after `after_ms` (None: unknown) and before `before_ms`."""

    after_ms: int | None
    before_ms: int


class Landmarks:
    """At a landmark's time the log ended at its offset: entries below were published before that time, others then or
    later.

    The log's end, noted repeatedly, gives landmarks; so does Kafka's reply about the first entry that was published at
    some time. Memory: `MAX_LANDMARKS`, of which the least informative are dropped; so an age is the less exact the
    greater it is.
    """

    __slots__ = ("_offsets", "_times_ms")

    def __init__(self) -> None:
        self._times_ms: list[int] = []
        self._offsets: list[int] = []

    def note(self, time_ms: int, offset: int) -> None:
        """Producers' clocks may differ: an offset that would contradict others is taken for the nearest that does
        not."""
        at = bisect_left(self._times_ms, time_ms)
        below = self._offsets[at - 1] if at else 0
        above = self._offsets[at] if at < len(self._offsets) else offset
        offset = max(below, min(offset, above))
        if at < len(self._times_ms) and self._times_ms[at] == time_ms:
            self._offsets[at] = offset
            return
        self._times_ms.insert(at, time_ms)
        self._offsets.insert(at, offset)
        self._forget_uninformative(at)
        if len(self._times_ms) > MAX_LANDMARKS:
            self._forget_least()

    def forget_below(self, offset: int) -> None:
        """Forgets landmarks of entries below this one."""
        needless = bisect_right(self._offsets, offset) - 1
        if needless > 0:
            del self._times_ms[:needless]
            del self._offsets[:needless]

    def of(self, offset: int) -> Published | None:
        """None for an entry that came after the last landmark."""
        at = bisect_right(self._offsets, offset)
        if at == len(self._offsets):
            return None
        return Published(self._times_ms[at - 1] if at else None, self._times_ms[at])

    def _forget_uninformative(self, near: int) -> None:
        """Forgets redundant landmarks: of several with one offset, the first and the last suffice."""
        for at in (near + 1, near, near - 1):
            if 0 < at < len(self._offsets) - 1 and self._offsets[at - 1] == self._offsets[at] == self._offsets[at + 1]:
                del self._times_ms[at]
                del self._offsets[at]
                return

    def _forget_least(self) -> None:
        newest = self._times_ms[-1] + 1

        def ratio_without(at: int) -> float:
            return (newest - self._times_ms[at - 1]) / (newest - self._times_ms[at + 1])

        least = min(range(1, len(self._times_ms) - 1), key=ratio_without)
        del self._times_ms[least]
        del self._offsets[least]


def time_to_request(published: Published, now_ms: int, within_ms: int) -> int | None:
    """The time for the next request about the first published entry, to improve an entry's age; None when it is known
    well enough: within a tenth of its age, or `within_ms`. No entry is assumed to be more than ten years old."""
    youngest = max(1, now_ms - published.before_ms)
    eldest = max(youngest, _LONGEST_MS if published.after_ms is None else now_ms - published.after_ms)
    if eldest - youngest <= within_ms or eldest <= youngest * _NEAR_ENOUGH:
        return None
    return now_ms - round(sqrt(eldest * max(youngest, within_ms / 2)))
