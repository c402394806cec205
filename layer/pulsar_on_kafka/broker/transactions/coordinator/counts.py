"""A coordinator's owner counts its transactions as it reads the log, and times them out."""

from __future__ import annotations

import heapq
from typing import Final

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.meters import CoordinatorMeter
from pulsar_on_kafka.broker.transactions.coordinator.rules import COMMITTED, OPEN
from pulsar_on_kafka.broker.transactions.coordinator.state import LoggedTransaction

TICK_MS: Final = 100


class TransactionTimeouts:
    """Transactions of one coordinator by remaining time, in ticks of 100 ms. Memory: two entries for each open one at
    most. Source: Pulsar's TransactionTimeoutTrackerImpl.

    Times are milliseconds of any one clock of the caller. A deadline is rounded up to a tick, so that the transactions
    of one tick expire together. None expires early, nor later than a tick plus the caller's next call.
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
        """Removes an ended transaction; an unknown one is ignored."""
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
        """The time of the next call; None while nothing waits."""
        while self._queue and self._deadlines.get(self._queue[0][1]) != self._queue[0][0]:
            heapq.heappop(self._queue)
        return self._queue[0][0] if self._queue else None

    def _drop_leftovers(self) -> None:
        if len(self._queue) > 2 * len(self._deadlines) + 16:
            self._queue = [(deadline, local_id) for local_id, deadline in self._deadlines.items()]
            heapq.heapify(self._queue)


class CoordinatorCounts:
    """A record that is appended again counts once. For the coordinator's thread. Memory: some numbers for each
    unfinished transaction."""

    def __init__(self, meter: CoordinatorMeter, clock: Clock) -> None:
        self._meter = meter
        self._clock = clock
        self.begin(-1)

    def begin(self, by: int) -> None:
        """A session of version `by` begins, or (-1) the one that was is over: then none is active here."""
        self._by = by
        self._unfinished: dict[int, str] = {}
        self._ending_since_s: dict[int, float] = {}
        self._timing_out: set[int] = set()
        self._meter.unfinished = {}

    def timing_out(self, local_id: int) -> None:
        """Counts a transaction that is being aborted by its time-out."""
        self._timing_out.add(local_id)

    def see(self, local_id: int, transaction: LoggedTransaction | None) -> None:
        """The log changed: the transaction is like this now, or forgotten."""
        before = self._unfinished.pop(local_id, None)
        if before is not None:
            self._meter.unfinished[before] -= 1
        if transaction is None:
            self._forget(local_id)
        elif transaction.finished:
            if before is not None:
                self._finished(local_id, transaction)
            self._forget(local_id)
        else:
            if before is None and transaction.new.by == self._by:
                self._meter.created += 1
            if transaction.status is not OPEN:
                self._ending_since_s.setdefault(local_id, self._clock.monotonic())
            status = self._unfinished[local_id] = transaction.status.value
            self._meter.unfinished[status] = self._meter.unfinished.get(status, 0) + 1

    def _finished(self, local_id: int, transaction: LoggedTransaction) -> None:
        if transaction.status is COMMITTED:
            self._meter.committed += 1
        else:
            self._meter.aborted += 1
            self._meter.timed_out += local_id in self._timing_out
        self._meter.executions.add(max(0, transaction.finished_ms - transaction.new.start_ms) / 1000)
        if local_id in self._ending_since_s:
            self._meter.ends.add(self._clock.monotonic() - self._ending_since_s[local_id])

    def _forget(self, local_id: int) -> None:
        self._ending_since_s.pop(local_id, None)
        self._timing_out.discard(local_id)
