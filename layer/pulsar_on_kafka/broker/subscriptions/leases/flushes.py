"""Flushes wait until the owners of other partitions have saved what this process acknowledged."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.commands import settle
from pulsar_on_kafka.broker.subscriptions.leases.lessee import Lessee


class LeaseFlushes:
    """The flushes of one membership. Memory: a number and a future for each."""

    def __init__(self, lessee: Lessee) -> None:
        self._lessee = lessee
        self._waiting: deque[tuple[int, Future[None]]] = deque()
        """Each with the number of the report that acknowledges last what it waits for."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def begin(self) -> Future[None] | None:
        """Request a save of everything that the lessee has drained; None where the owners have saved all of it."""
        if not self._lessee.unsaved:
            return None
        done: Future[None] = Future()
        self._waiting.append((self._lessee.mark(), done))
        self._lessee.save_required = True
        return done

    def step(self) -> None:
        """Settle the flushes whose reports are saved."""
        while self._waiting and self._lessee.is_saved(self._waiting[0][0]):
            _, done = self._waiting.popleft()
            settle(done, None)
        self._lessee.save_required = bool(self._waiting)

    def close(self, reason: errors.LayerError) -> None:
        for _, done in self._waiting:
            settle(done, reason)
        self._waiting.clear()
