"""Threads run as workers: one that works until it is closed, one that takes queued items, and one for a single call.

No other module begins a thread (`tests/unit/test_import_rules.py`), so failures of work are handled in one way.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Closed, Fenced, LayerError, NotAuthorized, NotSupportedYet
from pulsar_on_kafka.base.loop_timing import Turns

_log: Final = logging.getLogger(__name__)

FORBIDDEN_RETRY_INTERVAL_S: Final = 30.0
"""The shortest pause after work that failed for a missing right: rights are not granted within a second."""

_T = TypeVar("_T")


def check_threads() -> None:
    """Call it before this package begins threads.

    Raises:
        NotSupportedYet: gevent has replaced them by greenlets: one call that waits in librdkafka would stop them all.
    """
    if _gevent_replaced("threading", "queue"):
        raise NotSupportedYet(
            "gevent's monkey patching has replaced threads by greenlets: patch with"
            " monkey.patch_all(thread=False, queue=False), and make calls that wait in gevent's thread pool"
        )


def check_event_loops() -> None:
    """Call it before a thread begins an event loop of asyncio.

    Raises:
        NotSupportedYet: gevent has replaced what the loop waits with, and its replacement ends in a thread without
            greenlets.
    """
    if _gevent_replaced("select", "selectors"):
        raise NotSupportedYet("gevent's monkey patching has replaced `select`, with which asyncio waits")


def _gevent_replaced(*modules: str) -> bool:
    patched = getattr(sys.modules.get("gevent.monkey"), "is_module_patched", None)
    return patched is not None and any(map(patched, modules))


@dataclass(frozen=True, slots=True)
class Retry:
    """Pauses after work that failed: `min_s`, then twice as long each time, up to `max_s` (by default always the
    same)."""

    min_s: float = 1.0
    max_s: float = 0.0

    def next_s(self, pause_s: float) -> float:
        """The pause after `pause_s`, which is 0.0 before the first."""
        return max(self.min_s, min(2 * pause_s, self.max_s))


_ONE_SECOND: Final = Retry()


def _nothing() -> None:
    pass


class Worker:
    """A thread that repeats its work until it is closed: no error of the work ends it.

    Each kind of failure is logged once, and again after a success in between. Thread-safe.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], float],
        failing: str,
        *,
        first_s: float = 0.0,
        retry: Retry = _ONE_SECOND,
        last: Callable[[], object] = _nothing,
        expected: tuple[type[Exception], ...] = (LayerError,),
    ) -> None:
        """`work` returns the seconds until its next call, infinity for not before `wake`; the first call follows
        `first_s`. `failing` is the log message of an error. `last` runs in the thread before it ends, even if it was
        told to end before its first work. Errors that are not `expected` are logged with their traceback."""
        self._work = work
        self._failing = failing
        self._first_s = first_s
        self._retry = retry
        self._last = last
        self._expected = expected
        self.turns = Turns()
        """The turns of work that is done in turns, which begins them itself."""
        self._pause_s = 0.0
        self._reported = ""
        self._begun = threading.Lock()
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begins, when everything that the work needs exists; does nothing after a beginning, or a request to end."""
        with self._begun:
            if self._thread.ident is None and not self.ended:
                self._thread.start()

    @property
    def name(self) -> str:
        return self._thread.name

    @property
    def ended(self) -> bool:
        """Whether the thread was told to end; long work checks this regularly."""
        return self._ended.is_set()

    def is_alive(self) -> bool:
        """Whether its thread is alive: from `start` until `close`."""
        return self._thread.is_alive()

    def wake(self) -> None:
        """Do the work now, or again right after what is being done; after a failure when its pause is over."""
        self._wake.set()

    def pause(self, seconds: float) -> bool:
        """Pauses the work itself for this time; True, at once, when it is to end."""
        return self._ended.wait(seconds)

    def well(self) -> None:
        """Reports success, for work that does not return: the next failure is logged again, with a short pause."""
        self._pause_s, self._reported = 0.0, ""

    def end(self) -> None:
        """Do the work no more; a second call does nothing."""
        with self._begun:
            self._ended.set()
        self._wake.set()

    def close(self, deadline: Deadline) -> None:
        """End, and wait for the work that is being done, but not from within it; a second call does nothing."""
        self.end()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(deadline.remaining_s())

    def _run(self) -> None:
        pause_s = self._first_s
        while not self._waited(pause_s):
            try:
                pause_s = self._work()
            except Exception as failure:  # a thread's outermost loop: nothing ends it
                pause_s = self._pause_s = self._retry.next_s(self._pause_s)
                if isinstance(failure, NotAuthorized):
                    pause_s = max(pause_s, FORBIDDEN_RETRY_INTERVAL_S)
                self._report(failure, pause_s)
                self._ended.wait(pause_s)
                pause_s = 0.0
            else:
                self.well()
        self._last()

    def _waited(self, seconds: float) -> bool:
        """Waits for this time, or until it is woken; True when it was told to end."""
        self._wake.wait(min(seconds, threading.TIMEOUT_MAX))
        self._wake.clear()
        return self.ended

    def _report(self, failure: Exception, pause_s: float) -> None:
        kind = type(failure).__name__
        known = kind == self._reported or self.ended or isinstance(failure, Closed)
        self._reported = kind
        if isinstance(failure, self._expected):
            alarming = logging.INFO if isinstance(failure, Fenced) else logging.WARNING  # another process continues
            level = logging.DEBUG if known else alarming
            _log.log(level, "%s, again in %.0f s: %s", self._failing, pause_s, failure)
        else:
            level = logging.DEBUG if known else logging.ERROR
            _log.log(level, "%s, again in %.0f s", self._failing, pause_s, exc_info=failure)


class QueueWorker(Generic[_T]):
    """A thread that takes what is put, all that waits at a time, in order; it begins with the first. Thread-safe.

    Memory: what was put and not taken; those who put keep it small.
    """

    def __init__(
        self, name: str, take: Callable[[Sequence[_T]], None], *, last: Callable[[], object] = _nothing
    ) -> None:
        """Errors of `take` are logged; the next items are taken all the same. `last` runs in the thread before it ends,
        if it ever began."""
        self._name = name
        self._take = take
        self._last = last
        self._changed = threading.Condition()
        self._waiting: list[_T] = []
        self._busy = False
        self._closed = False
        self._thread: threading.Thread | None = None

    def put(self, items: Sequence[_T]) -> bool:
        """False, and nothing is done with them, when it is closed."""
        with self._changed:
            if self._closed:
                return False
            self._waiting.extend(items)
            if self._thread is None:
                self._thread = aside(self._name, self._run)
            self._changed.notify_all()
        return True

    def is_own_thread(self) -> bool:
        """Whether the caller runs inside of `take`."""
        return threading.current_thread() is self._thread

    def is_idle(self) -> bool:
        """Whether no item waits or is being taken."""
        with self._changed:
            return not self._waiting and not self._busy

    def wait_until_idle(self, deadline: Deadline) -> int:
        """The number of items that still wait at the deadline."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting and not self._busy, deadline.remaining_s())
            return len(self._waiting)

    def close(self, deadline: Deadline) -> bool:
        """Takes the waiting items, then ends; returns whether that is done at the deadline. A second call has no
        further effect."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is None or self.is_own_thread():
            return True
        thread.join(deadline.remaining_s())
        return not thread.is_alive()

    def _run(self) -> None:
        while items := self._next():
            try:
                self._take(items)
            except Exception:  # what comes next is taken all the same
                _log.exception("%s: %d could not be done", self._name, len(items))
        self._last()

    def _next(self) -> list[_T]:
        with self._changed:
            self._busy = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._waiting or self._closed)
            items, self._waiting = self._waiting, []
            self._busy = bool(items)
            return items


def aside(name: str, action: Callable[[], object], *, daemon: bool = True) -> threading.Thread:
    """Begin a thread that makes this one call; what it raises is logged. With `daemon` it does not keep the process
    from ending."""

    def run() -> None:
        try:
            action()
        except Exception:  # no other place would log it
            _log.exception("%s ended by a failure", name)

    thread = threading.Thread(target=run, name=name, daemon=daemon)
    thread.start()
    return thread


AT_ONCE: Final = 8


def side_by_side(calls: Iterable[Callable[[], _T]], at_once: int = AT_ONCE) -> list[_T]:
    """The results, in order of the calls. Returns when all are done; the caller's thread runs a single call, daemon
    threads run several, so that the process can end.

    Raises:
        Exception: the first error, in order of the calls, when all are done.
    """
    made = list(calls)
    if len(made) < 2:
        return [call() for call in made]
    results: dict[int, _T] = {}
    failures: dict[int, BaseException] = {}
    left = iter(range(len(made)))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                number = next(left, None)
            if number is None:
                return
            try:
                results[number] = made[number]()
            except BaseException as failure:  # the caller's thread raises it
                failures[number] = failure

    threads = [aside(f"pok-side-by-side-{number}", work) for number in range(min(at_once, len(made)))]
    for thread in threads:
        thread.join()
    if failures:
        raise failures[min(failures)]
    return [results[number] for number in range(len(made))]
