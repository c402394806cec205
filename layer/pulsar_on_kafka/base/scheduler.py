"""The scheduler calls at given times, once or at intervals, in one thread: a node has one, and a client."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.base.worker import aside

_log: Final = logging.getLogger(__name__)


class _Call(NamedTuple):
    """`number` keeps two calls from being compared by their actions. `interval_s` is 0.0 for one that comes once."""

    due_s: float
    number: int
    action: Callable[[], None]
    interval_s: float


class Scheduler:
    """Calls are made one at a time; the thread begins with the first. Times are of the monotonic clock. Thread-safe.

    Memory: one entry for each call that is not due yet; callers keep to one at a time.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._calls: list[_Call] = []
        self._numbers = itertools.count()
        self._running: Callable[[], None] | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def call_at(self, due_s: float, action: Callable[[], None]) -> None:
        """Calls `action` once, not before `due_s`. It should be quick. After `close` the caller runs it at once."""
        if not self._added(due_s, action, 0.0):
            action()

    def every(self, interval_s: float, action: Callable[[], None]) -> None:
        """Calls `action` every `interval_s` seconds, first after one interval; never after `close`."""
        self._added(time.monotonic() + interval_s, action, interval_s)

    def cancel(self, action: Callable[[], None]) -> None:
        """Never call it again; it is not running when this returns, unless it is the caller."""
        with self._changed:
            self._calls = [call for call in self._calls if call.action != action]
            heapq.heapify(self._calls)
            if threading.current_thread() is not self._thread:
                self._changed.wait_for(lambda: self._running != action)

    def close(self, timeout_s: float | None = None) -> None:
        """Call now what was to come once, and end the thread; waits for that, but not from within a call. A second call
        does nothing."""
        with self._changed:
            self._closed = True
            self._calls = [call for call in self._calls if not call.interval_s]
            heapq.heapify(self._calls)
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)

    def _added(self, due_s: float, action: Callable[[], None], interval_s: float) -> bool:
        with self._changed:
            if self._closed:
                return False
            call = _Call(due_s, next(self._numbers), action, interval_s)
            heapq.heappush(self._calls, call)
            if self._thread is None:
                self._thread = aside(self._name, self._run)
            elif self._calls[0] is call:
                self._changed.notify_all()
            return True

    def _run(self) -> None:
        while (call := self._next()) is not None:
            try:
                call.action()
            except LayerError as failure:  # the next time may be better
                _log.warning("thread=%s %s", self._name, failure)
            except Exception:  # other calls continue
                _log.exception("thread=%s a call failed", self._name)

    def _next(self) -> _Call | None:
        """Wait for the next call that is due; None when there is none any more."""
        with self._changed:
            self._running = None
            self._changed.notify_all()
            while not self._closed or self._calls:
                wait_s = self._calls[0].due_s - time.monotonic() if self._calls else threading.TIMEOUT_MAX
                if wait_s > 0 and not self._closed:
                    self._changed.wait(min(wait_s, threading.TIMEOUT_MAX))
                    continue
                call = heapq.heappop(self._calls)
                if call.interval_s:
                    again = _Call(time.monotonic() + call.interval_s, call.number, call.action, call.interval_s)
                    heapq.heappush(self._calls, again)
                self._running = call.action
                return call
            return None
