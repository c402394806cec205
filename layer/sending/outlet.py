"""An outlet passes a producer's records to one Kafka producer at a time, with a ticket for each message under way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.meters import SendCounts
from pulsar_on_kafka.crypto.encryptor import Sealer
from pulsar_on_kafka.exceptions import AlreadyClosed, ProducerQueueIsFull, PulsarException
from pulsar_on_kafka.kafka.errors import is_local_refusal, ours
from pulsar_on_kafka.kafka.producer import KafkaProducer
from pulsar_on_kafka.kafka.rights import on_topic
from pulsar_on_kafka.mapping.records.record_headers import producer_suffix
from pulsar_on_kafka.mapping.state.metadata.metadata_records import BacklogExceeded
from pulsar_on_kafka.metadata.topics import Topic
from pulsar_on_kafka.sending.deduplication import Deduplication
from pulsar_on_kafka.sending.in_flight import (
    NO_ID,
    PartitionOut,
    SendCallback,
    SendResult,
    SendsInFlight,
    Ticket,
)
from pulsar_on_kafka.sending.official_errors import as_pulsar, pulsar_errors
from pulsar_on_kafka.sending.quota_gate import QuotaGate

_BLOCKED_POLL_S: Final = 0.05

Headers = list[tuple[str, str | bytes | None]]


def now() -> int:
    """The timestamp with which librdkafka takes its own clock."""
    return 0


class MoreThanPlain(Protocol):
    """The callback puts on record that readers of the topic need headers."""

    def __call__(self, *, chunks: bool = False, markers: bool = False) -> None:
        """`chunks`: and that they have to put chunks together; `markers`: only that markers lie among the messages.
        Raises PulsarException."""


def _said_before(*, chunks: bool = False, markers: bool = False) -> None:
    """Somebody else had it on record."""


class Outlet:
    """The outlet holds the Kafka producer of one producer, and its tickets. Thread-safe. A Kafka producer that
    librdkafka gives up is replaced by another one; what was on its way through the former is answered there.

    Memory: at most `max_pending` tickets.
    """

    def __init__(
        self,
        topic: Topic,
        kafka: KafkaProducer,
        *,
        name: str,
        epoch: int,
        initial_sequence_id: int | None,
        max_pending: int,
        block_if_full: bool,
        fixed_partition: int | None,
        encryptor: Sealer | None,
        renew: Callable[[], KafkaProducer],
        deduplication: Deduplication,
        send_timeout_ms: int = 0,
        more_than_plain: MoreThanPlain = _said_before,
    ) -> None:
        """`more_than_plain` is called before a record is sent of which its headers tell more than a plain message's do
        (see `ProducerClaims.plain`); it raises PulsarExceptions, and costs nothing the second time."""
        self._topic = topic
        self._kafka_topic = topic.kafka_topic
        self._name = name
        self._fixed = fixed_partition
        self._renew = renew
        self._more_than_plain = more_than_plain
        self._encryptor = encryptor
        self._initial_sequence_id = initial_sequence_id
        self._producer_header = producer_suffix(epoch, name)
        self._deduplication = deduplication
        self._deduplicates = False
        """It is asked about every message; whether it judges them is its own affair (`active`)."""
        self._max_pending = max_pending
        self._block = block_if_full
        self._closed = False
        self._failures = 0
        self._answered_before = 0
        """Messages of Kafka producers that were given up and have reported all of theirs."""
        self._former: list[SendsInFlight] = []
        """Of Kafka producers that were given up, until their reports are in."""
        self._renewing = threading.Lock()
        self._quota_gate = QuotaGate(send_timeout_ms)
        self._origins: list[PartitionOut] = []
        self._grow_origins(topic.partitions)
        self._use(self._new_in_flight(kafka))
        if deduplication.active:
            self._ask_deduplication()

    def topic(self) -> str:
        return self._topic.partition_names[self._fixed] if self._fixed is not None else str(self._topic.name)

    def producer_name(self) -> str:
        return self._name

    def last_sequence_id(self) -> int:
        """Sequence id of the message that was stored last; -1 (or the initial one) before the first. Each partition
        counts for itself: of several the highest. Source: PartitionedProducerImpl of the official client."""
        origins = self._origins if self._fixed is None else [self._origins[self._fixed]]
        return max(origin.last_sequence_id for origin in origins)

    def send_counts(self) -> SendCounts:
        """What became of its messages; for metrics and the log."""
        with self._renewing:
            all_in_flight = (*self._former, self._in_flight)
            answered = self._answered_before + sum(in_flight.settled for in_flight in all_in_flight)
        pending = sum(in_flight.under_way() for in_flight in all_in_flight)
        return SendCounts(answered - self._failures, self._failures, pending)

    def seal_with(self, sealer: Sealer) -> None:
        """Have it stand between this producer and librdkafka, from the next send on."""
        self._more_than_plain()
        self._encryptor = sealer
        self._use(self._in_flight)

    def _needs_headers(self, callback: SendCallback | None, *, chunks: bool = False, markers: bool = False) -> bool:
        """Whether it is on record that readers need headers (and have to put chunks together), or only that there are
        `markers`; else the caller was told why not."""
        try:
            self._more_than_plain(chunks=chunks, markers=markers)
        except PulsarException as refused:
            self._tell(callback, refused)
            return False
        return True

    # Tickets ------------------------------------------------------------------------------------------------------

    def _ticket_now(self, callback: SendCallback | None) -> Ticket | None:
        """A ticket; None when the caller was told that there is none."""
        try:
            return self._take_ticket()
        except IndexError:
            return self._ticket_when_free(callback)

    def _ticket_when_free(self, callback: SendCallback | None) -> Ticket | None:
        """The ticket for one more message when all that were made are out; None when the caller was told that the queue
        is full."""
        while (ticket := self._in_flight.one_more()) is None:
            if self._closed:
                raise AlreadyClosed(f"producer {self._name} of {self.topic()} is closed")
            if not self._block:
                full = f"producer {self._name} has {self._max_pending} unanswered messages"
                self._tell(callback, ProducerQueueIsFull(full))
                return None
            self._in_flight.wait_for_room()
        return ticket

    def _wait_for_all(self, deadline: Deadline) -> int:
        return sum(in_flight.wait_for_all(deadline) for in_flight in (*self._former, self._in_flight))

    # To librdkafka ------------------------------------------------------------------------------------------------

    def _offer(
        self,
        ticket: Ticket,
        payload: bytes | None,
        key: bytes | None,
        partition: int,
        headers: Headers,
        stamp: Callable[[], int] = now,
    ) -> bool:
        """Have librdkafka take a record, however long it has no room for it; False when the sender was told why not.

        The hot path of `Producer` has the first attempt in itself.

        Args:
            stamp: gives the record's time for each attempt; what it raises is raised when the ticket was given back.
        Raises:
            PulsarException: the record was refused; the message is not on its way.
        """
        while True:
            try:
                # topic, value, key, partition, callback, its alias, timestamp, headers; keywords cost more
                self._produce(self._kafka_topic, payload, key, partition, ticket, None, stamp(), headers)
                return True
            except Exception as refused:
                another = self._after_refusal(refused, ticket)
                if another is None:
                    return False
                ticket = another

    def _after_refusal(self, refused: Exception, ticket: Ticket) -> Ticket | None:
        """The ticket to try again with when librdkafka has no room, or gave up the Kafka producer; None: the sender was
        told why not.

        Raises:
            PulsarException: any other refusal; the message is not on its way.
        """
        given_up = ticket.in_flight
        if isinstance(refused, BufferError):
            self._kafka.wait_for_reports(_BLOCKED_POLL_S)
            return ticket
        callback = ticket.callback
        again = None
        if given_up.kafka.fatal is not None:
            self._replace(given_up)
            again = self._ticket_when_free(callback)
            if again is not None:
                again.sequence, again.origin, again.callback = ticket.sequence, ticket.origin, callback
        self._failures += 1
        given_up.give_back(ticket)
        if given_up.kafka.fatal is None:
            failure = ours(refused, f"message to {self.topic()}", on_topic("Write", self._kafka_topic))
            if not isinstance(failure, (errors.NotAuthorized, PulsarException)):
                raise as_pulsar(failure) from refused
            self._tell(callback, as_pulsar(failure))  # librdkafka knew it before it asked
        return again

    def _replace(self, given_up: SendsInFlight) -> None:
        """Go on with another Kafka producer, unless another thread has seen to that."""
        with pulsar_errors(), self._renewing:
            if self._in_flight is given_up:
                self._use(self._new_in_flight(self._renew()))
                former = (*self._former, given_up)
                self._former = [each for each in former if each.under_way() > 0]
                self._answered_before += sum(each.settled for each in former if each not in self._former)

    def _new_in_flight(self, kafka: KafkaProducer) -> SendsInFlight:
        return SendsInFlight(self._max_pending, kafka, partial(self._failed, kafka))

    def _grow_origins(self, partitions: int) -> None:
        """Count for that many partitions from now on."""
        for number in range(len(self._origins), partitions):
            stored = self._deduplication.stored(number) if self._deduplication.active else -1
            last = self._initial_sequence_id or stored  # officially 0 is as good as none
            # officially the ids that `send` gives do not say their topic
            origin = PartitionOut(self._topic.layout, self._topic.partition_field(number), "", last)
            self._origins.append(origin)
            if self._deduplicates:
                self._have_counted(number)

    def _use(self, in_flight: SendsInFlight) -> None:
        self._in_flight = in_flight
        self._take_ticket = in_flight.take
        self._kafka = in_flight.kafka
        produce = self._way_out(in_flight.kafka)
        self._produce = self._over(produce) if self._deduplicates else produce

    def _way_out(self, kafka: KafkaProducer) -> Callable[..., None]:
        """`kafka.produce`, with what stands before it: the gate, while it is closed, and whoever seals."""
        produce = self._quota_gate.over(kafka) if self._quota_gate.closed else kafka.produce
        return produce if self._encryptor is None else self._encryptor.over(produce)

    # Refusals and failures ----------------------------------------------------------------------------------------

    @staticmethod
    def _tell(callback: SendCallback | None, refusal: PulsarException) -> None:
        """A synchronous send raises, an asynchronous one gets the result in its callback."""
        if callback is None or isinstance(callback, SendResult):
            raise refusal
        callback(refusal.result, NO_ID)

    def _failed(self, kafka: KafkaProducer, error: Any, callback: SendCallback | None) -> None:
        quota = self._quota_gate.why() if is_local_refusal(error) else None
        why = quota or kafka.why_refused(error, self._kafka_topic, f"message to {self.topic()}")
        self._answer_failure(as_pulsar(why), callback)

    def _answer_failure(self, failure: PulsarException, callback: SendCallback | None) -> None:
        self._failures += 1
        if isinstance(callback, SendResult):
            callback.error = failure
        if callback is not None:
            callback(failure.result, NO_ID)

    # Backlog quota ------------------------------------------------------------------------------------------------

    def follow_backlog(self, exceeded: BacklogExceeded | None) -> None:
        """The topic's backlog quota is exceeded, or (None) not. Ours, for the client's policy watch, which calls again
        and again: what waits is answered in time."""
        gate = self._quota_gate
        if self._closed:
            return
        if exceeded is None:
            if gate.closed:
                gate.open()
                self._use_again()
            return
        if exceeded.holds:
            gate.hold()
        else:
            gate.refuse(f"producer {self._name} of {self.topic()}: {exceeded}")
        self._use_again()
        gate.expire()

    def _use_again(self) -> None:
        with self._renewing:
            self._use(self._in_flight)

    # Deduplication ------------------------------------------------------------------------------------------------

    def _ask_deduplication(self) -> None:
        self._deduplicates = True
        self._use(self._in_flight)  # first: what comes without an id must pass whoever gives it one
        for number in range(len(self._origins)):
            self._have_counted(number)

    def _have_counted(self, partition: int) -> None:
        """Messages of the partition are numbered when it is their turn to be judged."""
        self._deduplication.count(partition, self._origins[partition])

    def _set_deduplication(self, *, active: bool) -> None:
        self._deduplication.active = active

    def _over(self, produce: Callable[..., None]) -> Callable[..., None]:
        return self._deduplication.over(produce)
