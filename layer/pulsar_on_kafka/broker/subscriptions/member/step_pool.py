"""Steps are the work of many owners that a few threads do. An owner's step runs when it is due, or was woken."""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import threading
import time
from collections.abc import Callable
from enum import Enum, auto
from queue import Empty, SimpleQueue
from typing import Final

from pulsar_on_kafka.base.errors import Closed
from pulsar_on_kafka.base.forks import OfOneProcess
from pulsar_on_kafka.base.meters import Latencies
from pulsar_on_kafka.base.worker import aside

_log: Final = logging.getLogger(__name__)

WORKERS: Final = 4
"""Threads that stay. Steps are Python code mostly, of which one thread runs at a time."""
MAX_WORKERS: Final = 32
"""The limit while steps wait, for Kafka above all."""
_STUCK_S: Final = 0.05
"""Without a beginning of a step for so long, steps that are ready get more threads."""
_IDLE_S: Final = 10.0
"""A thread beyond `WORKERS` ends when it had no step for so long."""


class _State(Enum):
    IDLE = auto()
    READY = auto()
    RUNNING = auto()
    AGAIN = auto()
    """It runs, and was woken meanwhile."""
    OVER = auto()


def _over() -> None:
    pass


class StepTask:
    """One owner's steps. They never run at the same time."""

    __slots__ = ("_pool", "begun_s", "due_s", "state", "step", "timed_s")

    def __init__(self, pool: StepPool, step: Callable[[], float | None]) -> None:
        self._pool = pool
        self.step = step
        self.state = _State.IDLE
        self.due_s = math.inf
        self.timed_s = math.inf
        """The time of its earliest entry in the timer."""
        self.begun_s = math.inf
        """The time at which the running step began."""

    def wake(self) -> None:
        """Begins a step soon; another one behind a step that runs. Any thread."""
        self._pool.wake(self)


class StepPool(OfOneProcess):
    """Runs the steps of all tasks: four threads, and up to 32 while steps wait for something. Thread-safe.

    Who is ready first begins first. A step should do a bounded amount of work, for others wait meanwhile.

    Memory: an entry for each task, and up to four for each in the timer.
    """

    def __init__(self, name: str) -> None:
        """`name`: of the threads, which begin with the first task."""
        self._name = name
        self._lock = threading.Lock()
        self._ready: SimpleQueue[tuple[StepTask, float] | None] = SimpleQueue()
        self._tasks: set[StepTask] = set()
        self._workers = 0
        self._idle = 0
        self._begun = 0
        """The number of steps that have begun."""
        self._changed = threading.Condition(self._lock)
        self._timer: list[tuple[float, int, StepTask]] = []
        self._numbers = itertools.count()
        self._crowded = False
        """Steps became ready while no thread was idle."""
        self._checked_begun, self._checked_s = 0, 0.0
        """`_begun` as it was last seen to grow, or when steps began to wait for a thread, and the time of that."""
        self._is_closed = False
        self.lag = Latencies()
        """The delay of steps behind the time at which they were ready, in seconds."""

    def add(self, step: Callable[[], float | None]) -> StepTask:
        """A task, whose first step follows a `wake`.

        `step` returns the time of its next call on the monotonic clock, infinity for not before a wake-up, or None if
        it was the last one. It raises nothing: an exception is logged, and ends the task.

        Raises:
            Closed: the pool is closed.
        """
        task = StepTask(self, step)
        with self._lock:
            if self._is_closed:
                raise Closed(f"{self._name}: closed")
            self._tasks.add(task)
            if not self._workers:
                aside(f"{self._name}-timer", self._time)
                self._begin_worker()
        return task

    def close(self) -> None:
        """Ends the threads when they have nothing more to do. Tasks that are not over get no other step."""
        with self._lock:
            self._is_closed = True
            for _ in range(self._workers):
                self._ready.put(None)
            self._changed.notify_all()

    @property
    def longest_step_s(self) -> float:
        """The duration of the longest step that runs now."""
        with self._lock:
            begun_s = min((task.begun_s for task in self._tasks), default=math.inf)
        return 0.0 if begun_s == math.inf else time.monotonic() - begun_s

    @property
    def threads(self) -> int:
        return self._workers + 1 if self._workers else 0

    # Any thread ---------------------------------------------------------------------------------------------------

    def wake(self, task: StepTask) -> None:
        """See `StepTask.wake`."""
        with self._lock:
            if task.state is _State.RUNNING:
                task.state = _State.AGAIN
            elif task.state is _State.IDLE:
                self._enqueue(task)

    def _enqueue(self, task: StepTask) -> None:
        """For the holder of the lock."""
        now_s = time.monotonic()
        task.state = _State.READY
        self._ready.put((task, now_s))
        if self._idle >= self._ready.qsize():
            return
        if self._workers < WORKERS:
            self._begin_worker()
        elif not self._crowded:
            self._crowded = True
            self._checked_begun, self._checked_s = self._begun, now_s
            self._changed.notify_all()

    def _begin_worker(self) -> None:
        aside(f"{self._name}-{self._workers}", self._work)
        self._workers += 1

    # The workers --------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (found := self._next()) is not None:
            task, ready_s = found
            now_s = time.monotonic()
            with self._lock:
                self._begun += 1
                self.lag.add(now_s - ready_s)
                task.state, task.begun_s = _State.RUNNING, now_s
            try:
                due_s = task.step()
            except Exception:  # no other place would log it
                _log.exception("%s: a step failed, and was the last of its task", self._name)
                due_s = None
            with self._lock:
                task.begun_s = math.inf
                self._end_step(task, due_s)
            del task, found

    def _next(self) -> tuple[StepTask, float] | None:
        """The next step; None: this thread ends."""
        with self._lock:
            self._idle += 1
        try:
            while True:
                timeout_s = _IDLE_S if self._workers > WORKERS else None
                try:
                    return self._ready.get(timeout=timeout_s)
                except Empty:
                    with self._lock:
                        if self._workers > WORKERS:
                            self._workers -= 1
                            return None
        finally:
            with self._lock:
                self._idle -= 1

    def _end_step(self, task: StepTask, due_s: float | None) -> None:
        if due_s is None:
            task.state, task.step = _State.OVER, _over  # entries of the timer keep nothing of the owner alive
            self._tasks.discard(task)
        elif task.state is _State.AGAIN or due_s <= time.monotonic():
            self._enqueue(task)
        else:
            task.state, task.due_s = _State.IDLE, due_s
            if due_s < task.timed_s:
                self._set_timer(task)

    # The timer ----------------------------------------------------------------------------------------------------

    def _set_timer(self, task: StepTask) -> None:
        """An entry that is later than needed stays; one that is too early sets the timer anew."""
        if len(self._timer) > 4 * len(self._tasks) + 64:
            self._timer = [(each.timed_s, next(self._numbers), each) for each in self._tasks if each.timed_s < math.inf]
            heapq.heapify(self._timer)
        task.timed_s = task.due_s
        entry = (task.due_s, next(self._numbers), task)
        heapq.heappush(self._timer, entry)
        if self._timer[0] is entry:
            self._changed.notify_all()

    def _time(self) -> None:
        with self._lock:
            while not self._is_closed:
                now_s = time.monotonic()
                while self._timer and self._timer[0][0] <= now_s:
                    at_s, _, task = heapq.heappop(self._timer)
                    if at_s == task.timed_s:
                        task.timed_s = math.inf
                    if task.state is _State.IDLE and task.due_s <= now_s:
                        self._enqueue(task)
                    elif task.state is _State.IDLE and task.due_s < task.timed_s:
                        self._set_timer(task)
                self._relieve(now_s)
                wait_s = self._timer[0][0] - now_s if self._timer else math.inf
                if self._crowded:
                    wait_s = min(wait_s, _STUCK_S)
                self._changed.wait(min(wait_s, threading.TIMEOUT_MAX))

    def _relieve(self, now_s: float) -> None:
        """Doubles the threads if steps are ready and none has begun for a while."""
        if self._begun != self._checked_begun or not self._crowded:
            self._checked_begun, self._checked_s = self._begun, now_s
            self._crowded = self._crowded and not self._ready.empty()
        elif now_s - self._checked_s >= _STUCK_S and not self._ready.empty():
            for _ in range(min(self._workers, self._ready.qsize(), MAX_WORKERS - self._workers)):
                self._begin_worker()
            self._checked_s = now_s
