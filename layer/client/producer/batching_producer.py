"""`Producer` with `batching_enabled=True`: collects messages and sends each batch as one record."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.scheduler import Scheduler
from pulsar_on_kafka.client.producer.confirmed_producer import ConfirmedProducer
from pulsar_on_kafka.client.producer.producer import Producer
from pulsar_on_kafka.client.producer.transactional_sends import TransactionalSend
from pulsar_on_kafka.client.values.enums import BatchingType
from pulsar_on_kafka.client.values.transaction import Transaction
from pulsar_on_kafka.deduplication.deduplication_machine import DeduplicationVerdict
from pulsar_on_kafka.exceptions import AlreadyClosed, ProducerQueueIsFull, PulsarException
from pulsar_on_kafka.kafka.errors import ours
from pulsar_on_kafka.kafka.producer import KafkaProducer
from pulsar_on_kafka.kafka.rights import on_topic
from pulsar_on_kafka.kafka.settings import MAX_MESSAGE_BYTES
from pulsar_on_kafka.mapping.errors import MappingError
from pulsar_on_kafka.mapping.ids.txn_id import TxnId
from pulsar_on_kafka.mapping.records.message_record import MessageMetadata
from pulsar_on_kafka.mapping.records.record_headers import PRODUCER
from pulsar_on_kafka.sending.batches import Batch, BatchesInFlight, Container, when_handed_over
from pulsar_on_kafka.sending.deduplication import WaitingMessage, tell_duplicate
from pulsar_on_kafka.sending.in_flight import SendCallback
from pulsar_on_kafka.sending.official_errors import as_pulsar, pulsar_errors
from pulsar_on_kafka.sending.outgoing_message import OutgoingMessage, key_and_metadata
from pulsar_on_kafka.sending.outgoing_schema import Marks
from pulsar_on_kafka.sending.record_key import RecordKey

_BLOCKED_POLL_S: Final = 0.05
_PER_MESSAGE_BYTES: Final = 8
"""What a message takes in a batch besides its content, at most; a batch of empty messages ends, too."""
_LONG_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class BatchingOptions:
    """`max_messages`, `max_bytes` and `delay_s` end a batch, whichever comes first; 0 bytes or seconds: each message is
    a batch of its own, as officially."""

    max_messages: int
    max_bytes: int
    delay_s: float
    kind: BatchingType


class BatchingProducer(Producer):
    """A synchronous `send` waits for its batch like any other message, as officially.

    Memory: `max_pending_messages` counts the messages that wait for their batch as well.
    """

    def __init__(self, *args: Any, batching: BatchingOptions, timer: Scheduler, **options: Any) -> None:
        self._gate = threading.Lock()
        """Held while a message joins a batch and while a batch is handed to librdkafka; never while waiting."""
        self._open: dict[int, Container] = {}
        """The containers that hold something, in the order in which they began to."""
        self._ready: deque[Batch] = deque()
        super().__init__(*args, **options)
        self._max_messages = batching.max_messages
        self._max_bytes = min(batching.max_bytes, MAX_MESSAGE_BYTES) if batching.delay_s > 0 else 0
        self._delay_s = batching.delay_s
        self._by_key = batching.kind is BatchingType.KeyBased
        self._timer = timer
        self._containers = [Container(number) for number in range(len(self._origins))]
        self._filling: Batch | None = None
        """The open batch that messages without a key join, when no router has a say."""
        self._last_place = self._full_place()
        self._timed = False
        self._unkeyed = self._spread(None)
        """Where messages without a key go until that partition's batch is full."""

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
        """Put a message into a batch; the callback hears of it when the batch is stored. Raises as
        `Producer.send_async`."""
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
        if payload is not None and len(payload) > MAX_MESSAGE_BYTES:
            self._too_big(payload, callback)
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
            # Nearly every message joins a batch that has room; all that it takes is here, without a further call.
            size = _PER_MESSAGE_BYTES if payload is None else len(payload) + _PER_MESSAGE_BYTES
            with self._gate:
                batch = self._filling
                if batch is not None:
                    container = self._containers[batch.partition]
                    in_flight = batch.in_flight
                    if (
                        container.messages < self._last_place
                        and container.size_bytes + size < self._max_bytes
                        and in_flight.taken - in_flight.released < self._max_pending
                    ):
                        sequence = batch.origin.next_sequence_id()
                        batch.payloads.append(payload)
                        callbacks = batch.callbacks
                        callbacks.append(callback)
                        if sequence != batch.first_sequence + len(callbacks) - 1:
                            batch.irregular_sequence(sequence)
                        container.messages += 1
                        container.size_bytes += size
                        in_flight.taken += 1
                        return
            key = metadata = None
        else:
            key, metadata = key_and_metadata(
                properties, partition_key, ordering_key, sequence_id, replication_clusters, disable_replication,
                event_timestamp, deliver_at, deliver_after,
            )  # fmt: skip
            _check_fits(sequence_id, event_timestamp, metadata)
        if self._router is not None and not (key is None and self._single is not None):
            outgoing = OutgoingMessage(payload, properties, partition_key, ordering_key, event_timestamp)
            partition = self._routing.ask(outgoing)
        elif partition_key and key is not None and self._fixed is None:
            partition = self._spread(key)
        else:
            partition = -1
        self._join(payload, callback, partition, key, metadata, sequence_id, marks)
        if self._ready:
            self._publish_ready()

    def _partition_of(self, key: bytes | None) -> int:
        return self._unkeyed if key is None or self._fixed is not None else self._spread(key)

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
        if payload is not None and len(payload) > MAX_MESSAGE_BYTES:
            self._too_big(payload, callback)
            return
        _check_fits(sequence_id, metadata.event_time_ms, metadata)
        self._join(payload, callback, partition, key, metadata, sequence_id, marks, part.stamp)
        self._publish_ready()

    def _join(
        self,
        payload: bytes | None,
        callback: SendCallback | None,
        partition: int,
        key: bytes | None,
        metadata: MessageMetadata | None,
        sequence_id: int | None,
        marks: Marks,
        stamp: Callable[[], int] = when_handed_over,
    ) -> None:
        """Put a message into its batch; `partition` -1 is the one whose turn it is."""
        while True:
            with self._gate:
                in_flight: BatchesInFlight = self._in_flight  # type: ignore[assignment]
                if in_flight.taken - in_flight.released < self._max_pending:
                    container = self._containers[partition if partition >= 0 else self._unkeyed]
                    origin = self._origins[container.partition]
                    sequence = origin.next_sequence_id() if sequence_id is None else sequence_id
                    txn = None if metadata is None else metadata.txn
                    if self._is_new(container.partition, sequence, txn):
                        in_flight.taken += 1
                        self._put(container, in_flight, payload, callback, key, metadata, sequence, marks, stamp)
                        return
                    waiting = WaitingMessage(in_flight, callback, sequence, origin)
                    in_flight.outstanding.add(waiting)
                    if self._deduplication.wait_for_answer(container.partition, sequence, waiting, txn):
                        in_flight.taken += 1
                        return
                    in_flight.outstanding.discard(waiting)
                    origin.last_sequence_id = sequence
                    break
                self._seal_all()  # officially, too: nothing is waited for that only a full batch would bring
            if not self._wait_for_room(callback):
                return
        tell_duplicate(callback, origin, 0)

    def _is_new(self, partition: int, sequence: int, txn: TxnId | None) -> bool:
        if not self._deduplication.active:
            return True
        with pulsar_errors():
            return self._deduplication.admit(partition, sequence, txn) is DeduplicationVerdict.NEW

    def _put(
        self,
        container: Container,
        in_flight: BatchesInFlight,
        payload: bytes | None,
        callback: SendCallback | None,
        key: bytes | None,
        metadata: MessageMetadata | None,
        sequence: int,
        marks: Marks,
        stamp: Callable[[], int],
    ) -> None:
        size = _PER_MESSAGE_BYTES if payload is None else len(payload) + _PER_MESSAGE_BYTES
        alone = metadata is not None and _goes_alone(metadata)
        if container.messages and (alone or container.size_bytes + size > self._max_bytes or container.marks != marks):
            self._seal(container)
        sticky = _sticky_key(key, metadata) if self._by_key else None
        batch = container.batches.get(sticky)
        if batch is None:
            batch = container.batches[sticky] = Batch(
                in_flight, self._origins[container.partition], container.partition, sequence, marks
            )
            in_flight.outstanding.add(batch)
            if container.messages == 0:
                container.marks = marks
                self._opened(container)
            if sticky is None and container.partition == self._unkeyed and self._router is None and not self._shape:
                self._filling = batch
        batch.payloads.append(payload)
        batch.callbacks.append(callback)
        if sequence != batch.first_sequence + len(batch.payloads) - 1:
            batch.irregular_sequence(sequence)
        if alone and metadata is not None:
            batch.alone = key, metadata
            batch.stamp = stamp
        elif key is not None or metadata is not None:
            size += batch.describe(key, metadata)
        container.messages += 1
        container.size_bytes += size
        if alone or container.messages >= self._max_messages or container.size_bytes >= self._max_bytes:
            self._seal(container)

    def _opened(self, container: Container) -> None:
        container.opened_s = time.monotonic()
        self._open[container.partition] = container
        if not self._timed and self._max_bytes:
            self._timed = True
            self._timer.call_at(container.opened_s + self._delay_s, self._on_time)

    def grow(self, partitions: int, deadline: Deadline) -> None:
        with self._gate:
            self._containers += [Container(number) for number in range(len(self._containers), partitions)]
        super().grow(partitions, deadline)

    # Ending batches -----------------------------------------------------------------------------------------------

    def _seal(self, container: Container) -> None:
        """Nothing joins these batches any more; in the gate."""
        del self._open[container.partition]
        self._ready += container.take()
        if container.partition == self._unkeyed:
            self._filling = None
            self._unkeyed = self._spread(None)

    def _seal_all(self) -> None:
        for container in list(self._open.values()):
            self._seal(container)

    def _on_time(self) -> None:
        """End the batches that are as old as they may get. One call at a time waits in the timer."""
        latest_s = time.monotonic() - self._delay_s
        with self._gate:
            for container in list(self._open.values()):
                if container.opened_s <= latest_s:
                    self._seal(container)
            self._timed = bool(self._open)
            if self._timed:
                next_s = min(container.opened_s for container in self._open.values())
        if self._timed:
            self._timer.call_at(next_s + self._delay_s, self._on_time)
        self._publish_ready()

    def _publish_ready(self) -> None:
        """Hand sealed batches to librdkafka, in order.

        Waits outside of the gate: whoever serves delivery reports may be calling back somebody who sends.
        """
        while self._ready:
            with self._gate:
                if not self._ready:
                    return
                batch = self._ready[0]
                kafka = self._kafka
                failure = self._hand_over(batch)
                if failure is None or (not isinstance(failure, BufferError) and kafka.fatal is None):
                    self._ready.popleft()
            if failure is None:
                kafka.poll_inline()
            elif isinstance(failure, BufferError):
                kafka.wait_for_reports(_BLOCKED_POLL_S)
            else:
                self._refused(batch, kafka, failure)
                continue
            if kafka.asleep:
                kafka.wake()

    def _hand_over(self, batch: Batch) -> Exception | None:
        """Why librdkafka did not take it; BufferError: it has no room just now."""
        in_flight: BatchesInFlight = self._in_flight  # type: ignore[assignment]
        if batch.in_flight is not in_flight:
            batch.in_flight.move_to(in_flight, batch)
            batch.in_flight = in_flight
        try:
            value, key, headers = batch.record()
            producer = (PRODUCER, f"{batch.first_sequence}{self._producer_header}")
            every = [producer, *batch.marks, *headers]
            self._produce(self._kafka_topic, value, key, batch.partition, batch, None, batch.stamp(), every)
        except Exception as refused:
            return refused
        return None

    def _refused(self, batch: Batch, kafka: KafkaProducer, refused: Exception) -> None:
        if kafka.fatal is not None:
            try:
                self._replace(batch.in_flight)
                return
            except PulsarException as another:
                failure = another
                with self._gate:
                    self._ready.remove(batch)
        else:
            cause = (
                refused
                if isinstance(refused, MappingError)
                else ours(refused, f"batch to {self.topic()}", on_topic("Write", self._kafka_topic))
            )
            failure = as_pulsar(cause)
        self._deduplication.refused(batch.partition, batch.sequence_ids())
        batch.refused(lambda callback: self._answer_failure(failure, callback))

    # Deduplication ------------------------------------------------------------------------------------------------

    def _have_counted(self, partition: int) -> None:
        """Ids are given and judged in the gate, when a message joins its batch."""

    def _set_deduplication(self, *, active: bool) -> None:
        """Every batch goes out under the rule that its messages joined it under."""
        while True:
            with self._gate:
                if not self._ready and not self._open:
                    self._deduplication.active = active
                    self._last_place = self._full_place()
                    return
                self._seal_all()
            self._publish_ready()

    def _over(self, produce: Callable[..., None]) -> Callable[..., None]:
        return self._deduplication.over_batches(produce)

    def _full_place(self) -> int:
        """The last place in a batch; none where every message has to be judged first."""
        return -1 if self._deduplication.active else self._max_messages - 1

    # Waiting ------------------------------------------------------------------------------------------------------

    def _wait_for_room(self, callback: SendCallback | None) -> bool:
        """True when there may be room again; False when the sender was told that the queue is full."""
        if self._closed:
            raise AlreadyClosed(f"producer {self._name} of {self.topic()} is closed")
        self._publish_ready()
        if not self._block:
            full = f"producer {self._name} has {self._max_pending} unanswered messages"
            self._tell(callback, ProducerQueueIsFull(full))
            return False
        self._in_flight.wait_for_room()
        return True

    def _wait_for_all(self, deadline: Deadline) -> int:
        while True:
            with self._gate:
                self._seal_all()
                # Now, not later: what a callback sends from now on may lie in a batch that nobody seals for long.
                sent = [(each, each.sent()) for each in (*self._former, self._in_flight)]
            self._publish_ready()
            left = sum(each.wait_for(those, deadline) for each, those in sent)
            if self._in_flight is sent[-1][0]:
                return left
            # A Kafka producer that was given up has handed its messages on: they are waited for there.

    def _new_in_flight(self, kafka: KafkaProducer) -> BatchesInFlight:
        return BatchesInFlight(self._max_pending, kafka, partial(self._failed, kafka))


class ConfirmedBatchingProducer(ConfirmedProducer, BatchingProducer):
    """Batches of a producer that has the topic for itself."""


def _sticky_key(key: bytes | None, metadata: MessageMetadata | None) -> bytes | None:
    """Messages of one such key share a batch. Source: BatchMessageKeyBasedContainer (the ordering key comes first)."""
    return metadata.ordering_key if metadata is not None and metadata.ordering_key is not None else key


def _goes_alone(metadata: MessageMetadata) -> bool:
    """It has something that only a record has, not a message of a batch. Source: ProducerImpl::canAddToBatch."""
    return (
        metadata.deliver_at_ms is not None
        or metadata.replicate_to is not None
        or metadata.txn is not None
        or metadata.schema_version is not None
    )


def _check_fits(sequence_id: int | None, event_timestamp: int | None, metadata: MessageMetadata | None) -> None:
    """What one message of a batch has must not keep the others from being written."""
    if sequence_id is not None and sequence_id > _LONG_MAX:
        raise ValueError(f"sequence_id must be at most {_LONG_MAX}, got {sequence_id}")
    if event_timestamp is not None and event_timestamp > _LONG_MAX:
        raise TypeError(f"event_timestamp must be at most {_LONG_MAX}, got {event_timestamp}")
    if metadata is not None:
        for name, value in metadata.properties.items():
            try:
                name.encode("utf-8")
                value.encode("utf-8")
            except UnicodeEncodeError as error:
                raise MappingError(f"property {name!r:.60} is {value!r:.60}, expected no lone surrogates") from error
