"""The messages of one producer that are under way, and how their senders hear of them."""

from __future__ import annotations

import itertools
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Any, Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.exceptions import PulsarException, Result
from pulsar_on_kafka.kafka.producer import KafkaProducer
from pulsar_on_kafka.mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka.mapping.ids.native_message_id import NativeMessageId, PartitionOrigin, StoredMessageId

SendCallback = Callable[[Result, NativeMessageId], None]
Failed = Callable[[Any, SendCallback | None], None]

_log = logging.getLogger(__name__)

NO_ID: Final = NativeMessageId(-1, -1, -1, -1)
"""What the callback of a failed send gets for an id, as officially; also of a message that a retry found stored
already: librdkafka then knows no offset, as Pulsar's broker knows none for a duplicate."""
_OK: Final = Result.Ok
_new: Final = StoredMessageId.__new__
_LOOK_S: Final = 0.05
_NOBODY_WAITS: Final = 2**62
_UNSENT: Final = -(2**62)


class PartitionOut(PartitionOrigin):
    """One partition as one producer writes it: each has a count of its own, as officially."""

    __slots__ = ("last_sequence_id", "next_sequence_id")

    def __init__(self, layout: LedgerLayout, partition: int, topic: str, last_sequence_id: int) -> None:
        super().__init__(layout, partition, topic)
        self.last_sequence_id = last_sequence_id
        """Of the message that was stored last; the initial one before the first."""
        self.next_sequence_id: Callable[[], int] = itertools.count(last_sequence_id + 1).__next__


class OwnCallback(ABC):
    """A callback of this package, not of a program: it hears what a message failed of."""

    waited_for = False
    """Somebody waits for the answer: a refusal is raised there."""
    of_message = True
    """Otherwise it is of one of the records of a message."""
    highest_sequence_id: int | None = None
    """Of a record that holds several messages, the last one's id."""

    @abstractmethod
    def __call__(self, result: Result, message_id: NativeMessageId) -> None: ...

    @abstractmethod
    def fail(self, failure: PulsarException) -> None:
        """It was called with that instead of its result alone."""


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
        """The message's id, as soon as it is settled; raises what it failed of."""
        self.settled.wait()
        if self.error is not None:
            raise self.error
        assert self.message_id is not None  # noqa: S101 - an answer is an id or an error
        return self.message_id


def is_waited_for(callback: SendCallback | None) -> bool:
    """Whether a refusal is raised to the sender: he waits, or does not care to hear in another way."""
    return callback is None or (isinstance(callback, OwnCallback) and callback.waited_for)


def tell(callback: SendCallback | None, refusal: PulsarException) -> None:
    """Refuse a message: raise that, or have the callback hear of it."""
    if callback is None or is_waited_for(callback):
        raise refusal
    callback(refusal.result, NO_ID)


def fail(callback: SendCallback | None, failure: PulsarException) -> None:
    """Have the callback hear that a message failed which was under way."""
    if isinstance(callback, OwnCallback):
        callback.fail(failure)
    elif callback is not None:
        callback(failure.result, NO_ID)


class Ticket:
    """One message under way, called with its delivery report.

    Tickets are used again: a hundred thousand fresh objects in flight would keep the garbage collector busier than all
    the rest of a send.
    """

    __slots__ = ("callback", "in_flight", "origin", "report", "sequence")

    callback: SendCallback | None
    origin: PartitionOut
    sequence: int

    def __init__(self, in_flight: SendsInFlight) -> None:
        self.in_flight = in_flight
        self.sequence = _UNSENT
        self.report: Callable[[Any, Any], None] = self.__call__
        """What librdkafka is to call: a bound method, made once, is called in less time than an object."""

    def __call__(self, error: Any, record: Any) -> None:
        # Delivery reports come one at a time (KafkaProducer), so what is counted here has one writer.
        in_flight, origin = self.in_flight, self.origin
        callback = self.callback
        self.callback = None
        try:
            if error is not None:
                in_flight.failed(error, callback)
            else:
                origin.last_sequence_id = self.sequence
                if callback is not None:
                    offset = record.offset()
                    if offset is None:
                        callback(_OK, NO_ID)
                    else:
                        stored = _new(StoredMessageId)  # its constructor would be one more Python call per message
                        stored._origin = origin
                        stored._offset = offset
                        callback(_OK, stored)
        except Exception:  # the application's; it must not end the thread that serves everybody's reports
            _log.exception("producer=%s a send callback failed", origin.topic)
        in_flight.free.append(self)
        in_flight.settled = settled = in_flight.settled + 1
        if settled >= in_flight.wake_at:
            in_flight.wake_waiting(settled)


class SendsInFlight:
    """At most `limit` tickets, and the waiting for their return. Thread-safe.

    A sender takes a ticket with `take` (the pop of a list: IndexError, then `one_more`), fills it in and hands it to
    Kafka as the delivery callback; the report puts it back.
    """

    def __init__(self, limit: int, kafka: KafkaProducer, failed: Failed) -> None:
        self.failed = failed
        self.free: list[Ticket] = []
        self.take: Callable[[], Ticket] = self.free.pop
        self.settled = 0
        self.wake_at = _NOBODY_WAITS
        self.kafka = kafka
        """Serves the reports of all these messages. Another Kafka producer needs a `SendsInFlight` of its own: what
        one thread counts at a time, two might count wrong."""
        self._limit = limit
        self._made: list[Ticket] = []
        self._room = threading.Condition()
        self._targets: list[int] = []

    def one_more(self) -> Ticket | None:
        """A ticket when none is free; None when `limit` messages are under way."""
        with self._room:
            if len(self._made) < self._limit:
                self._made.append(Ticket(self))
                return self._made[-1]
        try:
            return self.take()  # one came back meanwhile
        except IndexError:
            return None

    def give_back(self, ticket: Ticket) -> None:
        """Undo a `take`: Kafka did not accept the message."""
        with self.kafka.reports_held():  # what is counted has one writer at a time
            self.free.append(ticket)
            self.settled = settled = self.settled + 1
        self.wake_waiting(settled)

    def wait_for_room(self) -> None:
        """Return when some messages were answered, or after 50 ms."""
        # A tenth of the queue at once, or half of a short one: a wait costs more than a message.
        self._wait_settled(self.settled + max(1, min(self._limit // 2, 1000)), Deadline.after(_LOOK_S))

    def under_way(self) -> int:
        """Tickets that are taken just now."""
        return len(self._made) - len(self.free)

    def wait_for_all(self, deadline: Deadline) -> int:
        """Wait for every message sent before this call; how many of them the deadline left unanswered."""
        return self.wait_for(self.sent(), deadline)

    def sent(self) -> Collection[Any]:
        """What is under way now; for `wait_for`."""
        free = set(self.free)
        return [(ticket, _message_of(ticket)) for ticket in self._made if ticket not in free]

    def unanswered(self, sent: Collection[Any]) -> int:
        """How many of these are under way still."""
        free = set(self.free)
        return sum(ticket not in free and _message_of(ticket) == message for ticket, message in sent)

    def wait_for(self, sent: Collection[Any], deadline: Deadline) -> int:
        """Wait for just these, whatever is answered before them; how many the deadline left unanswered."""
        while True:
            settled = self.settled  # first: what is answered from here on may only make the wait below too short
            left = self.unanswered(sent)
            if left == 0 or deadline.passed():
                return left
            self._wait_settled(settled + left, deadline)

    def wake_waiting(self, settled: int) -> None:
        with self._room:
            self.wake_at = min((target for target in self._targets if target > settled), default=_NOBODY_WAITS)
            self._room.notify_all()

    def _wait_settled(self, target: int, deadline: Deadline) -> None:
        """Wait until `target` messages were answered; serves the answers itself unless another thread is at it."""
        self.kafka.wake()
        with self._room:
            self._targets.append(target)
            self.wake_at = min(self._targets)
        try:
            while self.settled < target and not deadline.passed():
                if not self.kafka.poll_inline(min(_LOOK_S, deadline.remaining_s())):
                    with self._room:
                        if self.settled < target:
                            self._room.wait(min(_LOOK_S, deadline.remaining_s()))
        finally:
            with self._room:
                self._targets.remove(target)
                self.wake_at = min(self._targets, default=_NOBODY_WAITS)


def _message_of(ticket: Ticket) -> tuple[int, PartitionOut | None]:
    return ticket.sequence, getattr(ticket, "origin", None)
