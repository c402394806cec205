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
    """Any thread runs commands and wakes; the serving thread executes and waits.

    Memory: one entry for each caller that waits for an outcome.
    """

    def __init__(self) -> None:
        self._commands: deque[_Command[Any]] = deque()
        self._wake = threading.Event()
        self._waiting = False
        self._refusal: Callable[[], Exception] | None = None

    # Any thread ---------------------------------------------------------------------------------------------------

    def run(self, command: Callable[[], _T]) -> Future[_T]:
        """Executes `command` in the serving thread."""
        future: Future[_T] = Future()
        self._commands.append(_Command(future, command))
        self._wake.set()
        if self._refusal is not None:
            self._refuse(self._refusal)
        return future

    def wake(self) -> None:
        """End the serving thread's wait, if it waits."""
        if self._waiting:
            self._wake.set()

    # The serving thread -------------------------------------------------------------------------------------------

    def execute(self) -> bool:
        """Execute what waits; whether there was anything."""
        found = bool(self._commands)
        while self._commands:
            self._commands.popleft().execute()
        return found

    def prepare_to_wait(self) -> None:
        """Prepares a wait: from now on `wake` ends it, even before it begins."""
        self._waiting = True

    def wait(self, seconds: float) -> None:
        """Waits until a wake-up; not at all while a command waits."""
        if not self._commands:
            self._wake.wait(seconds)

    def end_wait(self) -> None:
        self._wake.clear()
        self._waiting = False

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
