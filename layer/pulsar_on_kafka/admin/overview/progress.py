"""The progress of a cursor, computed from its states in consecutive passes. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

_RECENT_S: Final = 60.0
MIN_RECENT_S: Final = 30.0
"""The shortest time over which a recent rate is measured."""


class SavedProgress(NamedTuple):
    """A cursor as it was saved last: everything below `next_unacked` is acknowledged, and so many entries above it."""

    next_unacked: int
    acknowledged: int
    holes: int
    suspects: int
    unreadable: str = ""


class RecentRate:
    """The rate of a number that only grows, over the last one to two minutes, or since the pass before where passes are
    further apart. Memory: two points."""

    __slots__ = ("_newer", "_older")

    def __init__(self) -> None:
        self._older: tuple[float, int] | None = None
        self._newer: tuple[float, int] | None = None

    def saw(self, total: int, now_s: float) -> float | None:
        """The rate a second; None while less than 30 s are known. `now_s` is of a clock that only grows."""
        if self._older is None or self._newer is None:
            self._older = self._newer = (now_s, total)
            return None
        (since_s, before), (newer_s, _) = self._older, self._newer
        if now_s - newer_s >= _RECENT_S:
            self._older, self._newer = self._newer, (now_s, total)
        passed_s = now_s - since_s
        return (total - before) / passed_s if passed_s >= MIN_RECENT_S else None


class Progress:
    """Whether, and how fast, a cursor moves. Memory: some numbers."""

    __slots__ = ("_at", "_before_s", "_recent", "moved_ms", "per_s", "recent_per_s", "total")

    def __init__(self, seen: SavedProgress, moved_ms: int) -> None:
        """`moved_ms`: since when, at least, the cursor is as it is seen first; Unix time."""
        self._at = (seen.next_unacked, seen.acknowledged)
        self._before_s: float | None = None
        self.moved_ms = moved_ms
        """The time of its last known move."""
        self.per_s: float | None = None
        """Entries acknowledged a second between the last two passes; None after the first."""
        self._recent = RecentRate()
        self.recent_per_s: float | None = None
        """Entries acknowledged a second, as `RecentRate` gives it."""
        self.total = 0
        """Entries acknowledged since it was seen first; a seek counts for nothing."""

    def saw(self, seen: SavedProgress, now_s: float, now_ms: int) -> None:
        """`now_s` is of a clock that only grows."""
        at = (seen.next_unacked, seen.acknowledged)
        done = max(0, sum(at) - sum(self._at))
        if at != self._at:
            self.moved_ms = now_ms
        self.total += done
        self.per_s = None if self._before_s is None else done / max(1e-3, now_s - self._before_s)
        self.recent_per_s = self._recent.saw(self.total, now_s)
        self._at, self._before_s = at, now_s


class Growth:
    """The growth rate of a partition's log. Memory: some numbers."""

    __slots__ = ("_before_s", "_recent", "end", "per_s", "recent_per_s", "total")

    def __init__(self, end: int) -> None:
        self.end = end
        self._before_s: float | None = None
        self._recent = RecentRate()
        self.per_s: float | None = None
        self.recent_per_s: float | None = None
        self.total = 0
        """Entries published since it was seen first."""

    def saw(self, end: int, now_s: float) -> None:
        grown = max(0, end - self.end)
        self.total += grown
        self.per_s = None if self._before_s is None else grown / max(1e-3, now_s - self._before_s)
        self.recent_per_s = self._recent.saw(self.total, now_s)
        self.end, self._before_s = end, now_s


def idle_since(backlog: int, moved_ms: int, oldest_ms: int | None) -> int | None:
    """The time since when, at least, a backlog exists without progress."""
    return None if backlog == 0 else max(moved_ms, oldest_ms or 0)
