"""Periodic tasks of a client look for new topics and partitions, read policies and log statistics."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

_log = logging.getLogger(__name__)


class Periodic:
    """One thread, begun with the first task, calls tasks at intervals, one at a time."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._due: dict[Callable[[], None], tuple[float, float]] = {}
        """Task to (when, on the monotonic clock; interval in seconds)."""
        self._running: Callable[[], None] | None = None
        self._closed = False
        self._thread: threading.Thread | None = None

    def every(self, interval_s: float, task: Callable[[], None]) -> None:
        """Call `task` every `interval_s` seconds, first after one of them. What it raises is logged."""
        with self._changed:
            if self._closed:
                return
            self._due[task] = time.monotonic() + interval_s, interval_s
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def cancel(self, task: Callable[[], None]) -> None:
        """Never call it again; returns when it is not running (unless called from within it)."""
        with self._changed:
            self._due.pop(task, None)
            if threading.current_thread() is not self._thread:
                self._changed.wait_for(lambda: self._running != task)

    def close(self) -> None:
        """End the thread, after the task that is running; a second call does nothing."""
        with self._changed:
            self._closed = True
            self._due.clear()
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while (task := self._next()) is not None:
            try:
                task()
            except Exception as failure:  # the next time may be better
                _log.warning("thread=%s %s", self._name, failure)
            with self._changed:
                self._running = None
                self._changed.notify_all()

    def _next(self) -> Callable[[], None] | None:
        """The next task, once it is due; None when closed."""
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                task = min(self._due, key=lambda each: self._due[each][0], default=None)
                if task is None:
                    self._changed.wait()
                    continue
                due, interval = self._due[task]
                if due > now:
                    self._changed.wait(due - now)
                    continue
                self._due[task] = now + interval, interval
                self._running = task
                return task
            return None
