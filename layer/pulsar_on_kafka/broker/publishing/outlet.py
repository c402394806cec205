"""An outlet passes a producer's records to one Kafka producer at a time, with a ticket for each message under way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.meters import SendCounts
from pulsar_on_kafka.base.reentry import ReentryGuard
from pulsar_on_kafka.broker.metadata.producers.membership import Membership
from pulsar_on_kafka.broker.metadata.rates.policy_rates import PublishRate
from pulsar_on_kafka.broker.metadata.rates.publish_rates import PublishRates
from pulsar_on_kafka.broker.metadata.record_limits import RecordLimits
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.publishing.batches import BatchesInFlight
from pulsar_on_kafka.broker.publishing.deduplication import Deduplication, Produce
from pulsar_on_kafka.broker.publishing.in_flight import (
    OwnCallback,
    PartitionOut,
    SendCallback,
    SendsInFlight,
    Ticket,
    fail,
    report_refusal,
)
from pulsar_on_kafka.broker.publishing.official_errors import as_pulsar, pulsar_errors
from pulsar_on_kafka.broker.publishing.quota_gate import QuotaGate
from pulsar_on_kafka.broker.publishing.rate_gate import RateGate
from pulsar_on_kafka.crypto.encryptor import Sealer
from pulsar_on_kafka.exceptions import (
    AlreadyClosed,
    MessageTooBig,
    ProducerQueueIsFull,
    PulsarException,
)
from pulsar_on_kafka.kafka.errors import is_certainly_not_stored, is_local_refusal, ours
from pulsar_on_kafka.kafka.producer import KafkaProducer
from pulsar_on_kafka.kafka.rights import on_topic
from pulsar_on_kafka.kafka.settings import MAX_MESSAGE_BYTES
from pulsar_on_kafka_mapping.records.message_record import Headers
from pulsar_on_kafka_mapping.records.record_headers import producer_suffix
from pulsar_on_kafka_mapping.routing.key_hashes import KeyHash
from pulsar_on_kafka_mapping.state.metadata.metadata_records import BacklogExceeded

_UNLIMITED: Final = 2**62

_InFlight = TypeVar("_InFlight", bound=SendsInFlight)


class HeaderRegistrar(Protocol):
    """Puts on record that readers of the topic need headers (see `ProducerClaims.plain`)."""

    def __call__(self, *, chunks: bool = False, markers: bool = False, raw: bool = False) -> None:
        """`chunks`: and that they have to put chunks together; `raw`: and that some are as a client of Pulsar's batched
        or compressed them; `markers`: only that markers lie among the messages. Costs nothing the second time. Raises
        PulsarException."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A producer that was admitted to a topic."""

    topic: Topic
    fixed_partition: int | None
    """The only partition of a producer that was opened for one partition."""
    membership: Membership
    name: str
    deduplication: Deduplication
    kafka: Callable[[], KafkaProducer]
    """Gives the Kafka producer to send through: another one when librdkafka gave up the last."""
    more_than_plain: HeaderRegistrar
    routes_keys: Callable[[KeyHash], None]
    """Called before a message is sent for whose key a hash chooses the partition. Returns at once; repeated calls do no
    harm."""
    cluster_id: str
    """Kafka's."""
    now_ms: Callable[[], int]
    """The brokers' time."""
    limits: RecordLimits
    """Kafka's, of the records of the topic."""
    publish_rates: PublishRates
    """The publish rates of this process."""

    def partitions(self, count: int) -> range:
        """The partitions that it writes to when the topic has `count`."""
        fixed = self.fixed_partition
        return range(count) if fixed is None else range(fixed, fixed + 1)


@dataclass(frozen=True, slots=True)
class Limits:
    """`max_pending`: messages under way in a partition, `max_pending_across`: over all of them, 0 for no limit;
    `block_if_full`: one more waits for room, else it is refused; `send_timeout_ms`: how long a message waits at most, 0
    for as long as it takes; `waits_for_librdkafka`: for room in its queue, which all producers of the process share,
    else what hands a message over raises BufferError. Nor is such a producer held back by a publish rate: its caller
    stops to hand messages over (`RateGate.wait_s`)."""

    max_pending: int
    max_pending_across: int
    block_if_full: bool
    send_timeout_ms: int
    waits_for_librdkafka: bool = True


def room_for_pending(per_partition: int, across: int, partitions: int) -> int:
    """Messages that may be under way. The official limits: so many per partition, and so many over all of them; 0 is
    no limit."""
    total = per_partition * partitions if per_partition else _UNLIMITED
    return min(total, across) if across and partitions > 1 else total


class Outlet(Generic[_InFlight]):
    """The outlet holds the Kafka producer of one producer, and its tickets. Thread-safe. A Kafka producer that
    librdkafka gives up is replaced by another one; what was on its way through the former is answered there.

    Memory: at most `max_pending` tickets.
    """

    take: Callable[[], Ticket]
    """A free ticket; IndexError when all that were made are out."""
    produce: Produce
    """librdkafka's, with what stands before it: deduplication, encryption and the gate, while each is there."""
    produce_admitted: Produce
    """`produce` for records that deduplication admitted before."""

    def __init__(
        self,
        admitted: Admitted,
        limits: Limits,
        sealer: Sealer | None,
        new_in_flight: Callable[[int, KafkaProducer, Callable[[Any, SendCallback | None], None]], _InFlight],
        deduplicating: Callable[[Produce], Produce],
        initial_sequence_id: int | None,
    ) -> None:
        """`deduplicating` puts deduplication before a `produce`, from the call of `deduplicate` on."""
        self.admitted = admitted
        self.kafka_topic = admitted.topic.kafka_topic
        self.limits = limits
        self.max_pending = room_for_pending(limits.max_pending, limits.max_pending_across, admitted.topic.partitions)
        self.sealer = sealer
        self.deduplicates = False
        """Whether every message passes deduplication; deduplication itself decides whether to judge (`active`)."""
        self.closed = False
        self.thrown_out: PulsarException | None = None
        """Why nothing more is taken: another producer has the topic for itself, or the topic was deleted."""
        self.failures = 0
        self.given_up = 0
        """Records that failed, and may still be stored: the request of one that took too long may arrive later."""
        self.gate = QuotaGate(limits.send_timeout_ms)
        self.rate_gate = RateGate(
            admitted.publish_rates, self.kafka_topic, limits.send_timeout_ms, holds=limits.waits_for_librdkafka
        )
        self.former: list[_InFlight] = []
        """The messages of abandoned Kafka producers, until their reports arrived."""
        self.origins: list[PartitionOut] = []
        self._initial_sequence_id = initial_sequence_id
        self._new = new_in_flight
        self._deduplicating = deduplicating
        self._answered_before = 0
        """The number of messages of abandoned Kafka producers without reports outstanding."""
        self._more_records = 0
        """The number of answered records minus that of answered messages."""
        self._counting = threading.Lock()
        self._renewing = ReentryGuard()
        self.number(admitted.membership.epoch)
        self.grow(admitted.topic.partitions)
        self._use(self._in_flight_of(admitted.kafka()))

    def number(self, epoch: int) -> None:
        """Every record names its message's number, and the producer in this epoch."""
        suffix = producer_suffix(epoch, self.admitted.name).encode()
        self.header = b"%d" + suffix.replace(b"%", b"%%")

    def topic(self) -> str:
        topic, fixed = self.admitted.topic, self.admitted.fixed_partition
        return topic.partition_names[fixed] if fixed is not None else str(topic.name)

    def __str__(self) -> str:
        return f"producer {self.admitted.name} of {self.topic()}"

    def last_sequence_id(self) -> int:
        """See `Producer.last_sequence_id`."""
        return max(self.origins[each].last_sequence_id for each in self.admitted.partitions(len(self.origins)))

    def send_counts(self) -> SendCounts:
        with self._renewing:
            all_in_flight = (*self.former, self.in_flight)
            answered = self._answered_before + sum(in_flight.answered_messages() for in_flight in all_in_flight)
        pending = sum(in_flight.under_way() for in_flight in all_in_flight)
        sent = answered - self.failures - self._more_records
        return SendCounts(sent, self.failures, pending, self.rate_gate.limited_times)

    def count_records(self, more: int) -> None:
        """Counts tickets that have no message of their own."""
        with self._counting:
            self._more_records += more

    def wait_for_all(self, deadline: Deadline) -> int:
        """Return when everything that was sent was answered; how many the deadline left."""
        return sum(in_flight.wait_for_all(deadline) for in_flight in (*self.former, self.in_flight))

    def wait_for_callbacks(self, deadline: Deadline) -> None:
        """See `SendsInFlight.wait_for_callbacks`."""
        for in_flight in (*self.former, self.in_flight):
            in_flight.wait_for_callbacks(deadline)

    def grow(self, partitions: int) -> None:
        topic, deduplication = self.admitted.topic, self.admitted.deduplication
        for number in range(len(self.origins), partitions):
            stored = deduplication.stored(number) if deduplication.active else -1
            last = self._initial_sequence_id or stored  # officially 0 is as good as none
            # officially the ids that `send` returns do not name their topic
            self.origins.append(PartitionOut(topic.layout, topic.partition_field(number), "", last))

    # What refuses a message ---------------------------------------------------------------------------------------

    def refuses(self, callback: SendCallback | None) -> bool:
        """Whether the producer was closed or fenced; then the sender got the error."""
        if self.closed:
            report_refusal(callback, self.is_closed())
        elif self.thrown_out is not None:
            report_refusal(callback, self.thrown_out)
        else:
            return False
        return True

    def is_closed(self) -> AlreadyClosed:
        return AlreadyClosed(f"{self} is closed")

    def is_full(self) -> ProducerQueueIsFull:
        return ProducerQueueIsFull(f"producer {self.admitted.name} has {self.max_pending} unanswered messages")

    @staticmethod
    def refuse_size(payload: bytes, callback: SendCallback | None) -> None:
        report_refusal(callback, MessageTooBig(f"{len(payload)} bytes of payload, the limit is {MAX_MESSAGE_BYTES}"))

    def on_record(self, callback: SendCallback | None, *, chunks: bool = False, markers: bool = False) -> bool:
        """Whether the log's description mentions that readers need headers (and have to put chunks together), or only
        that there are `markers`; otherwise the sender got the reason."""
        try:
            self.admitted.more_than_plain(chunks=chunks, markers=markers)
        except PulsarException as refused:
            report_refusal(callback, refused)
            return False
        return True

    # To librdkafka ------------------------------------------------------------------------------------------------

    def ticket(self, callback: SendCallback | None) -> Ticket | None:
        """The ticket for one more message; None when the sender got the error that the queue is full. A callback gets
        this error where other senders wait: it would wait for itself."""
        try:
            return self.take()
        except IndexError:
            pass
        while (ticket := self.in_flight.one_more()) is None:
            if self.closed:
                raise self.is_closed()
            if not self.limits.block_if_full:
                report_refusal(callback, self.is_full())
                return None
            if not self.wait_for_room(callback):
                return None
        return ticket

    def wait_for_room(self, callback: SendCallback | None) -> bool:
        """True when some messages were answered, or after 50 ms; False when the sender, which is a callback, got the
        error that the queue is full. Raises NotAllowedError: see `check_may_wait`."""
        with pulsar_errors():
            waited = self.in_flight.wait_for_room()
        if not waited:
            report_refusal(callback, self.is_full())
        return waited

    def offer(
        self,
        ticket: Ticket,
        payload: bytes | None,
        key: bytes | None,
        partition: int,
        headers: Headers,
        stamp: Callable[[], int] | None = None,
    ) -> bool:
        """Hands a record to librdkafka, however long its queue is full (`Limits.waits_for_librdkafka`); False when the
        sender got the reason of a refusal.

        Args:
            stamp: returns the record's time for each attempt; the default is librdkafka's clock. Its exceptions are
                raised after the ticket was returned.
        Raises:
            PulsarException: the record was refused; the message is not on its way.
            BufferError: likewise, librdkafka's queue is full, and the caller may not wait.
        """
        while True:
            try:
                at_ms = 0 if stamp is None else stamp()
                # topic, value, key, partition, callback, its alias, timestamp, headers; keywords cost more
                self.produce(self.kafka_topic, payload, key, partition, ticket.report, None, at_ms, headers)
                return True
            except Exception as refused:  # of librdkafka, of a check before it, or of `stamp`: reported or raised below
                another = self.after_refusal(refused, ticket)
                if another is None:
                    return False
                ticket = another

    def after_refusal(self, refused: Exception, ticket: Ticket) -> Ticket | None:
        """The ticket for the retry when librdkafka's queue is full, or the Kafka producer was abandoned; None when the
        sender got the reason.

        Raises:
            PulsarException: any other refusal; the message is not on its way. BufferError: see `offer`.
        """
        given_up = ticket.in_flight
        if isinstance(refused, BufferError):
            if not self.limits.waits_for_librdkafka:
                self.kafka.note_full()
                self.count_records(1)
                given_up.give_back(ticket)
                raise refused
            self.kafka.wait_for_reports()
            return ticket
        callback = ticket.callback
        again = None
        if given_up.kafka.fatal is not None:
            self.replace(given_up)
            again = self.ticket(callback)
            if again is not None:
                again.sequence, again.origin, again.callback = ticket.sequence, ticket.origin, callback
        self.failures += 1
        given_up.give_back(ticket)
        if given_up.kafka.fatal is None:
            failure = self.why_refused(refused)
            if not isinstance(failure, (errors.NotAuthorized, PulsarException)):
                raise as_pulsar(failure) from refused
            report_refusal(callback, as_pulsar(failure))  # librdkafka knew it before the request
        return again

    def why_refused(self, refused: Exception, what: str = "message") -> Exception:
        return ours(refused, f"{what} to {self.topic()}", on_topic("Write", self.kafka_topic))

    def replace(self, given_up: SendsInFlight) -> None:
        """Go on with another Kafka producer, unless another thread has seen to that."""
        with pulsar_errors(), self._renewing:
            if self.in_flight is given_up:
                was = self.in_flight
                self._use(self._in_flight_of(self.admitted.kafka()))
                former = (*self.former, was)
                self.former = [each for each in former if each.under_way() > 0]
                self._answered_before += sum(each.answered_messages() for each in former if each not in self.former)

    def _in_flight_of(self, kafka: KafkaProducer) -> _InFlight:
        def failed(error: Any, callback: SendCallback | None) -> None:
            self.given_up += not is_certainly_not_stored(error)
            held = self.gate.why() or self.rate_gate.why() if is_local_refusal(error) else None
            why = held or kafka.why_refused(error, self.kafka_topic, f"message to {self.topic()}")
            self.answer_failure(as_pulsar(why), callback)

        return self._new(self.max_pending, kafka, failed)

    def answer_failure(self, failure: PulsarException, callback: SendCallback | None) -> None:
        """A message that was under way failed, or one of its records."""
        if not (isinstance(callback, OwnCallback) and not callback.of_message):
            self.failures += 1
        fail(callback, failure)

    # What stands before librdkafka --------------------------------------------------------------------------------

    def _use(self, in_flight: _InFlight) -> None:
        self.in_flight = in_flight
        self.take = in_flight.take
        self.kafka = kafka = in_flight.kafka
        produce = self.rate_gate.over(kafka) if self.rate_gate.active else kafka.produce
        produce = self.gate.over(kafka, produce) if self.gate.closed else produce
        self.produce_admitted = produce if self.sealer is None else self.sealer.over(produce)
        self.produce = self._deduplicating(self.produce_admitted) if self.deduplicates else self.produce_admitted

    def _use_again(self) -> None:
        with self._renewing:
            self._use(self.in_flight)

    def deduplicate(self) -> None:
        self.deduplicates = True
        self._use_again()

    def follow_backlog(self, exceeded: BacklogExceeded | None) -> None:
        """The topic's backlog quota is exceeded, or (None) not. For a policy watch, which calls again and again: what
        waits is answered in time."""
        gate = self.gate
        if self.closed:
            return
        if exceeded is None:
            if gate.closed:
                gate.open()
                self._use_again()
            return
        if exceeded.holds:
            gate.hold()
        else:
            gate.refuse(f"{self}: {exceeded}")
        self._use_again()
        gate.expire()

    def follow_rate(self, rate: PublishRate | None) -> None:
        """The topic's publish rate; None for no limit. For a policy watch."""
        was_active = self.rate_gate.active
        self.rate_gate.follow(rate)
        if self.rate_gate.active is not was_active:
            self._use_again()


AnyOutlet = Outlet[SendsInFlight] | Outlet[BatchesInFlight]
"""Whatever its way makes records of."""
