"""One thread that calls at given times; a node has one for everything that wants to be called."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable

_log = logging.getLogger(__name__)


class Timer:
    """Times are of the monotonic clock, in seconds. Thread-safe; the thread starts with the first call.

    Memory: one entry for each call that is not due yet; callers keep to one at a time.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()  # no two entries compare their actions
        self._thread: threading.Thread | None = None
        self._closed = False

    def call_at(self, due_s: float, action: Callable[[], None]) -> None:
        """Have `action` called once, by the timer's thread, not before `due_s`. It should be quick.

        On a closed timer it is called at once, by the caller.
        """
        with self._changed:
            if not self._closed:
                heapq.heappush(self._calls, (due_s, next(self._numbers), action))
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="pok-timer", daemon=True)
                    self._thread.start()
                elif self._calls[0][2] is action:
                    self._changed.notify()
                return
        action()

    def close(self, timeout_s: float) -> None:
        """Call now what is not due yet, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while (action := self._next()) is not None:
            try:
                action()
            except Exception:  # everybody else's calls go on
                _log.exception("a timed call failed")

    def _next(self) -> Callable[[], None] | None:
        """Wait for the next call that is due; None when there is none any more."""
        with self._changed:
            while True:
                if self._calls:
                    wait_s = self._calls[0][0] - time.monotonic()
                    if wait_s <= 0 or self._closed:
                        return heapq.heappop(self._calls)[2]
                    self._changed.wait(min(wait_s, threading.TIMEOUT_MAX))
                elif self._closed:
                    return None
                else:
                    self._changed.wait()
