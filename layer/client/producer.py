"""`Producer`: sends messages, one Kafka record each."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

from layer import errors
from layer.client.deduplication import ASSIGN, Deduplication
from layer.client.enums import PartitionsRoutingMode
from layer.client.errors import as_pulsar, pulsar_errors
from layer.client.in_flight import NO_ID, Answer, InFlight, SendCallback, Ticket
from layer.client.message_id import NativeMessageId, PartitionOrigin
from layer.client.options import check_type
from layer.client.outgoing_message import OutgoingMessage, key_and_metadata
from layer.client.outgoing_schema import Marks, OutgoingSchema
from layer.client.record_key import RecordKey
from layer.client.routing import MessageRouter, Routing
from layer.client.stats_log import StatsLine
from layer.client.transaction import Transaction
from layer.client.transactional_sends import TransactionalSend, taking_part
from layer.crypto.encryptor import Sealer
from layer.deadline import Deadline
from layer.exceptions import (
    AlreadyClosed,
    MessageTooBig,
    NotAllowedError,
    ProducerFenced,
    ProducerQueueIsFull,
    PulsarException,
    Timeout,
)
from layer.kafka.errors import ours
from layer.kafka.producer import KafkaProducer
from layer.kafka.rights import on_topic
from layer.kafka.settings import MAX_MESSAGE_BYTES
from layer.metadata.producers import Membership
from layer.metadata.topics import Topic
from layer.meters import SendCounts
from layer.schema.plain import BytesSchema
from mapping.headers import PRODUCER, producer_suffix
from mapping.message_record import MessageMetadata, encode_headers

_log = logging.getLogger(__name__)

_POLL_MASK: Final = 127
_CLOSE_TIMEOUT_S: Final = 30.0
_LEAVE_TIMEOUT_S: Final = 5.0
_THROW_OUT_TIMEOUT_S: Final = 5.0
_BLOCKED_POLL_S: Final = 0.05


class Producer:
    """Publishes to one topic. Thread-safe. Source: `pulsar.Producer`.

    Memory: at most `max_pending_messages` unanswered messages; beyond that `send_async` waits
    (`block_if_queue_full`) or answers `ProducerQueueIsFull`.
    """

    def __init__(
        self,
        topic: Topic,
        kafka: KafkaProducer,
        *,
        name: str,
        schema: OutgoingSchema,
        initial_sequence_id: int | None,
        max_pending: int,
        block_if_full: bool,
        routing: PartitionsRoutingMode,
        router: MessageRouter | None,
        fixed_partition: int | None,
        encryptor: Sealer | None,
        renew: Callable[[], KafkaProducer],
        membership: Membership,
        deduplication: Deduplication,
        on_close: Callable[[Producer], None],
    ) -> None:
        self._renew = renew
        self._encryptor = encryptor
        self._topic = topic
        self._kafka_topic = topic.kafka_topic
        self._origins = [
            # officially the ids that `send` gives do not say their topic
            PartitionOrigin(topic.layout, topic.partition_field(number), "")
            for number in range(topic.partitions)
        ]
        self._name = name
        self._schema = schema.schema
        self._shape = schema.shape if schema.shapes else None
        self._takes_bytes = type(schema.schema) is BytesSchema
        """Bytes need no look at anything else. False once closed or thrown out, which makes a send look."""
        # officially 0 is as good as none
        first = (initial_sequence_id or (deduplication.highest if deduplication.active else -1)) + 1
        self._sequence: Iterator[int] = itertools.count(first)
        self._deduplication = deduplication
        self._deduplicates = False
        """It is asked about every message; whether it judges them is its own affair (`active`)."""
        self._max_pending = max_pending
        self._failures = 0
        self._answered_before = 0
        """Messages of Kafka producers that were given up and have reported all of theirs."""
        self._use(self._new_in_flight(kafka, first - 1))
        self._former: list[InFlight] = []
        """Of Kafka producers that were given up, until their reports are in."""
        self._renewing = threading.Lock()
        self._producer_header = producer_suffix(membership.epoch, name)
        self._block = block_if_full
        self._whole_bytes = MAX_MESSAGE_BYTES
        """A payload above it is not sent like any other."""
        self._fixed = fixed_partition
        self._routing = Routing(
            topic.partitions, partitioned=topic.partitioned, mode=routing, router=router, fixed=fixed_partition
        )
        self._single = self._routing.single
        self._router = self._routing.router
        self._spread = self._routing.spread
        self._on_close = on_close
        self._closed = False
        self._thrown_out: str | None = None
        self._membership = membership
        if membership.claim.exclusive:
            schema.of_exclusive_producer()
        self._marks = schema.marks
        if deduplication.active:
            self._ask_deduplication()
        membership.when_thrown_out(self._throw_out)

    # Public -------------------------------------------------------------------------------------------------------

    def topic(self) -> str:
        return self._topic.partition_names[self._fixed] if self._fixed is not None else str(self._topic.name)

    def producer_name(self) -> str:
        return self._name

    def last_sequence_id(self) -> int:
        """Sequence id of the message that was stored last; -1 (or the initial one) before the first."""
        return self._in_flight.last_sequence_id

    def send_counts(self) -> SendCounts:
        """What became of its messages; for metrics and the log."""
        with self._renewing:
            all_in_flight = (*self._former, self._in_flight)
            answered = self._answered_before + sum(in_flight.settled for in_flight in all_in_flight)
        pending = sum(in_flight.under_way() for in_flight in all_in_flight)
        return SendCounts(answered - self._failures, self._failures, pending)

    def stats_line(self) -> StatsLine:
        """What it counted; for the log."""
        counts = self.send_counts()
        return StatsLine(
            f"producer={self._name} topic={self.topic()}",
            {"sent": counts.sent, "failed": counts.failed},
            {"pending": counts.pending},
        )

    def is_connected(self) -> bool:
        return not self._closed and self._thrown_out is None

    def send(
        self,
        content: Any,
        properties: dict[str, str] | None = None,
        partition_key: str | RecordKey | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        replication_clusters: Sequence[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
        *,
        txn: Transaction | None = None,
    ) -> NativeMessageId:
        """Send one message and wait until every in-sync replica has it.

        In a transaction (`txn`) nobody sees it before the commit; it goes in a record of its own. The first message of
        a transaction to a partition waits until the coordinator knows of it.

        With `deliver_at` (Unix time in ms) or `deliver_after`, which wins, Shared and Key_Shared subscriptions deliver
        it then: never earlier, and within 0.1 s when a consumer takes it (Pulsar: within 1 s, perhaps earlier).
        Exclusive and Failover subscriptions and readers deliver it at once, as in Pulsar. 0 and times that have passed
        are at once everywhere.

        Raises:
            MessageTooBig, ProducerQueueIsFull, Timeout, AlreadyClosed: as the official client.
            InvalidTxnStatusError: the transaction is not open.
        """
        answer = Answer()
        self.send_async(
            content, answer, properties, partition_key, ordering_key, sequence_id, replication_clusters,
            disable_replication, event_timestamp, deliver_at, deliver_after, txn=txn,
        )  # fmt: skip
        with pulsar_errors():
            answer.settled.wait()
        if answer.error is not None:
            raise answer.error
        assert answer.message_id is not None  # noqa: S101 - an answer is an id or an error
        return answer.message_id

    def send_async(  # noqa: C901 - the hot path: a call costs more than a branch
        self,
        content: Any,
        callback: SendCallback | None,
        properties: dict[str, str] | None = None,
        partition_key: str | RecordKey | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        replication_clusters: Sequence[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
        *,
        txn: Transaction | None = None,
    ) -> None:
        """Send one message; `callback(result, message_id)` is called from another thread or from a later send.

        A refusal (closed, too big, queue full) goes to the callback as well, as officially. What a callback raises is
        logged.
        """
        if txn is not None:
            self._send_in(
                txn, callback, content, properties, partition_key, ordering_key, sequence_id, replication_clusters,
                disable_replication, event_timestamp, deliver_at, deliver_after,
            )  # fmt: skip
            return
        marks = self._marks
        key: bytes | None
        if self._takes_bytes and type(content) is bytes:
            payload: bytes | None = content
        else:
            if self._shape is None:
                payload = self._encode(content)
            else:
                payload, partition_key, marks = self._shape(content, partition_key)
            if self._ended(callback):
                return
        if payload is not None and len(payload) > self._whole_bytes:
            self._send_large(
                payload, callback, marks, properties, partition_key, ordering_key, sequence_id, replication_clusters,
                disable_replication, event_timestamp, deliver_at, deliver_after,
            )  # fmt: skip
            return
        if (
            properties is None
            and partition_key is None
            and ordering_key is None
            and sequence_id is None
            and event_timestamp is None
            and deliver_at is None
            and deliver_after is None
            and replication_clusters is None
            and not disable_replication
        ):
            key = extra = None
        else:
            key, metadata = key_and_metadata(
                properties, partition_key, ordering_key, sequence_id, replication_clusters, disable_replication,
                event_timestamp, deliver_at, deliver_after,
            )  # fmt: skip
            extra = None if metadata is None else encode_headers(metadata)
        if key is None and self._single is not None:
            partition = self._single
        elif self._router is None:
            partition = self._spread(key if partition_key else None)  # an ordering key alone does not choose it
        else:
            outgoing = OutgoingMessage(payload, properties, partition_key, ordering_key, event_timestamp)
            partition = self._routing.ask(outgoing)
        try:
            ticket = self._take_ticket()
        except IndexError:
            waited = self._ticket_when_free(callback)
            if waited is None:
                return
            ticket = waited
        sequence = next(self._sequence) if sequence_id is None else sequence_id
        ticket.sequence = sequence
        ticket.origin = self._origins[partition]
        ticket.callback = callback
        headers: list[tuple[str, str | bytes | None]] = [(PRODUCER, f"{sequence}{self._producer_header}")]
        if extra is not None:
            headers += extra
        if marks:
            headers += marks
        kafka = self._kafka
        while True:
            try:
                # topic, value, key, partition, callback, its alias, timestamp (0: now), headers; keywords cost more
                self._produce(self._kafka_topic, payload, key, partition, ticket, None, 0, headers)
                break
            except BufferError:
                kafka.poll_inline(_BLOCKED_POLL_S)
            except Exception as refused:
                another = self._after_refusal(refused, ticket)
                if another is None:
                    return
                ticket = another
                kafka = self._kafka
        if sequence & _POLL_MASK == 0:
            kafka.poll_inline()
        if kafka.asleep:
            kafka.wake()

    # In a transaction ---------------------------------------------------------------------------------------------

    def _send_in(
        self,
        txn: Transaction,
        callback: SendCallback | None,
        content: Any,
        properties: dict[str, str] | None,
        partition_key: str | RecordKey | None,
        ordering_key: str | None,
        sequence_id: int | None,
        replication_clusters: Sequence[str] | None,
        disable_replication: bool,
        event_timestamp: int | None,
        deliver_at: int | None,
        deliver_after: timedelta | None,
    ) -> None:
        check_type(Transaction, "txn", txn)
        taken = self._taking_part(txn, callback)
        if taken is None:
            return
        part, to_call = taken
        try:
            marks = self._marks
            if self._shape is not None:
                payload, partition_key, marks = self._shape(content, partition_key)
            else:
                payload = self._encode(content)
            if self._ended(part):
                return
            if not self._topic.name.is_persistent:
                raise NotAllowedError(f"{self.topic()} is not persistent: there are no transactions")
            key, metadata = key_and_metadata(
                properties, partition_key, ordering_key, sequence_id, replication_clusters, disable_replication,
                event_timestamp, deliver_at, deliver_after,
            )  # fmt: skip
            if self._router is not None:
                outgoing = OutgoingMessage(payload, properties, partition_key, ordering_key, event_timestamp)
                partition = self._routing.ask(outgoing)
            else:
                partition = self._partition_of(key if partition_key else None)
            with pulsar_errors():
                part.register(str(self._topic.name.base), partition)
            metadata = replace(metadata or MessageMetadata(), txn=txn.txn_id)
            self._send_part(part, to_call, payload, key, metadata, partition, sequence_id, marks)
        except PulsarException as failure:
            if isinstance(part, Answer):
                part.end(f"a send failed: {failure}")
                raise
            part(failure.result, NO_ID)
        except BaseException:  # a wrong argument: the program hears of it, and nothing was sent
            part.end(None)
            raise

    def _taking_part(
        self, txn: Transaction, callback: SendCallback | None
    ) -> tuple[TransactionalSend, SendCallback] | None:
        """The send as an operation of the transaction, and what is to be called with its report; None when the sender
        was told that the transaction is not open."""
        part = taking_part(txn, callback)
        return None if part is None else (part, part)

    def _partition_of(self, key: bytes | None) -> int:
        return self._single if key is None and self._single is not None else self._spread(key)

    def _send_part(
        self,
        part: TransactionalSend,
        callback: SendCallback,
        payload: bytes | None,
        key: bytes | None,
        metadata: MessageMetadata,
        partition: int,
        sequence_id: int | None,
        marks: Marks,
    ) -> None:
        """As the hot path does it; the record's timestamp is the part's."""
        if payload is not None and len(payload) > self._whole_bytes:
            self._send_chunks(payload, callback, marks, key, metadata, partition, sequence_id, part.stamp)
            return
        ticket = self._ticket_now(callback)
        if ticket is None:
            return
        sequence = next(self._sequence) if sequence_id is None else sequence_id
        while True:
            ticket.sequence, ticket.origin, ticket.callback = sequence, self._origins[partition], callback
            headers: list[tuple[str, str | bytes | None]] = [(PRODUCER, f"{sequence}{self._producer_header}")]
            headers += encode_headers(metadata)
            headers += marks
            try:
                self._produce(self._kafka_topic, payload, key, partition, ticket, None, part.stamp(), headers)
                break
            except BufferError:
                self._kafka.poll_inline(_BLOCKED_POLL_S)
            except Exception as refused:
                another = self._after_refusal(refused, ticket)
                if another is None:
                    return
                ticket = another
        self._kafka.poll_inline()
        if self._kafka.asleep:
            self._kafka.wake()

    def _ticket_now(self, callback: SendCallback | None) -> Ticket | None:
        """A ticket; None when the caller was told that there is none."""
        try:
            return self._take_ticket()
        except IndexError:
            return self._ticket_when_free(callback)

    # Life ---------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Return when everything sent before this call was answered (stored or failed)."""
        self._check_open()
        with pulsar_errors():
            self._wait_for_all(Deadline.never())

    def close(self) -> None:
        """Wait for what is under way, then refuse further calls.

        Raises:
            AlreadyClosed: it was closed before.
            Timeout: messages are still unanswered after 30 s.
        """
        self._check_open()
        self._closed = True
        self._takes_bytes = False
        try:
            with pulsar_errors():
                if left := self._wait_for_all(Deadline.after(_CLOSE_TIMEOUT_S)):
                    raise Timeout(f"producer {self._name}: {left} messages to {self.topic()} are unanswered")
        finally:
            self._on_close(self)
            self._note_sequences()
            self._leave()

    def _note_sequences(self) -> None:
        if not self._deduplication.active:
            return
        try:
            self._deduplication.note(Deadline.after(_LEAVE_TIMEOUT_S), final=True)
        except errors.LayerError as failure:
            _log.warning("producer=%s whoever opens it next has to read the log: %s", self._name, failure)

    def _leave(self) -> None:
        try:
            self._membership.leave(Deadline.after(_LEAVE_TIMEOUT_S))
        except errors.LayerError as failure:
            _log.warning("producer=%s its claim on %s ends with this process: %s", self._name, self.topic(), failure)

    def _throw_out(self, reason: errors.ProducerExcluded) -> None:
        """Refuse every further send with ProducerFenced; returns when what is under way was answered."""
        self._thrown_out = str(reason)
        self._takes_bytes = False
        self._wait_for_all(Deadline.after(_THROW_OUT_TIMEOUT_S))

    def grow(self, partitions: int, deadline: Deadline) -> None:
        """The topic has that many partitions now: spread over all of them. Ours, for the client's discovery."""
        if self._closed or partitions <= self._routing.partitions:
            return
        self._kafka.learn_partitions(self._kafka_topic, partitions, deadline)
        if self._deduplication.active and self._fixed is None:
            self._deduplication.open(range(self._routing.partitions, partitions), deadline)
        self._origins += [
            PartitionOrigin(self._topic.layout, self._topic.partition_field(number), "")
            for number in range(len(self._origins), partitions)
        ]
        self._routing.partitions = partitions

    # Deduplication ------------------------------------------------------------------------------------------------

    def follow_deduplication(self, wanted: bool, deadline: Deadline) -> None:
        """The policy's value is `wanted`. Ours, for the client's policy watch.

        The first time that it is on, messages only begin to pass the `Deduplication`; it judges them from the next time
        on, when no thread is left that numbered a message without it.

        Raises:
            LayerError: not possible now; to be called again.
        """
        deduplication = self._deduplication
        if self._closed or self._thrown_out is not None:
            return
        if wanted and not self._deduplicates:
            self._ask_deduplication()
        elif wanted and not deduplication.active:
            partitions = range(self._routing.partitions) if self._fixed is None else (self._fixed,)
            deduplication.reopen(partitions, deadline)
            self._producer_header = producer_suffix(deduplication.epoch, self._name)
            self._set_deduplication(active=True)
        elif deduplication.active and not wanted:
            self._set_deduplication(active=False)
            deduplication.end(deadline)
        elif deduplication.active:
            deduplication.note(deadline)

    def _ask_deduplication(self) -> None:
        self._deduplicates = True
        self._deduplication.next = next(self._sequence)
        self._sequence = itertools.repeat(ASSIGN)
        self._use(self._in_flight)

    def _set_deduplication(self, *, active: bool) -> None:
        self._deduplication.active = active

    def _over(self, produce: Callable[..., None]) -> Callable[..., None]:
        return self._deduplication.over(produce)

    # The hot path -------------------------------------------------------------------------------------------------

    def _after_refusal(self, refused: Exception, ticket: Ticket) -> Ticket | None:
        """The ticket to try again with when librdkafka gave up the Kafka producer (None: the sender was told why not).

        Raises:
            PulsarException: any other refusal; the message is not on its way.
        """
        given_up = ticket.in_flight
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
            if not isinstance(failure, errors.NotAuthorized):
                raise as_pulsar(failure) from refused
            self._tell(callback, as_pulsar(failure))  # librdkafka knew it before it asked
        return again

    def _replace(self, given_up: InFlight) -> None:
        """Go on with another Kafka producer, unless another thread has seen to that."""
        with pulsar_errors(), self._renewing:
            if self._in_flight is given_up:
                self._use(self._new_in_flight(self._renew(), given_up.last_sequence_id))
                former = (*self._former, given_up)
                self._former = [each for each in former if each.under_way() > 0]
                self._answered_before += sum(each.settled for each in former if each not in self._former)

    def _new_in_flight(self, kafka: KafkaProducer, last_sequence_id: int) -> InFlight:
        return InFlight(self._max_pending, kafka, partial(self._failed, kafka), last_sequence_id)

    def _use(self, in_flight: InFlight) -> None:
        self._in_flight = in_flight
        self._take_ticket = in_flight.take
        self._kafka = in_flight.kafka
        produce = in_flight.kafka.produce
        if self._encryptor is not None:
            produce = self._encryptor.over(produce)
        self._produce = self._over(produce) if self._deduplicates else produce

    def seal_with(self, sealer: Sealer) -> None:
        """Have it stand between this producer and librdkafka, from the next send on."""
        self._encryptor = sealer
        self._use(self._in_flight)

    def _ended(self, callback: SendCallback | None) -> bool:
        """The producer was closed or thrown out, which the caller was told."""
        if self._closed:
            self._tell(callback, AlreadyClosed(f"producer {self._name} of {self.topic()} is closed"))
        elif self._thrown_out is not None:
            self._tell(callback, ProducerFenced(self._thrown_out))
        else:
            return False
        return True

    @staticmethod
    def _tell(callback: SendCallback | None, refusal: PulsarException) -> None:
        """A synchronous send raises, an asynchronous one gets the result in its callback."""
        if callback is None or isinstance(callback, Answer):
            raise refusal
        callback(refusal.result, NO_ID)

    def _failed(self, kafka: KafkaProducer, error: Any, callback: SendCallback | None) -> None:
        why = kafka.why_refused(error, self._kafka_topic, f"message to {self.topic()}")
        self._answer_failure(as_pulsar(why), callback)

    def _answer_failure(self, failure: PulsarException, callback: SendCallback | None) -> None:
        self._failures += 1
        if isinstance(callback, Answer):
            callback.error = failure
        if callback is not None:
            callback(failure.result, NO_ID)

    # Off the hot path ---------------------------------------------------------------------------------------------

    def _encode(self, content: Any) -> bytes | None:
        if content is None:
            return None
        return self._schema.encode(content)

    def _send_large(self, payload: bytes, callback: SendCallback | None, marks: Marks, *options: Any) -> None:
        self._too_big(payload, callback)

    def _send_chunks(self, payload: bytes, callback: SendCallback | None, *options: Any) -> None:
        """A message of a transaction that is above the limit."""
        self._too_big(payload, callback)

    def _too_big(self, payload: bytes, callback: SendCallback | None) -> None:
        self._tell(callback, MessageTooBig(f"{len(payload)} bytes of payload, the limit is {MAX_MESSAGE_BYTES}"))

    def _ticket_when_free(self, callback: SendCallback | None) -> Ticket | None:
        """The ticket for one more message; None when the caller was told that the queue is full."""
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

    def _check_open(self) -> None:
        if self._closed:
            raise AlreadyClosed(f"producer {self._name} of {self.topic()} is closed")
