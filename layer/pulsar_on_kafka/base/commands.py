"""Commands are calls of other threads for the serving thread, which they also wake."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Generic, TypeVar

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline

_T = TypeVar("_T")
_R = TypeVar("_R")


class _Command(Generic[_T]):
    __slots__ = ("_action", "_future")

    def __init__(self, future: Future[_T], action: Callable[[], _T]) -> None:
        self._future = future
        self._action = action

    def execute(self) -> None:
        if not self._future.set_running_or_notify_cancel():
            return
        try:
            self._future.set_result(self._action())
        except Exception as error:  # the caller gets it
            self._future.set_exception(error)

    def refuse(self, reason: Exception) -> None:
        if self._future.set_running_or_notify_cancel():
            self._future.set_exception(reason)


class CommandQueue:
    """Any thread runs commands and wakes; the serving thread executes and waits. No wake-up is lost: one that comes
    after `execute` has begun ends the next wait at once.

    Memory: one entry for each caller that waits for an outcome.
    """

    def __init__(
        self, end_wait: Callable[[], None] = lambda: None, *, when_woken: Callable[[], None] | None = None
    ) -> None:
        """`end_wait` ends what the serving thread waits in by `wait_in`, also if that has yet to begin. `when_woken` is
        for an owner that never waits here: the first wake-up since `execute` calls it."""
        self._commands: deque[_Command[Any]] = deque()
        self._end_wait = end_wait
        self._event = threading.Event()
        self._woken = False
        self._ends = when_woken
        """Ends the present wait."""
        self._refusal: Callable[[], Exception] | None = None

    # Any thread ---------------------------------------------------------------------------------------------------

    def run(self, command: Callable[[], _T]) -> Future[_T]:
        """Executes `command` in the serving thread."""
        future: Future[_T] = Future()
        self._commands.append(_Command(future, command))
        self.wake()
        if self._refusal is not None:
            self._refuse(self._refusal)
        return future

    def wake(self) -> None:
        """Let the serving thread look at everything again: end its wait, or the next one."""
        if self._woken:
            return
        self._woken = True
        ends = self._ends  # looked at after `_woken` is set; the serving thread does both the other way round
        if ends is not None:
            ends()

    # The serving thread -------------------------------------------------------------------------------------------

    @property
    def is_woken(self) -> bool:
        """A wake-up came since `execute` began."""
        return self._woken

    def execute(self) -> bool:
        """Execute what waits; whether there was anything."""
        self._woken = False
        found = bool(self._commands)
        while self._commands:
            self._commands.popleft().execute()
        return found

    def wait(self, seconds: float) -> None:
        """Waits until a wake-up."""
        self._event.clear()
        self._wait(self._event.set, self._event.wait, min(seconds, threading.TIMEOUT_MAX))

    def wait_in(self, wait: Callable[[float], _R], seconds: float) -> _R:
        """Returns the result of `wait`, which a wake-up ends; after a wake-up it gets 0 instead of `seconds`."""
        return self._wait(self._end_wait, wait, seconds)

    def _wait(self, ends: Callable[[], None], wait: Callable[[float], _R], seconds: float) -> _R:
        self._ends = ends
        try:
            return wait(0.0 if self._woken else seconds)
        finally:
            self._ends = None

    def close(self, reason: Callable[[], Exception]) -> None:
        """Ends the service: every waiting command, and every later one, fails with a new `reason`."""
        self._refusal = reason
        self._refuse(reason)

    def _refuse(self, reason: Callable[[], Exception]) -> None:
        while self._commands:
            try:
                command = self._commands.popleft()
            except IndexError:  # another thread was quicker
                return
            command.refuse(reason())


def outcome(future: Future[_T], deadline: Deadline, what: str) -> _T:
    """Wait for it.

    Raises:
        DeadlineExceeded: it did not come in time, and will not be executed if it was not begun.
    """
    try:
        return future.result(deadline.remaining_s())
    except FutureTimeoutError as late:
        future.cancel()
        raise errors.DeadlineExceeded(f"time ran out while waiting for {what}") from late


def settle(answer: Future[None], failure: BaseException | None) -> None:
    """Completes or fails the answer; does nothing for a cancelled one."""
    if not answer.set_running_or_notify_cancel():
        return
    if failure is None:
        answer.set_result(None)
    else:
        answer.set_exception(failure)
