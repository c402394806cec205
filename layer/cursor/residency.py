"""Residency keeps a cursor's ledgers in memory, or unloads those that are saved and were not used lately, when the
budget is exceeded."""

from __future__ import annotations

from collections import Counter

from pulsar_on_kafka.cursor.budget import HoleBudget
from pulsar_on_kafka.cursor.cursor_machine import CursorState
from pulsar_on_kafka.cursor.saved import Saved


class Residency:
    """Ledgers of one cursor; used by the thread that owns it.

    Memory: two numbers for each ledger that is in memory.
    """

    def __init__(self, budget: HoleBudget) -> None:
        self._budget = budget
        self._sizes: dict[int, tuple[int, int]] = {}
        """When a ledger was last used, and how large it was then."""

    def sweep(self, state: CursorState, saved: Saved, now_s: int) -> int:
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
