"""The bridge carries calls from an event loop to the threads of the blocking classes, and their results back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from pulsar_on_kafka import exceptions
from pulsar_on_kafka.exceptions import Result


class PulsarException(Exception):
    """Every failure of the asyncio classes. Source: `pulsar.asyncio.PulsarException`, which is no relative of
    `pulsar.PulsarException` either."""

    def __init__(self, result: Result, msg: str | None = None) -> None:
        super().__init__(result, msg)
        self._result = result
        self._msg = msg

    def error(self) -> Result:
        """The official result code."""
        return self._result

    def __str__(self) -> str:
        code = f"{self._result.value} {self._result.name}"
        return f"{code}: {self._msg}" if self._msg else code


def as_asyncio(error: exceptions.PulsarException) -> PulsarException:
    return PulsarException(error.result, str(error))


@contextmanager
def asyncio_errors() -> Iterator[None]:
    """Translate exceptions of the blocking classes to those of this module; `ValueError` and `TypeError` stay."""
    try:
        yield
    except exceptions.PulsarException as error:
        raise as_asyncio(error) from error


T = TypeVar("T")

Complete = Callable[[Result, Any], None]
"""Called on the loop with what a callback of the blocking classes was called with."""

_MAX_BLOCKING_CALLS: Final = 16


class LoopCompletions:
    """Completions for one loop. However many come before the loop gets to them, they wake it once: a wake-up is a
    system call, and with thousands of messages a second it would cost more than the messages.

    Memory: one entry per call that the application has under way.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._done: deque[tuple[Complete, Result, Any]] = deque()
        self._woken = False

    def put(self, complete: Complete, result: Result, value: Any) -> None:
        """Calls `complete(result, value)` on the loop. From any thread; does nothing once the loop is closed."""
        self._done.append((complete, result, value))
        if self._woken:
            return
        self._woken = True
        try:
            self.loop.call_soon_threadsafe(self._drain)
        except RuntimeError:  # closed: no task waits any more
            self._done.clear()

    def _drain(self) -> None:
        self._woken = False  # first: what is appended after the last look wakes the loop again
        done = self._done
        for _ in range(len(done)):
            complete, result, value = done.popleft()
            try:
                complete(result, value)
            except Exception as error:  # the application's, as in asyncio itself; the other completions go on
                self.loop.call_exception_handler({"message": "a completion failed", "exception": error})
        if done and not self._woken:
            self._woken = True
            self.loop.call_soon(self._drain)


class Bridge:
    """The bridge that the asyncio classes of one Client share: the loop's completions, and threads for calls that
    block.

    At most 16 blocking calls (creating, closing, seeking, flushing ...) run at a time; the next ones wait.
    """

    def __init__(self) -> None:
        self._completions: LoopCompletions | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._in_order: ThreadPoolExecutor | None = None

    def completions(self) -> LoopCompletions:
        """The completions of the running loop. Another loop than at the last call gets its own."""
        loop = asyncio.get_running_loop()
        found = self._completions
        if found is None or found.loop is not loop:
            found = self._completions = LoopCompletions(loop)
        return found

    async def call(self, function: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
        """Run `function` in a thread. Cancelling the await does not stop a call that has begun: `undo` then gets what
        it made.

        Raises:
            PulsarException: as `function` failed.
        """
        return await self.outcome(self.start(function), undo)

    async def outcome(self, running: Future[T], undo: Callable[[T], object] | None = None) -> T:
        """The result of a future from `start`. Cancelling and failures: see `call`."""
        with asyncio_errors():
            try:
                return await asyncio.shield(asyncio.wrap_future(running))
            except asyncio.CancelledError:
                if not running.cancel() and undo is not None:
                    _when_made(running, undo)
                raise

    def start_in_order(self, function: Callable[[], None]) -> None:
        """Run `function`, which raises nothing, in a thread after those that this was called with before."""
        if self._in_order is None:
            self._in_order = ThreadPoolExecutor(1, thread_name_prefix="pok-asyncio-in-order")
        self._in_order.submit(function)

    def start(self, function: Callable[[], T]) -> Future[T]:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_MAX_BLOCKING_CALLS, thread_name_prefix="pok-asyncio")
        return self._threads.submit(function)

    def close(self) -> None:
        """End the threads after what they are at."""
        pools = (self._threads, self._in_order)
        self._threads = self._in_order = None
        for threads in pools:
            if threads is not None:
                threads.shutdown(wait=False)


def _when_made(running: Future[T], undo: Callable[[T], object]) -> None:
    def made(future: Future[T]) -> None:
        if future.exception() is None:
            undo(future.result())

    running.add_done_callback(made)


class FairSemaphore:
    """Room for `limit` messages, granted in the order of the requests. On one loop.

    `asyncio.Semaphore` does the same; a thousand releases in one turn of the loop take it half a million steps.
    """

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        if self._free and not self._waiting:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # its turn had come
                self.give_back()
            raise

    def give_back(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


def settle(future: asyncio.Future[Any], result: Result, value: Any) -> None:
    """Give `future` its outcome, unless its await was cancelled. On the loop only."""
    if future.done():
        return
    if result is Result.Ok:
        future.set_result(value)
    else:
        future.set_exception(PulsarException(result))
