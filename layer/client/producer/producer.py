"""`Producer`: sends messages, one Kafka record each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.client.producer.transactional_producer import TransactionalProducer
from pulsar_on_kafka.client.values.stats_log import StatsLine
from pulsar_on_kafka.client.values.transaction import Transaction
from pulsar_on_kafka.exceptions import AlreadyClosed, Timeout
from pulsar_on_kafka.kafka.producer import KafkaProducer
from pulsar_on_kafka.mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka.mapping.records.message_record import encode_headers
from pulsar_on_kafka.mapping.records.record_headers import PRODUCER, producer_suffix
from pulsar_on_kafka.metadata.producers.membership import Membership
from pulsar_on_kafka.metadata.topics import Topic
from pulsar_on_kafka.schema.plain import BytesSchema
from pulsar_on_kafka.sending.in_flight import SendCallback, SendResult
from pulsar_on_kafka.sending.official_errors import pulsar_errors
from pulsar_on_kafka.sending.outgoing_message import OutgoingMessage, is_more_than_plain, key_and_metadata
from pulsar_on_kafka.sending.outgoing_schema import OutgoingSchema
from pulsar_on_kafka.sending.outlet import Headers
from pulsar_on_kafka.sending.record_key import RecordKey

_log = logging.getLogger(__name__)

_POLL_MASK: Final = 127
_CLOSE_TIMEOUT_S: Final = 30.0
_LEAVE_TIMEOUT_S: Final = 5.0
_THROW_OUT_TIMEOUT_S: Final = 5.0


class Producer(TransactionalProducer):
    """A producer publishes to one topic. Thread-safe. Source: `pulsar.Producer`.

    Memory: at most `max_pending_messages` unanswered messages; beyond that `send_async` waits
    (`block_if_queue_full`) or answers `ProducerQueueIsFull`.
    """

    def __init__(
        self,
        topic: Topic,
        kafka: KafkaProducer,
        *,
        schema: OutgoingSchema,
        membership: Membership,
        on_close: Callable[[Producer], None],
        **options: Any,
    ) -> None:
        """`options`: as `TransactionalProducer` and `Outlet`."""
        if membership.claim.exclusive:
            schema.of_exclusive_producer()
        super().__init__(topic, kafka, schema=schema, epoch=membership.epoch, **options)
        self._takes_bytes = type(schema.schema) is BytesSchema
        """Bytes need no look at anything else. False once closed or thrown out, which makes a send look."""
        self._on_close = on_close
        self._membership = membership
        membership.when_thrown_out(self._throw_out)

    # Public -------------------------------------------------------------------------------------------------------

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
        answer = SendResult()
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
            if self._ended(callback) or (payload is None and not self._needs_headers(callback)):
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
            if metadata is not None:
                if is_more_than_plain(metadata) and not self._needs_headers(callback):
                    return
                extra = encode_headers(metadata)
            else:
                extra = None
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
        origin = self._origins[partition]
        sequence = origin.next_sequence_id() if sequence_id is None else sequence_id
        ticket.sequence = sequence
        ticket.origin = origin
        ticket.callback = callback
        headers: Headers = [(PRODUCER, f"{sequence}{self._producer_header}")]
        if extra is not None:
            headers += extra
        if marks:
            headers += marks
        try:
            # topic, value, key, partition, callback, its alias, timestamp (0: now), headers; keywords cost more
            self._produce(self._kafka_topic, payload, key, partition, ticket, None, 0, headers)
        except Exception as refused:
            again = self._after_refusal(refused, ticket)
            if again is None or not self._offer(again, payload, key, partition, headers):
                return
        kafka = self._kafka
        if sequence & _POLL_MASK == 0:
            kafka.poll_inline()
        if kafka.asleep:
            kafka.wake()

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
        self._quota_gate.give_up()
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
        self._grow_origins(partitions)
        self._routing.partitions = partitions

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

    def _check_open(self) -> None:
        if self._closed:
            raise AlreadyClosed(f"producer {self._name} of {self.topic()} is closed")
