"""The client of a cluster by Kafka's protocol: one event loop in a thread, for all threads of a process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from typing import Any, Final, TypeVar

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Closed, DeadlineExceeded
from pulsar_on_kafka.base.forks import OfOneProcess
from pulsar_on_kafka.base.worker import aside, check_event_loops
from pulsar_on_kafka.kafka.wire.brokers import KafkaBrokers, addresses
from pulsar_on_kafka.kafka.wire.login import KafkaLogin

_T = TypeVar("_T")

_CONNECT_TIMEOUT_MS: Final = "socket.connection.setup.timeout.ms"
_DEFAULT_CONNECT_TIMEOUT_MS: Final = 30_000
_TURNS_TO_CLOSE: Final = 3
"""Turns of the loop in which asyncio closes aborted sockets, with TLS too."""


class WireClient(OfOneProcess):
    """One for each cluster and login of a process. Its thread begins with the first call. Thread-safe."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Takes librdkafka's options: addresses, client id and security count."""
        self._options = options
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._brokers: KafkaBrokers | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    @property
    def client_id(self) -> str:
        """The client id of requests that are about no member."""
        return str(self._options["client.id"])

    def started(self) -> tuple[asyncio.AbstractEventLoop, KafkaBrokers]:
        """The loop, and what is used in its thread.

        Raises:
            NotSupportedYet: an option about security has no counterpart outside of librdkafka, or gevent has replaced
                what event loops wait with.
            Closed: this client is closed.
        """
        with self._lock:
            return self._started()

    def call(self, action: Callable[[KafkaBrokers], Coroutine[Any, Any, _T]], deadline: Deadline, what: str) -> _T:
        """The result of a coroutine that runs in the loop. `what` describes it in messages. Not for the loop itself.

        Raises:
            NotSupportedYet: see `started`.
            DeadlineExceeded: the deadline passed; the coroutine is cancelled.
            Closed: this client is closed.
            Exception: an error of the coroutine.
        """
        with self._lock:
            loop, brokers = self._started()
            coroutine = action(brokers)
            try:
                running = asyncio.run_coroutine_threadsafe(coroutine, loop)
            except RuntimeError:  # the loop ended by a failure that its thread has logged
                coroutine.close()
                raise Closed(f"{what}: the client's thread has ended") from None
        try:
            return running.result(deadline.remaining_s())
        except CancelledError:
            raise Closed(f"{what}: the client was closed") from None
        except FutureTimeout:
            if running.done():  # a time-out of the coroutine's own
                raise
            running.cancel()
            raise DeadlineExceeded(f"{what}: no response in time") from None

    def close(self, deadline: Deadline) -> None:
        """Closes all connections, and ends the thread. A second call does nothing."""
        with self._lock:
            self._is_closed = True
            loop, thread, self._loop = self._loop, self._thread, None
        if loop is not None and thread is not None:
            with suppress(RuntimeError):  # it ended by a failure
                loop.call_soon_threadsafe(loop.stop)
            if thread is not threading.current_thread():
                thread.join(deadline.remaining_s())

    def _started(self) -> tuple[asyncio.AbstractEventLoop, KafkaBrokers]:
        if self._is_closed:
            raise Closed("the client is closed")
        if self._loop is None or self._brokers is None:
            check_event_loops()
            login = KafkaLogin(self._options)
            connect_ms = int(self._options.get(_CONNECT_TIMEOUT_MS, _DEFAULT_CONNECT_TIMEOUT_MS))
            where = addresses(str(self._options["bootstrap.servers"]))
            self._brokers = KafkaBrokers(where, login, self.client_id, connect_ms / 1000)
            self._loop = loop = asyncio.new_event_loop()
            self._thread = aside("pok-kafka", lambda: self._run(loop))
        return self._loop, self._brokers

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            loop.run_until_complete(self._end())
        finally:
            loop.close()

    async def _end(self) -> None:
        if self._brokers is not None:
            self._brokers.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for _ in range(_TURNS_TO_CLOSE):
            await asyncio.sleep(0)
