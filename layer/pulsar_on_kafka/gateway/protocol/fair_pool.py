"""A fair pool of threads: callers take turns, and the work of one caller or on one topic never occupies all threads."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from pulsar_on_kafka.base.errors import Closed

THREADS: Final = 16
MAX_OF_CALLER: Final = 8
"""Threads that work for one caller at a time."""
MAX_OF_TOPIC: Final = 4
"""Threads that work on one topic at a time: work on one subscription is sequential anyway."""

_T = TypeVar("_T")


class _Job(NamedTuple):
    caller: Hashable
    topic: str
    run: Callable[[], None]


class FairPool:
    """Runs blocking work. Thread-safe.

    Each free thread takes the oldest work of the next caller in turn, and of its topics likewise. Memory: the work that
    waits, which callers bound.
    """

    def __init__(self, name: str) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        """No thread works."""
        self._waiting: OrderedDict[Hashable, OrderedDict[str, deque[_Job]]] = OrderedDict()
        """By caller and topic, those whose turn comes next first."""
        self._callers: Counter[Hashable] = Counter()
        self._topics: Counter[str] = Counter()
        """Threads at work, by caller and by topic."""
        self._running = 0
        self._closed = False

    def submit(self, work: Callable[..., _T], *arguments: Any, caller: Hashable = None, topic: str = "") -> Future[_T]:
        """Run the work in a thread. `topic` is the topic that it changes; '': none.

        The future fails with Closed if the pool was shut down.
        """
        future: Future[_T] = Future()
        job = _Job(caller, topic, partial(_run, future, work, arguments))
        with self._lock:
            if not self._closed:
                self._waiting.setdefault(caller, OrderedDict()).setdefault(topic, deque()).append(job)
                self._begin()
                return future
        future.set_exception(Closed("the gateway has stopped"))
        return future

    def wait_until_idle(self, timeout_s: float) -> bool:
        """Wait until no work runs or waits. Returns whether that is so."""
        with self._lock:
            return self._idle.wait_for(lambda: not self._running and not self._waiting, timeout_s)

    def shutdown(self) -> None:
        """Run the submitted work, then end the threads."""
        with self._lock:
            self._closed = True
            self._idle.wait_for(lambda: not self._running)  # the threads' own shutdown refuses work that waits here
        self._threads.shutdown(wait=True)

    def _begin(self) -> None:
        """Start a thread's work if a thread is free; under the lock."""
        if self._running < THREADS and (job := self._take()) is not None:
            self._running += 1
            self._threads.submit(self._work, job)

    def _work(self, job: _Job | None) -> None:
        while job is not None:
            job.run()
            with self._lock:
                self._callers[job.caller] -= 1
                self._topics[job.topic] -= 1
                if not self._callers[job.caller]:
                    del self._callers[job.caller]
                if not self._topics[job.topic]:
                    del self._topics[job.topic]
                job = self._take()
                if job is None:
                    self._running -= 1
                    self._idle.notify_all()
                else:
                    self._begin()  # this work alone may have blocked more than one

    def _take(self) -> _Job | None:
        """The next work that may begin; under the lock."""
        for caller, topics in self._waiting.items():
            if self._callers[caller] >= MAX_OF_CALLER:
                continue
            topic = next((t for t in topics if not t or self._topics[t] < MAX_OF_TOPIC), None)
            if topic is None:
                continue
            job = topics[topic].popleft()
            topics.move_to_end(topic)
            self._waiting.move_to_end(caller)
            if not topics[topic]:
                del topics[topic]
            if not topics:
                del self._waiting[caller]
            self._callers[caller] += 1
            self._topics[job.topic] += 1
            return job
        return None


def _run(future: Future[_T], work: Callable[..., _T], arguments: tuple[Any, ...]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        found = work(*arguments)
    except BaseException as failure:
        future.set_exception(failure)
    else:
        future.set_result(found)
