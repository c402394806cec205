"""Consumption of one kombu queue: its consumers of the SDK, and how they wake kombu's loop."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from pulsar_on_kafka.client.consumer.consumer import Consumer
from pulsar_on_kafka.client.values.message import Message
from pulsar_on_kafka.exceptions import NotConnected, PulsarException, Result, Timeout

Wake = Callable[[], None]
Accepts = Callable[[Message[bytes]], bool]


class WakeUp:
    """A pipe that becomes readable when `wake` is called. Any thread may call it."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)
        self._pending = False
        self._closing = threading.Lock()
        self._closed = False

    def fileno(self) -> int:
        """The end that becomes readable."""
        return self._reading

    def wake(self) -> None:
        """Makes the pipe readable; does nothing when it is so, or closed."""
        if self._pending:
            return
        with self._closing:
            if not self._closed:
                self._pending = True
                with suppress(BlockingIOError):
                    os.write(self._writing, b"\0")

    def clear(self) -> None:
        """Makes the pipe unreadable. Look for messages after this."""
        with suppress(BlockingIOError):
            os.read(self._reading, 64)
        self._pending = False

    def close(self) -> None:
        """Closes both ends; a second call does nothing."""
        with self._closing:
            if not self._closed:
                self._closed = True
                os.close(self._reading)
                os.close(self._writing)


class Source:
    """One consumer of the SDK. `take` never waits: while no message is there, an asynchronous receive wakes the loop.

    Memory: one message besides the consumer's inbox.
    """

    def __init__(self, consumer: Consumer[bytes], wake: Wake, accepts: Accepts | None = None) -> None:
        self.consumer: Final = consumer
        self._wake = wake
        self._accepts = accepts
        self._ready: deque[Message[bytes]] = deque()
        self._armed = False
        self._failure: Result | None = None
        self._lock = threading.Lock()
        self._unsettled = 0
        self._cancelled = False
        self._closed = False

    def take(self) -> Message[bytes] | None:
        """The next message; None when there is none now.

        Raises:
            NotConnected: no message will come any more.
        """
        while (message := self._next()) is not None:
            if self._accepts is None or self._accepts(message):
                with self._lock:
                    self._unsettled += 1
                return message
            self.consumer.acknowledge(message)
        return None

    def _next(self) -> Message[bytes] | None:
        if self._cancelled:
            return None
        if self._ready:
            return self._ready.popleft()
        if self._failure is not None:
            raise NotConnected(f"{self.consumer.topic()}: the consumer failed with {self._failure}")
        if self._armed:
            return None
        with suppress(Timeout):
            return self.consumer.receive(0)
        self._armed = True
        self.consumer.receive_async(self._received)
        return None

    def _received(self, result: Result, message: Message[bytes] | None) -> None:
        """Called by a thread of the SDK."""
        with self._lock:
            cancelled = self._cancelled
            if message is None:
                self._failure = result
            elif not cancelled:
                self._ready.append(message)
            self._armed = False
        if cancelled and message is not None:
            self._requeue(message)
        if not cancelled:
            self._wake()

    def wait(self, timeout_ms: int) -> Message[bytes] | None:
        """The next message, waited for; None when none came. For a consumer without an inbox; `take` is not used then.

        Raises: as `take`, the errors of `Consumer.receive`.
        """
        try:
            message = self.consumer.receive(timeout_ms)
        except Timeout:
            return None
        with self._lock:
            self._unsettled += 1
        return message

    def acknowledge(self, message: Message[bytes]) -> None:
        """Acknowledges a message that was taken."""
        try:
            self.consumer.acknowledge(message)
        finally:
            self._settled()

    def requeue(self, message: Message[bytes]) -> None:
        """Requests redelivery of a message that was taken."""
        try:
            self._requeue(message)
        finally:
            self._settled()

    def _requeue(self, message: Message[bytes]) -> None:
        with suppress(PulsarException):  # closed: it is redelivered anyway
            self.consumer.negative_acknowledge(message)

    def _settled(self) -> None:
        with self._lock:
            self._unsettled -= 1
            last = self._cancelled and self._unsettled == 0
        if last:
            self.close()

    def cancel(self) -> None:
        """Takes no more messages: those that were not taken go to other consumers at once. Messages in progress can
        still be settled; the consumer closes with the last of them."""
        with self._lock:
            self._cancelled = True
            untaken = list(self._ready)
            self._ready.clear()
            idle = self._unsettled == 0
        if idle:
            self.close()
            return
        self.consumer.begin_draining()
        for message in untaken:
            self._requeue(message)

    def is_closed(self) -> bool:
        """Whether the consumer was closed."""
        return self._closed

    def close(self) -> None:
        """Closes the consumer; unsettled messages go to other consumers. A second call does nothing."""
        with self._lock:
            closing, self._closed, self._cancelled = not self._closed, True, True
        if closing:
            self.consumer.leave()


class QueueSources:
    """All consumers of one queue, the most urgent first."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources: Final = tuple(sources)

    def take(self) -> tuple[Source, Message[bytes]] | None:
        """The next message with its source; None when there is none now. Raises as `Source.take`."""
        for source in self.sources:
            message = source.take()
            if message is not None:
                return source, message
        return None

    def cancel(self) -> None:
        """Cancels all of them (`Source.cancel`)."""
        for source in self.sources:
            source.cancel()

    def is_closed(self) -> bool:
        """Whether all of them are closed."""
        return all(source.is_closed() for source in self.sources)

    def close(self) -> None:
        """Closes all of them."""
        for source in self.sources:
            source.close()
