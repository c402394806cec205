"""The hole budget bounds the memory that the holes of a process's cursors take, and names the ledgers to unload above
it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Final

from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.saved_cursor import SavedCursor

MIN_BYTES: Final = 1 << 20
DEFAULT_BYTES: Final = 64 << 20
"""The default limit of a Client. Ten million single holes take about 2 MiB."""


class HoleBudget:
    """The budget of all cursors of a node. Thread-safe; the owning thread sweeps each cursor.

    The least recently used ledger of any cursor is evicted first. A sweep reports the bytes of a cursor by the second
    of their last use, and gets the second from which on ledgers may stay. Bound: `limit_bytes`, and beyond it ledgers
    that were used since the last sweep or are not saved yet, and the ledger of each mark-delete position, which are
    never evicted.
    """

    def __init__(self, limit_bytes: int = MIN_BYTES) -> None:
        """Raises InvalidOption below 1 MiB."""
        self.limit_bytes = MIN_BYTES
        self.allow(limit_bytes)
        self._lock = threading.Lock()
        self._used: dict[Hashable, Mapping[int, int]] = {}
        self._total: Counter[int] = Counter()
        """The sum of all of them. No second has 0."""

    def allow(self, limit_bytes: int) -> None:
        """Take as much as this from now on, if it is more. Raises InvalidOption below 1 MiB."""
        if limit_bytes < MIN_BYTES:
            raise InvalidOption(f"the memory for cursors must be at least {MIN_BYTES} bytes, got {limit_bytes}")
        self.limit_bytes = max(self.limit_bytes, limit_bytes)

    def report(self, cursor: Hashable, bytes_by_second: Mapping[int, int], current_s: int) -> int:
        """Reports the present memory of a cursor; returns the second (`current_s` at most) before which it must
        evict."""
        with self._lock:
            self._forget(cursor)
            self._used[cursor] = bytes_by_second
            self._total.update(bytes_by_second)
            left = self.limit_bytes
            if self._total.total() <= left:
                return 0
            for second in sorted(self._total, reverse=True):
                left -= self._total[second]
                if left < 0:
                    return min(second + 1, current_s)
        return 0

    def forget(self, cursor: Hashable) -> None:
        with self._lock:
            self._forget(cursor)

    def _forget(self, cursor: Hashable) -> None:
        for second, size in self._used.pop(cursor, {}).items():
            self._total[second] -= size
            if not self._total[second]:
                del self._total[second]

    def used_bytes(self) -> int:
        with self._lock:
            return self._total.total()


class Residency:
    """Ledgers of one cursor; used by the thread that owns it.

    Memory: two numbers for each ledger that is in memory.
    """

    def __init__(self, budget: HoleBudget) -> None:
        self._budget = budget
        self._sizes: dict[int, tuple[int, int]] = {}
        """The last use of each ledger, and its size then."""

    def sweep(self, state: CursorState, saved: SavedCursor, now_s: int) -> int:
        """Send ledgers away until the budget is kept; gives how many went. No save may be under way.

        `now_s` is the monotonic clock in seconds.
        """
        by_second: Counter[int] = Counter()
        sizes: dict[int, tuple[int, int]] = {}
        for index in state.ledgers_here():
            used = state.last_used(index)
            known = self._sizes.get(index)
            size = known[1] if known is not None and known[0] == used else state.size_bytes(index)
            sizes[index] = used, size
            by_second[used] += size
        self._sizes = sizes
        keep_from = self._budget.report(self, by_second, state.deleted.now_s)
        state.deleted.now_s = now_s
        gone = 0
        for index, (used, _) in sizes.items():
            if used < keep_from and index in saved.segments and index not in state.dirty_ledgers:
                gone += state.send_away(index, saved.segments[index].summary.size_bytes)
        return gone

    def forget(self) -> None:
        self._budget.forget(self)
