"""Time-outs of transactions lie in a priority queue by deadline, which is asked in ticks of 100 ms. Pure.

Source: Pulsar's TransactionTimeoutTrackerImpl.
"""

from __future__ import annotations

import heapq
from typing import Final

TICK_MS: Final = 100


class TransactionTimeouts:
    """Transactions of one coordinator by the time they have left. Memory: two entries for each open one at most.

    Times are milliseconds of whatever clock the caller uses throughout. A deadline is rounded up to a tick, so that
    those of one tick expire together; none expires early, nor later than a tick and the caller's next question.
    """

    def __init__(self) -> None:
        self._queue: list[tuple[int, int]] = []
        self._deadlines: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, local_id: int) -> bool:
        return local_id in self._deadlines

    def add(self, local_id: int, now_ms: int, left_ms: int) -> None:
        """Transaction `local_id` has `left_ms` from now on; it replaces what it had."""
        deadline = -(-(now_ms + max(0, left_ms)) // TICK_MS) * TICK_MS
        self._deadlines[local_id] = deadline
        heapq.heappush(self._queue, (deadline, local_id))
        self._drop_leftovers()

    def remove(self, local_id: int) -> None:
        """It ended; one that is not there is ignored."""
        self._deadlines.pop(local_id, None)
        self._drop_leftovers()

    def expired(self, now_ms: int) -> list[int]:
        """Take out those whose time is over, the earliest first (of one tick the lowest id first)."""
        found = []
        while self._queue and self._queue[0][0] <= now_ms:
            deadline, local_id = heapq.heappop(self._queue)
            if self._deadlines.get(local_id) == deadline:
                del self._deadlines[local_id]
                found.append(local_id)
        return found

    def next_ms(self) -> int | None:
        """When to ask again; None while nothing waits."""
        while self._queue and self._deadlines.get(self._queue[0][1]) != self._queue[0][0]:
            heapq.heappop(self._queue)
        return self._queue[0][0] if self._queue else None

    def _drop_leftovers(self) -> None:
        if len(self._queue) > 2 * len(self._deadlines) + 16:
            self._queue = [(deadline, local_id) for local_id, deadline in self._deadlines.items()]
            heapq.heapify(self._queue)
