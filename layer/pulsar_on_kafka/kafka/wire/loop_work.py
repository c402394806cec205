"""Work in an event loop: calls that other threads leave for it, and tasks that run until they end or are cancelled."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from pulsar_on_kafka.base.errors import Closed

_log: Final = logging.getLogger(__name__)
_T = TypeVar("_T")


class LoopCalls:
    """Calls that any thread leaves for the loop, which makes those of one turn together. Thread-safe.

    Memory: the calls that the loop has not made yet.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, turn: Callable[[], None], what: str) -> None:
        """The loop calls `turn` after wake-ups; it makes the calls by `make`. `what` names the owner in messages."""
        self._loop = loop
        self._turn = turn
        self._what = what
        self._calls: deque[Callable[[], object]] = deque()
        self._is_woken = False
        self.is_closed = False

    def __len__(self) -> int:
        return len(self._calls)

    def leave(self, call: Callable[[], object]) -> None:
        """Leaves a call for the next turn, whatever causes that."""
        self._calls.append(call)

    def run(self, call: Callable[[], object]) -> None:
        """Leaves a call, and wakes the loop for it. Raises Closed."""
        if self.is_closed:
            raise Closed(f"{self._what} of this process are closed")
        self._calls.append(call)
        if not self._is_woken:  # two threads at a time wake the loop twice, which does no harm
            self._is_woken = True
            try:
                self._loop.call_soon_threadsafe(self._turn)
            except RuntimeError as ended:  # asyncio's, for a loop that is closed
                self._is_woken = False
                raise Closed("the client of this cluster is closed") from ended

    # The loop -----------------------------------------------------------------------------------------------------

    def turn_soon(self) -> None:
        """Has a turn follow what the loop does now."""
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._turn)

    def make(self, limit: int | None = None) -> None:
        """Makes the calls that were left so far, or the first `limit` of them. One that fails ends no other."""
        self._is_woken = False  # before the calls are read: a later one wakes the loop again
        count = len(self._calls)
        for _ in range(count if limit is None else min(count, limit)):
            try:
                self._calls.popleft()()
            except Exception:
                _log.exception("a call of %s failed", self._what)

    def drop(self) -> None:
        """Makes none of the calls that were left so far."""
        self._calls.clear()


class LoopTasks:
    """Tasks of one owner. asyncio itself keeps no reference to a task."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Begins a task; for the loop's thread."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel(self) -> None:
        """Cancels all tasks that have not ended."""
        for task in [*self._tasks]:
            task.cancel()
