"""The threads that run message listeners and asynchronous receives."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.worker import QueueWorker

_log = logging.getLogger(__name__)

_TURN: Final = 100
_CLOSE_S: Final = 10.0


class ListenerThreads:
    """`count` threads serve the consumers, each by one of them, so its messages are handled one at a time, in order.

    A task is called until it returns False (nothing left), at most `_TURN` times in a row. A task that is scheduled
    already is not queued twice, so the queues are bounded by the number of consumers.
    """

    def __init__(self, count: int) -> None:
        self._workers = [
            QueueWorker[ListenerTask](f"pok-listener-{number}", _take_turns) for number in range(max(1, count))
        ]
        self._next = 0
        self._lock = threading.Lock()

    def task(self, step: Callable[[], bool]) -> ListenerTask:
        """A task for `step`, which handles one item and returns whether there was one."""
        with self._lock:
            self._next += 1
            return ListenerTask(step, self._workers[self._next % len(self._workers)])

    def close(self) -> None:
        """End the threads after what they are at; not waited for from a listener itself."""
        for worker in self._workers:
            worker.close(Deadline.after(_CLOSE_S))


def _take_turns(tasks: Sequence[ListenerTask]) -> None:
    for task in tasks:
        task.take_turn()


class ListenerTask:
    """One consumer's work, on its thread."""

    def __init__(self, step: Callable[[], bool], worker: QueueWorker[ListenerTask]) -> None:
        self._step = step
        self._worker = worker
        self._scheduled = False
        self._lock = threading.Lock()

    def schedule(self) -> None:
        """There may be something to do. Any thread."""
        with self._lock:
            if self._scheduled:
                return
            self._scheduled = True
        self._worker.put([self])

    def take_turn(self) -> None:
        with self._lock:
            self._scheduled = False
        for _ in range(_TURN):
            try:
                if not self._step():
                    return
            except Exception:  # the application's; the next message comes all the same
                _log.exception("a message listener failed")
        self.schedule()
