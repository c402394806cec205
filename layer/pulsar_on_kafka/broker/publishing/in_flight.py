"""The messages of one producer that are under way, and the reports to their senders."""

from __future__ import annotations

import itertools
import logging
import threading
from abc import abstractmethod
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.reentry import check_may_wait, in_callback, waiting_for_room
from pulsar_on_kafka.exceptions import PulsarException, Result
from pulsar_on_kafka.kafka.producer import KafkaProducer
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId, PartitionOrigin, StoredMessageId

SendCallback = Callable[[Result, Any], object]
"""Takes a message's result and its id: Any, because programs name the class `MessageId`."""
Failed = Callable[[Any, SendCallback | None], None]

_log = logging.getLogger(__name__)

NO_ID: Final = NativeMessageId(-1, -1, -1, -1)
"""The id in the callback of a failed send, as officially. It also stands for a message that a retry found stored
already: librdkafka then knows no offset, as Pulsar's broker knows none for a duplicate."""
_OK: Final = Result.Ok
_new: Final = StoredMessageId.__new__
_LOOK_S: Final = 0.05
_CHECK_S: Final = 0.5
_NO_WAITER: Final = 2**62
_UNSENT: Final = -(2**62)


class PartitionOut(PartitionOrigin):
    """One partition as one producer writes it: each has a count of its own, as officially."""

    __slots__ = ("last_sequence_id", "next_of_batch", "next_sequence_id")

    def __init__(self, layout: LedgerLayout, partition: int, topic: str, last_sequence_id: int) -> None:
        super().__init__(layout, partition, topic)
        self.last_sequence_id = last_sequence_id
        """The sequence id of the last stored message; the initial one before the first."""
        self.next_sequence_id: Callable[[], int] = itertools.count(last_sequence_id + 1).__next__
        self.next_of_batch = last_sequence_id + 1
        """Instead of `next_sequence_id` where messages are numbered under a lock."""


class OwnCallback:
    """A callback of this package, not of a program: it gets the failure of a message."""

    waited_for = False
    """Whether a caller waits for the reply: a refusal is raised there."""
    prompt = False
    """Whether it returns at once and calls no program, so that it may be called inside of librdkafka's `poll`."""
    of_message = True
    """Otherwise it is of one of the records of a message."""
    highest_sequence_id: int | None = None
    """The last sequence id of a record that holds several messages."""

    # Not an ABC: every report looks whether its callback is one of these, which takes Python's ABCs ten times as long.
    @abstractmethod
    def __call__(self, result: Result, message_id: NativeMessageId) -> None: ...

    @abstractmethod
    def fail(self, failure: PulsarException) -> None:
        """Reports the failure of the message, in place of a plain result."""


class SendResult(OwnCallback):
    """The callback of a synchronous send."""

    waited_for = True

    def __init__(self) -> None:
        self.settled = threading.Event()
        self.message_id: NativeMessageId | None = None
        self.error: PulsarException | None = None

    def __call__(self, result: Result, message_id: NativeMessageId) -> None:
        self.message_id = message_id
        self.settled.set()

    def fail(self, failure: PulsarException) -> None:
        self.error = failure
        self(failure.result, NO_ID)

    def answer(self) -> NativeMessageId:
        """The message's id, as soon as it is settled; raises what it failed of.

        Raises:
            Refused: see `check_may_wait`.
        """
        while not self.settled.wait(_CHECK_S):
            check_may_wait()
        if self.error is not None:
            raise self.error
        assert self.message_id is not None  # noqa: S101 - an answer is an id or an error
        return self.message_id


def is_waited_for(callback: SendCallback | None) -> bool:
    """Whether a refusal is raised to the sender: the sender waits, or has no other way to receive it."""
    return callback is None or (isinstance(callback, OwnCallback) and callback.waited_for)


def is_prompt(callback: SendCallback | None) -> bool:
    """Whether the callback may run inside of librdkafka's `poll`: None, a waiting sender's, or a prompt one."""
    return callback is None or (isinstance(callback, OwnCallback) and (callback.waited_for or callback.prompt))


def report_refusal(callback: SendCallback | None, refusal: PulsarException) -> None:
    """Refuses a message: raises the refusal or passes it to the callback."""
    if callback is None or is_waited_for(callback):
        raise refusal
    callback(refusal.result, NO_ID)


def fail(callback: SendCallback | None, failure: PulsarException) -> None:
    """Passes the failure of a message under way to the callback."""
    if isinstance(callback, OwnCallback):
        callback.fail(failure)
    elif callback is not None:
        callback(failure.result, NO_ID)


class Ticket:
    """One message under way, called with its delivery report.

    Tickets are used again: a hundred thousand fresh objects in flight would keep the garbage collector busier than all
    the rest of a send.
    """

    __slots__ = (
        "_message_id",
        "call_back",
        "callback",
        "error",
        "in_flight",
        "origin",
        "report",
        "reported",
        "sequence",
    )

    callback: SendCallback | None
    origin: PartitionOut
    sequence: int
    error: Any
    """The error of a report whose callback has not been called."""
    _message_id: NativeMessageId

    def __init__(self, in_flight: SendsInFlight) -> None:
        self.in_flight = in_flight
        self.sequence = _UNSENT
        self.reported = False
        """Kafka has answered; the callback has not returned."""
        self.report: Callable[[Any, Any], None] = self.__call__
        """The function that librdkafka calls: a bound method, made once, is called faster than an object."""
        self.call_back = self._call_back

    def __call__(self, error: Any, record: Any) -> None:
        # Delivery reports come one at a time (KafkaProducer), so what is counted here has one writer.
        in_flight = self.in_flight
        callback = self.callback
        if error is None:
            origin = self.origin
            origin.last_sequence_id = self.sequence
            if callback is not None:
                offset = record.offset()
                if offset is None:
                    self._message_id = NO_ID
                else:
                    stored = _new(StoredMessageId)  # its constructor would be one more Python call per message
                    stored._origin = origin
                    stored._offset = offset
                    self._message_id = stored
        if callback is None or (isinstance(callback, OwnCallback) and is_prompt(callback)):  # a call costs more
            self.error = error
            if callback is not None or error is not None:
                self._answer()
            self.sequence = _UNSENT
            in_flight.free.append(self)
            in_flight.settled += 1
            if in_flight.settled + in_flight.called_back + in_flight.settled_aside >= in_flight.wake_at:
                in_flight.wake_waiting()
            return
        self.error = error
        self.reported = True
        in_flight.reported += 1
        in_flight.call_later(self.call_back)

    def _call_back(self) -> None:
        """Call the program's callback, outside of `poll`. One call at a time (KafkaProducer)."""
        in_flight = self.in_flight
        callback, error = self.callback, self.error
        self.callback = None
        try:
            if error is None and callback is not None:
                callback(_OK, self._message_id)  # as `_answer`, of which the call costs more
            else:
                self.error = None
                in_flight.failed(error, callback)
        except Exception:  # the application's
            _log.exception("producer=%s a send callback failed", self.origin.topic)
        finally:
            self.reported = False
            self.sequence = _UNSENT
            in_flight.free.append(self)
            in_flight.called_back += 1
            if in_flight.settled + in_flight.called_back + in_flight.settled_aside >= in_flight.wake_at:
                in_flight.wake_waiting()

    def _answer(self) -> None:
        callback, error = self.callback, self.error
        self.callback = None
        try:
            if error is not None:
                self.error = None
                self.in_flight.failed(error, callback)
            elif callback is not None:
                callback(_OK, self._message_id)
        except Exception:  # the application's
            _log.exception("producer=%s a send callback failed", self.origin.topic)


class _Waiter:
    """A thread that waits until so many messages were settled; `woken` is released then."""

    __slots__ = ("target", "woken")

    def __init__(self, target: int) -> None:
        self.target = target
        self.woken = threading.Lock()
        self.woken.acquire()


class SendsInFlight:
    """A pool of at most `limit` tickets, with waits for their return. Thread-safe.

    A sender takes a ticket with `take` (the pop of a list: IndexError, then `one_more`), fills it in and hands it to
    Kafka as the delivery callback; the report puts it back, when the sender's callback has returned. A callback may
    take up to `limit` more, as tickets that wait for their callbacks do not return meanwhile.

    No lock is held here where a signal handler may interrupt: see `ReentryGuard.lock`.
    """

    def __init__(self, limit: int, kafka: KafkaProducer, failed: Failed) -> None:
        self.failed = failed
        self.free: list[Ticket] = []
        self.take: Callable[[], Ticket] = self.free.pop
        self.settled = 0
        """The number of messages with a report: one thread at a time counts."""
        self.settled_aside = 0
        """Elsewhere."""
        self.reported = 0
        """Reports that left a callback to be called, and..."""
        self.called_back = 0
        """... those of which it was."""
        self.wake_at = _NO_WAITER
        self.kafka = kafka
        """Serves the reports of all these messages. Another Kafka producer needs a `SendsInFlight` of its own: what
        one thread counts at a time, two might count wrong."""
        self.call_later = kafka.call_later
        self._limit = limit
        self._made: list[Ticket] = []
        self._number: Callable[[], int] = itertools.count().__next__
        self._counting = threading.Lock()
        self._waiters: list[_Waiter] = []

    def answered_messages(self) -> int:
        """Messages whose callbacks have returned."""
        return self.settled + self.called_back + self.settled_aside

    def settle_aside(self, count: int) -> None:
        with self._counting:  # without a call inside
            self.settled_aside += count
        if self.answered_messages() >= self.wake_at:
            self.wake_waiting()

    def one_more(self) -> Ticket | None:
        """A ticket when none is free; None when `limit` messages are under way."""
        if self._number() < self._limit or self._callback_has_room():
            ticket = Ticket(self)
            self._made.append(ticket)
            return ticket
        try:
            return self.take()  # one came back meanwhile
        except IndexError:
            return None

    def _callback_has_room(self) -> bool:
        waiting = self.reported - self.called_back
        return (
            waiting > 0
            and len(self._made) - len(self.free) - waiting < self._limit
            and len(self._made) < 2 * self._limit
            and self.kafka.callbacks.is_own_thread()
        )

    def give_back(self, ticket: Ticket) -> None:
        """Undo a `take`: Kafka did not accept the message."""
        ticket.sequence = _UNSENT
        self.free.append(ticket)
        self.settle_aside(1)

    def check_may_wait(self) -> None:
        """Raises Refused: no answer would come while the calling thread waits for one."""
        self.kafka.check_may_wait()

    def wait_for_room(self) -> bool:
        """Return when some messages were answered, or after 50 ms; False at once in a callback, without which no room
        comes. Raises Refused: see `check_may_wait`."""
        with waiting_for_room(self.kafka.callbacks) as may_wait:
            if may_wait:
                self.check_may_wait()
                # A tenth of the queue at once, or half of a short one: a wait costs more than a message.
                target = self.answered_messages() + max(1, min(self._limit // 2, 1000))
                self._wait_settled(target, Deadline.after(_LOOK_S))
            return may_wait

    def has_callbacks_waiting(self) -> bool:
        """Messages were answered, and their callbacks have not returned."""
        return self.reported > self.called_back

    def wait_for_callbacks(self, deadline: Deadline) -> None:
        """Return when the callbacks of messages that are answered have returned; in a callback at once."""
        if self.has_callbacks_waiting() and not in_callback():
            self.kafka.wait_for_calls(deadline)

    def under_way(self) -> int:
        """Tickets that are taken just now."""
        return len(self._made) - len(self.free)

    def wait_for_all(self, deadline: Deadline) -> int:
        """Wait for every message sent before this call; how many of them the deadline left unanswered."""
        return self.wait_for(self.sent(), deadline)

    def sent(self) -> Collection[Any]:
        """The messages under way now; for `wait_for`."""
        free = set(self.free)
        return [(ticket, ticket.sequence) for ticket in list(self._made) if ticket not in free and is_sent(ticket)]

    def unanswered(self, sent: Collection[Any]) -> int:
        """The number of these that are still under way. In a callback: without those that only wait for their own
        callback."""
        free, calling = set(self.free), in_callback()
        return sum(
            ticket not in free and ticket.sequence == sequence and not (calling and ticket.reported)
            for ticket, sequence in sent
        )

    def wait_for(self, sent: Collection[Any], deadline: Deadline) -> int:
        """Wait for just these, whatever is answered before them; how many the deadline left unanswered. Raises Refused:
        see `check_may_wait`."""
        while True:
            settled = self.answered_messages()  # first: answers from here on may only make the wait below too short
            left = self.unanswered(sent)
            if left == 0 or deadline.passed():
                return left
            self.check_may_wait()
            # In a callback messages are answered and not settled; those of batches may move to another Kafka producer.
            self._wait_settled(settled + left, deadline.at_most(_LOOK_S if in_callback() else _CHECK_S))

    def wake_waiting(self) -> None:
        settled = self.answered_messages()
        for waiter in list(self._waiters):
            if waiter.target <= settled and waiter.woken.locked():
                with suppress(RuntimeError):  # another thread has released it
                    waiter.woken.release()
        targets = (each.target for each in list(self._waiters) if each.target > settled)
        self.wake_at = min(targets, default=_NO_WAITER)

    def _wait_settled(self, target: int, deadline: Deadline) -> None:
        """Wait until `target` messages were answered; serves the answers itself unless another thread is at it."""
        self.kafka.wake()
        waiter = _Waiter(target)
        self._waiters.append(waiter)
        self.wake_at = min(self.wake_at, target)
        try:
            while self.answered_messages() < target and not deadline.passed():
                within_s = min(_LOOK_S, deadline.remaining_s())
                if not self.kafka.poll_inline(within_s) and self.answered_messages() < target:
                    waiter.woken.acquire(timeout=within_s)
        finally:
            self._waiters.remove(waiter)


def is_sent(ticket: Ticket) -> bool:
    """Whether the ticket has, or at the time of the look had, a message; a ticket that was taken just now has none."""
    return ticket.sequence != _UNSENT
