"""A coordinator's owner counts its transactions as it reads the log; a record that is appended again counts once."""

from __future__ import annotations

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.meters import CoordinatorMeter
from pulsar_on_kafka.transactions.coordinator.rules import COMMITTED, OPEN
from pulsar_on_kafka.transactions.coordinator.state import Transaction


class CoordinatorCounts:
    """For the coordinator's thread. Memory: some numbers for each unfinished transaction."""

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
        """It is being aborted because its time is over."""
        self._timing_out.add(local_id)

    def see(self, local_id: int, transaction: Transaction | None) -> None:
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

    def _finished(self, local_id: int, transaction: Transaction) -> None:
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
