"""An inbox passes the messages of a consumer to the application; `ConsumerBatchReceivePolicy` defines a complete
batch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Closed, DeadlineExceeded
from pulsar_on_kafka.broker.publishing.arguments import of_type
from pulsar_on_kafka.client.values.message import Message, ReceivedMessage


class InboxQueue(Protocol):
    def popleft(self) -> ReceivedMessage: ...
    def appendleft(self, message: ReceivedMessage, /) -> None: ...


class Inbox(Protocol):
    """The application's side of an `Endpoint` that makes ReceivedMessages, or of several of them."""

    name: str
    capacity: int
    starved: bool
    on_available: Callable[[], None] | None
    wake_member: Callable[[], None]

    @property
    def queue(self) -> InboxQueue: ...
    @property
    def failure(self) -> Exception | None: ...
    def has_room_again(self) -> bool: ...
    def take_now(self) -> ReceivedMessage | None: ...
    def take(self, deadline: Deadline) -> ReceivedMessage: ...
    def expect(self, more: int) -> None: ...
    def close(self) -> None: ...


_Owner = TypeVar("_Owner")
_UNLIMITED: Final = sys.maxsize


def call_listener(inbox: Inbox, listener: Callable[[_Owner, Message], None], owner: _Owner) -> bool:
    """Calls a listener with the next message; False when there is none."""
    message = inbox.take_now()
    if message is None:
        return False
    if inbox.capacity:
        listener(owner, message)
        return True
    inbox.expect(-1)  # with a queue of size 0 it takes one message at a time
    try:
        listener(owner, message)
    finally:
        inbox.expect(1)
    return True


class BatchReceivePolicy:
    """The three limits as they were given. Source: `pulsar.BatchReceivePolicy` (of the C extension)."""

    def __init__(self, max_num_messages: int, max_num_bytes: int, timeout_ms: int) -> None:
        self._limits = (max_num_messages, max_num_bytes, timeout_ms)

    def getMaxNumMessages(self) -> int:  # noqa: N802 - the official name
        """The most messages of a batch."""
        return self._limits[0]

    def getMaxNumBytes(self) -> int:  # noqa: N802 - the official name
        """The most bytes of a batch."""
        return self._limits[1]

    def getTimeoutMs(self) -> int:  # noqa: N802 - the official name
        """The longest time for a batch, in milliseconds."""
        return self._limits[2]


class ConsumerBatchReceivePolicy:
    """A batch is complete when any of the limits is reached. Source: `pulsar.ConsumerBatchReceivePolicy`."""

    def __init__(self, max_num_message: int, max_num_bytes: int, timeout_ms: int) -> None:
        """A limit of 0 or less is none.

        Raises:
            TypeError: one of them is no integer.
            ValueError: none of them limits anything.
        """
        for name, limit in (
            ("max_num_message", max_num_message),
            ("max_num_bytes", max_num_bytes),
            ("timeout_ms", timeout_ms),
        ):
            of_type(int, name, limit)
        if max_num_message <= 0 and max_num_bytes <= 0 and timeout_ms <= 0:
            raise ValueError("at least one of max_num_message, max_num_bytes and timeout_ms must be above 0")
        self._most = max_num_message if max_num_message > 0 else _UNLIMITED
        self._max_bytes = max_num_bytes if max_num_bytes > 0 else _UNLIMITED
        self._timeout_ms = timeout_ms
        self._given = BatchReceivePolicy(max_num_message, max_num_bytes, timeout_ms)

    def policy(self) -> BatchReceivePolicy:
        """The policy as the extension's class, as officially."""
        return self._given

    def within(self, queue_size: int) -> ConsumerBatchReceivePolicy:
        """The same for a receiver queue of that size: a batch holds at most as many messages (0: no limit by it)."""
        if queue_size == 0 or self._most <= queue_size or self._most == _UNLIMITED:
            return self
        return ConsumerBatchReceivePolicy(
            queue_size, self._max_bytes if self._max_bytes != _UNLIMITED else -1, self._timeout_ms
        )

    def collect(self, inbox: Inbox, is_draining: Callable[[], bool] = lambda: False) -> list[Message]:
        """The next batch. A message that would make it too large stays in the inbox; a single one is never too large.
        An incomplete batch is the last one of a consumer that drains.

        Raises what `Inbox.take` does, but for the time-out.
        """
        deadline = Deadline.after_ms(self._timeout_ms) if self._timeout_ms > 0 else Deadline.never()
        batch: list[Message] = []
        size = 0
        while len(batch) < self._most and size < self._max_bytes:
            message = inbox.take_now()
            if message is None:
                try:
                    message = inbox.take(deadline)
                except DeadlineExceeded:
                    break
                except Closed:
                    if batch and is_draining():
                        break
                    raise
            size += len(message.data())
            if batch and size > self._max_bytes:
                inbox.queue.appendleft(message)
                break
            batch.append(message)
        return batch


DEFAULT_POLICY: Final = ConsumerBatchReceivePolicy(-1, 10 * 1024 * 1024, 100)
"""The official one: 10 MiB or 100 ms."""
