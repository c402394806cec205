"""Messages are collected in batches, each of which is one record: the way of a producer with batching."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Refused
from pulsar_on_kafka.base.forks import OfOneProcess
from pulsar_on_kafka.base.reentry import ReentryGuard
from pulsar_on_kafka.base.scheduler import Scheduler
from pulsar_on_kafka.broker.deduplication.deduplication_machine import DeduplicationVerdict
from pulsar_on_kafka.broker.publishing.batches import BatchesInFlight, Container, OutgoingBatch
from pulsar_on_kafka.broker.publishing.deduplication import WaitingMessage, report_duplicate
from pulsar_on_kafka.broker.publishing.in_flight import SendCallback, report_refusal
from pulsar_on_kafka.broker.publishing.message_pipeline import Steps
from pulsar_on_kafka.broker.publishing.official_errors import as_pulsar, pulsar_errors
from pulsar_on_kafka.broker.publishing.outgoing_message import UNCHOSEN, ReadyMessage, SendRequest
from pulsar_on_kafka.broker.publishing.outgoing_schema import RecordKey
from pulsar_on_kafka.broker.publishing.outlet import Outlet
from pulsar_on_kafka.broker.publishing.routing import Routing
from pulsar_on_kafka.broker.publishing.transactional_sends import Transaction
from pulsar_on_kafka.exceptions import PulsarException
from pulsar_on_kafka.kafka.producer import KafkaProducer
from pulsar_on_kafka.kafka.settings import MAX_MESSAGE_BYTES
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.records.message_record import MessageMetadata
from pulsar_on_kafka_mapping.records.record_headers import PRODUCER

_PER_MESSAGE_BYTES: Final = 8
"""The largest overhead of a message in a batch besides its content; a batch of empty messages ends, too."""
_LONG_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class BatchingOptions:
    """`max_messages`, `max_bytes` and `delay_s` end a batch, whichever comes first; 0 bytes or seconds: each message is
    a batch of its own, as officially."""

    max_messages: int
    max_bytes: int
    delay_s: float
    by_key: bool
    """Messages of one key share a batch, and those of others have another."""


class Batching(OfOneProcess):
    """The way of one producer's messages in batches. Thread-safe.

    Memory: `max_pending_messages` counts the messages that wait for their batch as well.
    """

    def __init__(
        self,
        outlet: Outlet[BatchesInFlight],
        steps: Steps,
        routing: Routing,
        options: BatchingOptions,
        timer: Scheduler,
    ) -> None:
        self.plain = steps.plain
        self._outlet = outlet
        self._steps = steps
        self._deduplication = outlet.admitted.deduplication
        self._gate = ReentryGuard()
        """Held while a message joins a batch and while a batch is handed to librdkafka; never while waiting."""
        self._gate_lock = self._gate.lock
        self._open: dict[int, Container] = {}
        """The containers that hold something, in the order in which they began to."""
        self._ready: deque[OutgoingBatch] = deque()
        self._max_pending = outlet.max_pending
        self._max_messages = options.max_messages
        self._max_bytes = min(options.max_bytes, MAX_MESSAGE_BYTES) if options.delay_s > 0 else 0
        self._delay_s = options.delay_s
        self._by_key = options.by_key
        self._timer = timer
        self._containers = [Container(number) for number in range(len(outlet.origins))]
        self._filling: OutgoingBatch | None = None
        """The open batch that messages of plain bytes join, where they may."""
        self._last_place = self._full_place()
        self._timed = False
        self._spread = routing.spread
        self._unkeyed = routing.spread(None)
        """The partition of messages without a key until its batch is full."""

    def send(
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
        txn: Transaction | None = None,
    ) -> None:
        """Puts one message into a batch; the callback is called when the batch is stored. Arguments and replies are
        those of `Producer.send_async`, which this is."""
        payload: bytes | None = None
        key: bytes | None = None
        if (
            properties is None
            and txn is None
            and ordering_key is None
            and sequence_id is None
            and event_timestamp is None
            and deliver_at is None
            and deliver_after is None
            and replication_clusters is None
            and not disable_replication
        ):
            plain = self.plain
            if type(content) is plain.taken:
                payload = content
            elif (encode := plain.encode) is not None and content is not None:
                payload = encode(content)
            if partition_key is not None:
                if type(partition_key) is str and partition_key:
                    key = partition_key.encode("utf-8")
                else:
                    payload = None  # it needs a closer look
        if payload is None or len(payload) > MAX_MESSAGE_BYTES:
            request = SendRequest(
                content, callback, properties, partition_key, ordering_key, sequence_id, replication_clusters,
                disable_replication, event_timestamp, deliver_at, deliver_after, txn,
            )  # fmt: skip
            self._steps.take(request, self)
            return
        if partition_key is not None:
            self.put(ReadyMessage(payload, key, None, self._spread(key), callback, None, plain.marks))
            return
        # Nearly every message joins a batch that has room; all that it takes is here, without a further call.
        size = len(payload) + _PER_MESSAGE_BYTES
        with self._gate_lock:  # no call inside, so a signal handler finds the batch whole (`ReentryGuard.lock`)
            batch = self._filling
            if batch is not None:
                container, in_flight, origin = self._containers[batch.partition], batch.in_flight, batch.origin
                sequence = origin.next_of_batch
                if (
                    container.messages < self._last_place
                    and container.size_bytes + size < self._max_bytes
                    and in_flight.taken - in_flight.settled_aside < self._max_pending
                    and sequence == batch.next_sequence
                ):
                    origin.next_of_batch = batch.next_sequence = sequence + 1
                    batch.payloads += (payload,)
                    batch.callbacks += (callback,)
                    container.messages += 1
                    container.size_bytes += size
                    in_flight.taken += 1
                    return
        self.put(ReadyMessage(payload, None, None, UNCHOSEN, callback, marks=plain.marks))

    def put(self, message: ReadyMessage) -> None:
        """Put a message that is more than plain bytes, or the first one, into a batch. Raises as `Way.put`."""
        payload, metadata = message.payload, message.metadata
        if payload is not None and len(payload) > MAX_MESSAGE_BYTES:
            self._outlet.refuse_size(payload, message.callback)
            return
        if metadata is not None:
            _check_fits(metadata)
        try:
            self._join(message)
        except Refused as refused:
            raise as_pulsar(refused) from refused
        if self._ready:
            self._publish_ready()

    def unkeyed(self) -> int:
        return self._unkeyed

    def _join(self, message: ReadyMessage) -> None:
        outlet, callback = self._outlet, message.callback
        txn = None if message.metadata is None else message.metadata.txn
        given = message.sequence_id
        while True:
            with self._gate:
                in_flight = outlet.in_flight
                if in_flight.has_room():
                    partition = self._unkeyed if message.partition == UNCHOSEN else message.partition
                    origin = outlet.origins[partition]
                    if given is None:
                        given = origin.next_of_batch
                        origin.next_of_batch = given + 1
                    sequence = given
                    verdict = self._admit(partition, sequence, txn)
                    if verdict is DeduplicationVerdict.NEW:
                        in_flight.taken += 1
                        self._put(in_flight, message, self._containers[partition], sequence)
                        return
                    if verdict is DeduplicationVerdict.DUPLICATE:
                        origin.last_sequence_id = sequence
                        break
                    waiting = WaitingMessage(in_flight, callback, sequence, origin)
                    in_flight.outstanding.add(waiting)
                    if self._deduplication.wait_for_answer(partition, sequence, waiting, txn):
                        in_flight.taken += 1
                        return
                    in_flight.outstanding.discard(waiting)
                    continue  # the message that it repeats was answered meanwhile
                self._seal_all()  # officially, too: nothing is waited for that only a full batch would bring
            if not self._wait_for_room(callback):
                return
        report_duplicate(callback, origin, 0)

    def _admit(self, partition: int, sequence: int, txn: TxnId | None) -> DeduplicationVerdict:
        if not self._deduplication.active:
            return DeduplicationVerdict.NEW
        with pulsar_errors():
            return self._deduplication.admit(partition, sequence, txn)

    def _put(self, in_flight: BatchesInFlight, message: ReadyMessage, container: Container, sequence: int) -> None:
        """Add a message to its container, in the gate."""
        payload, key, metadata, callback = message.payload, message.key, message.metadata, message.callback
        marks, stamp = message.marks, message.stamp
        size = _PER_MESSAGE_BYTES if payload is None else len(payload) + _PER_MESSAGE_BYTES
        alone = metadata is not None and _goes_alone(metadata)
        if container.messages and (alone or container.size_bytes + size > self._max_bytes or container.marks != marks):
            self._seal(container)
        sticky = _sticky_key(key, metadata) if self._by_key else None
        batch = container.batches.get(sticky)
        if batch is None:
            batch = self._begun(in_flight, container, sticky, message, sequence)
        batch.payloads.append(payload)
        batch.callbacks.append(callback)
        if sequence != batch.first_sequence + len(batch.payloads) - 1:
            batch.irregular_sequence(sequence)
        batch.next_sequence = batch.first_sequence + len(batch.payloads)
        if alone and metadata is not None:
            batch.alone = key, metadata
            batch.stamp = stamp
        elif key is not None or metadata is not None:
            size += batch.describe(key, metadata)
        container.messages += 1
        container.size_bytes += size
        if alone or container.messages >= self._max_messages or container.size_bytes >= self._max_bytes:
            self._seal(container)

    def _begun(
        self,
        in_flight: BatchesInFlight,
        container: Container,
        sticky: bytes | None,
        message: ReadyMessage,
        sequence: int,
    ) -> OutgoingBatch:
        partition, marks = container.partition, message.marks
        batch = OutgoingBatch(in_flight, self._outlet.origins[partition], partition, sequence, marks)
        container.batches[sticky] = batch
        in_flight.outstanding.add(batch)
        if container.messages == 0:
            container.marks = marks
            container.opened_s = time.monotonic()
            self._open[partition] = container
            if not self._timed and self._max_bytes:
                self._timed = True
                self._timer.call_at(container.opened_s + self._delay_s, self._on_time)
        if sticky is None and partition == self._unkeyed and marks is self.plain.marks:
            self._filling = batch
        return batch

    def grow(self, partitions: int) -> None:
        """The topic has so many partitions now."""
        with self._gate:
            self._containers += [Container(number) for number in range(len(self._containers), partitions)]
        self._outlet.grow(partitions)

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
        self._publish_ready(calls=False)  # a callback that sends and waits would wait for this thread

    def _publish_ready(self, *, calls: bool = True) -> None:
        """Hands sealed batches to librdkafka, in order. `calls`: see `poll_inline`.

        Waits outside of the gate: the thread that serves delivery reports may be running a callback that sends.
        """
        while self._ready:
            with self._gate:
                if not self._ready:
                    return
                batch = self._ready[0]
                kafka = self._outlet.kafka
                failure = self._hand_over(batch)
                if failure is None or (not isinstance(failure, BufferError) and kafka.fatal is None):
                    self._ready.popleft()
            if failure is None:
                kafka.poll_inline(calls=calls)
            elif isinstance(failure, BufferError):
                kafka.wait_for_reports(calls=calls)
            else:
                self._refused(batch, kafka, failure)
                continue
            if kafka.asleep:
                kafka.wake()

    def _hand_over(self, batch: OutgoingBatch) -> Exception | None:
        """Why librdkafka did not take it; BufferError: it has no room just now."""
        outlet = self._outlet
        in_flight = outlet.in_flight
        if batch.in_flight is not in_flight:
            batch.in_flight.move_to(in_flight, batch)
            batch.in_flight = in_flight
        try:
            value, key, headers = batch.record()
            every = [(PRODUCER, outlet.header % batch.first_sequence), *batch.marks, *headers]
            at_ms = 0 if batch.stamp is None else batch.stamp()
            outlet.produce(outlet.kafka_topic, value, key, batch.partition, batch, None, at_ms, every)
        except Exception as refused:  # by librdkafka, or by a check before it: its senders get the reason
            return refused
        return None

    def _refused(self, batch: OutgoingBatch, kafka: KafkaProducer, refused: Exception) -> None:
        outlet = self._outlet
        if kafka.fatal is not None:
            try:
                outlet.replace(batch.in_flight)
                return
            except PulsarException as another:
                failure = another
                with self._gate:
                    self._ready.remove(batch)
        else:
            failure = as_pulsar(refused if isinstance(refused, MappingError) else outlet.why_refused(refused, "batch"))
        self._deduplication.refused(batch.partition, batch.sequence_ids())
        batch.refused(lambda callback: outlet.answer_failure(failure, callback))

    # Deduplication ------------------------------------------------------------------------------------------------

    def use_deduplication(self) -> None:
        """Routes every batch through deduplication; ids are given and judged when a message joins its batch."""
        self._outlet.deduplicate()

    def set_deduplication(self, *, active: bool) -> None:
        """Switches the judging of deduplication on or off. Every batch is sent under the rule that its messages joined
        it under."""
        while True:
            with self._gate:
                if not self._ready and not self._open:
                    self._deduplication.active = active
                    self._last_place = self._full_place()
                    return
                self._seal_all()
            self._publish_ready()

    def _full_place(self) -> int:
        """The last place in a batch; none where every message has to be judged first."""
        return -1 if self._deduplication.active else self._max_messages - 1

    # Waiting ------------------------------------------------------------------------------------------------------

    def _wait_for_room(self, callback: SendCallback | None) -> bool:
        """True when there may be room again; False when the sender got the error that the queue is full."""
        outlet = self._outlet
        if outlet.closed:
            raise outlet.is_closed()
        self._publish_ready()
        if not outlet.limits.block_if_full:
            report_refusal(callback, outlet.is_full())
            return False
        return outlet.wait_for_room(callback)

    def wait_for_all(self, deadline: Deadline) -> int:
        """Return when everything that was sent was answered; how many the deadline left."""
        outlet = self._outlet
        while True:
            with self._gate:
                self._seal_all()
                # Evaluated now: messages that a callback sends from now on may lie in a batch that is not sealed for
                # long.
                sent = [(each, each.sent()) for each in (*outlet.former, outlet.in_flight)]
            self._publish_ready()
            left = sum(each.wait_for(those, deadline) for each, those in sent)
            if outlet.in_flight is sent[-1][0]:
                return left
            # A Kafka producer that was given up has handed its messages on: they are waited for there.


def _sticky_key(key: bytes | None, metadata: MessageMetadata | None) -> bytes | None:
    """Messages of one such key share a batch. Source: BatchMessageKeyBasedContainer (the ordering key comes first)."""
    return metadata.ordering_key if metadata is not None and metadata.ordering_key is not None else key


def _goes_alone(metadata: MessageMetadata) -> bool:
    """Whether the message has a property that only a record can carry, not a message of a batch. Source:
    ProducerImpl::canAddToBatch."""
    return (
        metadata.deliver_at_ms is not None
        or metadata.replicate_to is not None
        or metadata.txn is not None
        or metadata.schema_version is not None
    )


def _check_fits(metadata: MessageMetadata) -> None:
    """Rejects a message whose metadata would prevent the rest of its batch from being written."""
    if metadata.event_time_ms > _LONG_MAX:
        raise TypeError(f"event_timestamp must be at most {_LONG_MAX}, got {metadata.event_time_ms}")
    for name, value in metadata.properties.items():
        try:
            name.encode("utf-8")
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise MappingError(f"property {name!r:.60} is {value!r:.60}, expected no lone surrogates") from error
