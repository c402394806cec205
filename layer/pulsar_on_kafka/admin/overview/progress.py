"""The progress of a cursor, computed from its states in consecutive passes. Pure."""

from __future__ import annotations

from typing import NamedTuple


class SavedProgress(NamedTuple):
    """A cursor as it was saved last: everything below `next_unacked` is acknowledged, and so many entries above it."""

    next_unacked: int
    acknowledged: int
    holes: int
    suspects: int
    unreadable: str = ""


class Progress:
    """Whether, and how fast, a cursor moves. Memory: some numbers."""

    __slots__ = ("_at", "_before_s", "moved_ms", "per_s", "total")

    def __init__(self, seen: SavedProgress, moved_ms: int) -> None:
        """`moved_ms`: since when, at least, the cursor is as it is seen first; Unix time."""
        self._at = (seen.next_unacked, seen.acknowledged)
        self._before_s: float | None = None
        self.moved_ms = moved_ms
        """The time of its last known move."""
        self.per_s: float | None = None
        """Entries acknowledged a second between the last two passes; None after the first."""
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
        self._at, self._before_s = at, now_s


class Growth:
    """The growth rate of a partition's log. Memory: some numbers."""

    __slots__ = ("_before_s", "end", "per_s", "total")

    def __init__(self, end: int) -> None:
        self.end = end
        self._before_s: float | None = None
        self.per_s: float | None = None
        self.total = 0
        """Entries published since it was seen first."""

    def saw(self, end: int, now_s: float) -> None:
        grown = max(0, end - self.end)
        self.total += grown
        self.per_s = None if self._before_s is None else grown / max(1e-3, now_s - self._before_s)
        self.end, self._before_s = end, now_s


def idle_since(backlog: int, moved_ms: int, oldest_ms: int | None) -> int | None:
    """The time since when, at least, a backlog exists without progress."""
    return None if backlog == 0 else max(moved_ms, oldest_ms or 0)
