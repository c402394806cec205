"""The threads that run message listeners and asynchronous receives."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Final

_log = logging.getLogger(__name__)

_TURN: Final = 100


class ListenerThreads:
    """`count` threads serve the consumers, each by one of them, so its messages are handled one at a time, in order.

    A task is called until it returns False (nothing left), at most `_TURN` times in a row. A task that is scheduled
    already is not queued twice, so the queues are bounded by the number of consumers.
    """

    def __init__(self, count: int) -> None:
        self._count = max(1, count)
        self._queues: list[queue.SimpleQueue[ListenerTask | None]] = []
        self._threads: list[threading.Thread] = []
        self._next = 0
        self._lock = threading.Lock()

    def task(self, step: Callable[[], bool]) -> ListenerTask:
        """A task for `step`, which handles one thing and says whether there was one."""
        with self._lock:
            if not self._threads:
                for number in range(self._count):
                    self._queues.append(queue.SimpleQueue())
                    thread = threading.Thread(
                        target=self._run, args=(self._queues[number],), name=f"pok-listener-{number}", daemon=True
                    )
                    self._threads.append(thread)
                    thread.start()
            self._next += 1
            return ListenerTask(step, self._queues[self._next % self._count])

    @staticmethod
    def _run(tasks: queue.SimpleQueue[ListenerTask | None]) -> None:
        while (task := tasks.get()) is not None:
            task.take_turn()

    def close(self) -> None:
        """End the threads after what they are at; not waited for from a listener itself."""
        for tasks in self._queues:
            tasks.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(10.0)


class ListenerTask:
    """One consumer's work, on its thread."""

    def __init__(self, step: Callable[[], bool], tasks: queue.SimpleQueue[ListenerTask | None]) -> None:
        self._step = step
        self._tasks = tasks
        self._scheduled = False
        self._lock = threading.Lock()

    def schedule(self) -> None:
        """There may be something to do. Any thread."""
        with self._lock:
            if self._scheduled:
                return
            self._scheduled = True
        self._tasks.put(self)

    def take_turn(self) -> None:
        with self._lock:
            self._scheduled = False
        for _ in range(_TURN):
            try:
                if not self._step():
                    return
            except Exception:
                _log.exception("a message listener failed")
        self.schedule()
