"""A consumer receives by waiting, by asynchronous receives, in batches, or with a message listener."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import get_ident
from typing import Final, Generic, TypeVar, cast

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import DeadlineExceeded
from pulsar_on_kafka.base.forks import OfOneProcess
from pulsar_on_kafka.broker.publishing.arguments import check_type
from pulsar_on_kafka.broker.publishing.official_errors import as_pulsar, pulsar_errors
from pulsar_on_kafka.client.connection.listener import ListenerTask
from pulsar_on_kafka.client.connection.session import Session
from pulsar_on_kafka.client.receiving.batch_receive import (
    DEFAULT_POLICY,
    ConsumerBatchReceivePolicy,
    Inbox,
    call_listener,
)
from pulsar_on_kafka.client.values.message import Message, ReceivedMessage
from pulsar_on_kafka.exceptions import AlreadyClosed, InvalidConfiguration, Result, Timeout
from pulsar_on_kafka.schema.value_type import V

_C = TypeVar("_C")
"""The consumer that a listener is given."""

ReceiveCallback = Callable[[Result, "Message | None"], None]

_MAX_PENDING_RECEIVES: Final = 10_000


def taken(inbox: Inbox, timeout_millis: int | None, where: Callable[[], str]) -> Message:
    """The next message, waited for. `where` returns the place that the error names.

    Raises:
        Timeout, AlreadyClosed, Interrupted.
    """
    deadline = Deadline.never() if timeout_millis is None else Deadline.after_ms(timeout_millis)
    with pulsar_errors():
        try:
            return inbox.take(deadline)
        except DeadlineExceeded:
            raise Timeout(f"no message on {where()} within {timeout_millis} ms") from None


class Receiving(OfOneProcess, Generic[_C, V]):
    """The receiving half of a consumer. Thread-safe."""

    def __init__(
        self,
        inbox: Inbox,
        session: Session,
        subscription: str,
        batch_policy: ConsumerBatchReceivePolicy | None,
        listener: Callable[[_C, Message[V]], None] | None,
    ) -> None:
        self._inbox: Inbox = inbox
        self._subscription_name = subscription
        self._operation_timeout_s = session.operation_timeout_s
        self._batch_policy = (batch_policy or DEFAULT_POLICY).within(inbox.capacity)
        self._listener = listener
        self._listener_paused = False
        self._receives: deque[ReceiveCallback] = deque()
        self._threads = session.threads
        self._task: ListenerTask | None = None
        self._listener_thread: int | None = None
        """The thread in which the listener runs now."""
        self._draining = False
        self._closed = False

    def subscription_name(self) -> str:
        """The name of the subscription."""
        return self._subscription_name

    def consumer_name(self) -> str:
        """The name of the consumer, given or made up."""
        return self._inbox.name

    def _begin_to_listen(self) -> None:
        """The last thing of a constructor: messages come from now on."""
        if self._listener is not None:
            self._inbox.expect(1)  # with a queue of size 0 it takes one message at a time
            self._start_task(self._listen_once)

    def receive(self, timeout_millis: int | None = None) -> Message[V]:
        """The next message, waited for (`timeout_millis` at most; None: for ever).

        Raises:
            Timeout: none came in time.
            Interrupted: SIGINT while waiting.
            AlreadyClosed: the consumer was closed.
            InvalidConfiguration: a message listener is set.
        """
        if timeout_millis is not None and type(timeout_millis) is not int:
            check_type(int, "timeout_millis", timeout_millis)
        inbox = self._inbox
        try:
            message = inbox.queue.popleft()
        except IndexError:
            message = None
        if message is None:  # not in the handler: its error would be in the traceback of a time-out
            return self._wait(timeout_millis)
        if inbox.starved and inbox.has_room_again():
            inbox.wake_member()
        if self._listener is not None:
            inbox.queue.appendleft(message)
            raise InvalidConfiguration("receive() cannot be used beside a message listener")
        return message

    def _wait(self, timeout_millis: int | None) -> Message:
        self._check_open()
        if self._listener is not None:
            raise InvalidConfiguration("receive() cannot be used beside a message listener")
        return taken(self._inbox, timeout_millis, lambda: f"{self.topic()} (subscription {self._subscription_name})")

    def topic(self) -> str:
        """The topic, as officially."""
        raise NotImplementedError

    def put_back(self, message: Message) -> None:
        """Returns a message that the application did not see: it is the next one. Not in the official client, for
        asyncio."""
        self._inbox.queue.appendleft(cast("ReceivedMessage", message))

    def batch_receive(self) -> list[Message[V]]:
        """Messages up to the number, the size or the time of the batch receive policy.

        Empty when none arrived in that time; without a time-out it waits until the batch is full.

        Raises:
            AlreadyClosed: the consumer was closed.
            InvalidConfiguration: a message listener is set.
        """
        self._check_open()
        if self._listener is not None:
            raise InvalidConfiguration("batch_receive() cannot be used beside a message listener")
        with pulsar_errors():
            return self._batch_policy.collect(self._inbox, lambda: self._draining)

    def receive_async(self, callback: ReceiveCallback) -> None:
        """Calls `callback(result, message)` with the next message, from a listener thread.

        At most 10,000 such calls wait at a time (`InvalidConfiguration` beyond).
        """
        self._check_open()
        if self._draining:
            raise self._is_closed()
        if self._listener is not None:
            raise InvalidConfiguration("receive_async() cannot be used beside a message listener")
        if len(self._receives) >= _MAX_PENDING_RECEIVES:
            raise InvalidConfiguration(f"{_MAX_PENDING_RECEIVES} asynchronous receives are waiting already")
        self._receives.append(callback)
        self._inbox.expect(1)
        if self._task is None:
            self._start_task(self._answer_once)
        assert self._task is not None  # noqa: S101
        self._task.schedule()

    def _start_task(self, step: Callable[[], bool]) -> None:
        self._task = self._threads.task(step)
        self._inbox.on_available = self._task.schedule
        self._task.schedule()

    def _listen_once(self) -> bool:
        if self._listener_paused or self._closed or self._listener is None:
            return False
        self._listener_thread = get_ident()  # before it takes a message: a drain waits for the end of the call
        try:
            return not self._draining and call_listener(self._inbox, self._listener, cast("_C", self))
        finally:
            self._listener_thread = None

    def _listener_is_done(self) -> bool:
        """No other thread runs the listener. The listener may close its consumer itself."""
        return self._listener_thread in (None, get_ident())

    def _answer_once(self) -> bool:
        if not self._receives:
            return False
        if self._closed or self._draining:
            self._receives.popleft()(Result.AlreadyClosed, None)
            return True
        if self._inbox.failure is not None:
            self._receives.popleft()(as_pulsar(self._inbox.failure).result, None)
            return True
        message = self._inbox.take_now()
        if message is None:
            return False
        self._inbox.expect(-1)
        self._receives.popleft()(Result.Ok, message)
        return True

    def pause_message_listener(self) -> None:
        """Stop calling the listener; messages wait in the inbox.

        Raises:
            InvalidConfiguration: the consumer has no listener. So for `resume_message_listener`.
        """
        self._check_listener()
        self._listener_paused = True

    def resume_message_listener(self) -> None:
        """The listener is called again. Raises InvalidConfiguration: there is none."""
        self._check_listener()
        self._listener_paused = False
        if self._task is not None:
            self._task.schedule()

    def _check_listener(self) -> None:
        if self._listener is None:
            raise InvalidConfiguration(f"consumer {self._inbox.name} of {self._subscription_name} has no listener")

    def _wake_waiting(self) -> None:
        """Closed: asynchronous receives are answered."""
        if self._task is not None:
            self._task.schedule()

    def _check_open(self) -> None:
        if self._closed:
            raise self._is_closed()

    def _is_closed(self) -> AlreadyClosed:
        return AlreadyClosed(f"consumer {self._inbox.name} of {self._subscription_name} is closed")

    def _deadline(self) -> Deadline:
        return Deadline.after(self._operation_timeout_s)
