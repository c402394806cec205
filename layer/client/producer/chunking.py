"""A message that is too big for one record is sent as several. Source: ProducerImpl::sendAsyncWithStatsUpdate of the
official client."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.meters import SendCounts
from pulsar_on_kafka.client.producer.confirmed_producer import ConfirmedProducer
from pulsar_on_kafka.client.producer.producer import Producer
from pulsar_on_kafka.deduplication.deduplication_machine import DeduplicationVerdict
from pulsar_on_kafka.exceptions import MessageTooBig, ProducerQueueIsFull, PulsarException, Result
from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka.kafka.errors import ours
from pulsar_on_kafka.kafka.rights import on_topic
from pulsar_on_kafka.kafka.settings import MAX_MESSAGE_BYTES
from pulsar_on_kafka.mapping.ids.native_message_id import ChunkedMessageId, NativeMessageId, PartitionOrigin
from pulsar_on_kafka.mapping.ids.txn_id import TxnId
from pulsar_on_kafka.mapping.records.message_record import ChunkInfo, Headers, MessageMetadata, encode_headers
from pulsar_on_kafka.mapping.records.record_headers import PRODUCER
from pulsar_on_kafka.sending.deduplication import Produce, answer_duplicate
from pulsar_on_kafka.sending.in_flight import NO_ID, SendCallback, SendsInFlight, Ticket
from pulsar_on_kafka.sending.official_errors import as_pulsar
from pulsar_on_kafka.sending.outgoing_message import OutgoingMessage, key_and_metadata
from pulsar_on_kafka.sending.outgoing_schema import Marks
from pulsar_on_kafka.sending.record_key import RecordKey

_log = logging.getLogger(__name__)

FRAMING_BYTES: Final = 1024
"""Room for what Kafka puts around key, value and headers of one record."""
_PER_HEADER_BYTES: Final = 10
_CHUNK_HEADER_BYTES: Final = 160
_KEY_AND_HEADERS_BYTES: Final = 64 * 1024
_LONGEST_NAME_IN_UUID: Final = 60
_BLOCKED_POLL_S: Final = 0.05


def record_limit(admin: KafkaAdmin, kafka_topic: str, deadline: Deadline) -> int:
    """Bytes of key, value and headers that one record of the topic may have: 5 MiB, as Pulsar's `maxMessageSize`, or
    less where the topic's `max.message.bytes` is lower."""
    try:
        allowed = admin.topic_configs(kafka_topic, deadline).get("max.message.bytes")
    except errors.NotAuthorized as forbidden:
        _log.info("topic=%s its max.message.bytes is not to be seen, 5 MiB it is: %s", kafka_topic, forbidden)
        return MAX_MESSAGE_BYTES
    if allowed is None:
        return MAX_MESSAGE_BYTES
    return max(FRAMING_BYTES, min(MAX_MESSAGE_BYTES, int(allowed) - FRAMING_BYTES))


class ChunkedSend:
    """One message under way in several records. Its sender hears once, when all of them were answered.

    Memory: two offsets and a count; the chunks are in librdkafka's queue.
    """

    def __init__(self, chunks: int, callback: SendCallback | None) -> None:
        self.chunks = chunks
        self.callback = callback
        self.failure: PulsarException | None = None
        self.admitted: tuple[int, int] | None = None
        """Partition and sequence id, where deduplication is to hear how it ended."""
        self._unanswered = chunks
        self._ends: dict[bool, NativeMessageId] = {}
        self._lock = threading.Lock()

    def stored(self, message_id: NativeMessageId, *, last: bool | None) -> bool:
        """`last`: it is the last chunk (False: the first one; None: neither). True when this was the last answer."""
        if last is not None:
            self._ends[last] = message_id
        return self.answered(1)

    def answered(self, chunks: int) -> bool:
        with self._lock:
            self._unanswered -= chunks
            return self._unanswered == 0

    def last_offset(self, origin: PartitionOrigin) -> int | None:
        """Of the last chunk, where it is known."""
        return _offset(origin, self._ends.get(True, NO_ID))

    def message_id(self, origin: PartitionOrigin) -> NativeMessageId:
        """NO_ID when a retry found a chunk stored already, whose offset nobody knows then."""
        first, last = (_offset(origin, self._ends[end]) for end in (False, True))
        return NO_ID if first is None or last is None else ChunkedMessageId(origin, first, last)


class ChunkReport:
    """The callback of one chunk."""

    __slots__ = ("_last", "_producer", "origin", "send")

    def __init__(self, producer: Chunking, send: ChunkedSend, origin: PartitionOrigin, last: bool | None) -> None:
        self.send = send
        self.origin = origin
        self._producer = producer
        self._last = last

    def __call__(self, result: Result, message_id: NativeMessageId) -> None:
        """Called for a stored chunk only: failures go to `Chunking._answer_failure`."""
        if self.send.stored(message_id, last=self._last):
            self._producer.answer(self)


class Chunking(Producer):
    """A producer with `chunking_enabled`: a message above the limit is several records of one partition, with one
    sequence id and one time.

    Every record carries key, properties and the other metadata, and counts as a message under way
    (`max_pending_messages`), as officially. Messages are sent in chunks one at a time.

    Memory: as any producer's, where each chunk counts, besides the message that is being sent.
    """

    def __init__(self, *args: Any, record_bytes: int, **options: Any) -> None:
        """`record_bytes`: see `record_limit`."""
        self._record_bytes = record_bytes
        self._one_message = threading.RLock()
        self._more_chunks = 0
        """By how many the chunks that were answered are more than the messages that they are of."""
        self._counting = threading.Lock()
        super().__init__(*args, **options)
        # Below it every message whose key and headers are not huge fits into one record.
        self._whole_bytes = max(0, record_bytes - _KEY_AND_HEADERS_BYTES)

    def send_counts(self) -> SendCounts:
        counts = super().send_counts()
        return SendCounts(counts.sent - self._more_chunks, counts.failed, counts.pending)

    def _send_large(
        self,
        payload: bytes,
        callback: SendCallback | None,
        marks: Marks,
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
        key, metadata = key_and_metadata(
            properties, partition_key, ordering_key, sequence_id, replication_clusters, disable_replication,
            event_timestamp, deliver_at, deliver_after,
        )  # fmt: skip
        if self._router is None:
            partition = self._spread(key if partition_key else None)
        else:
            outgoing = OutgoingMessage(payload, properties, partition_key, ordering_key, event_timestamp)
            partition = self._routing.ask(outgoing)
        self._send_chunks(payload, callback, marks, key, metadata or MessageMetadata(), partition, sequence_id, _now_ms)

    def _send_chunks(
        self,
        payload: bytes,
        callback: SendCallback | None,
        marks: Marks,
        key: bytes | None,
        metadata: MessageMetadata,
        partition: int,
        sequence_id: int | None,
        stamp: Callable[[], int],
    ) -> None:
        """`stamp` gives the time that all records carry; it may refuse the message with an error."""
        room = self._room(key, [*encode_headers(metadata), *marks])
        if room <= 0:
            self._tell(callback, MessageTooBig(f"key and headers leave no room below {self._record_bytes} bytes"))
            return
        pieces = [payload[start : start + room] for start in range(0, len(payload), room)] or [payload]
        if len(pieces) > 1 and not self._needs_headers(callback, chunks=True):
            return
        with self._one_message:
            sequence = self._origins[partition].next_sequence_id() if sequence_id is None else sequence_id
            tickets = self._tickets(len(pieces), callback)
            send = ChunkedSend(len(pieces), callback)
            if tickets and self._deduplicates and send.chunks > 1:
                admitted = self._admitted(tickets, partition, sequence, send, metadata.txn)
                if admitted is None:
                    return
                sequence = admitted
            if tickets:
                self._send_pieces(pieces, tickets, sequence, partition, key, metadata, marks, send, stamp)

    def _admitted(
        self, tickets: list[Ticket], partition: int, given: int, send: ChunkedSend, txn: TxnId | None
    ) -> int | None:
        """The sequence id to send under; None when the message was stored before, or is under way, and its sender
        hears so."""
        try:
            verdict, sequence, counts = self._deduplication.admit_chunked(partition, given, txn)
        except BaseException:
            self._give_back(tickets)
            self._count(len(tickets))
            raise
        if verdict is DeduplicationVerdict.NEW:
            send.admitted = (partition, sequence) if counts else None
            return sequence
        self._give_back(tickets[1:])
        self._count(len(tickets) - 1)
        ticket = tickets[0]
        ticket.sequence, ticket.origin, ticket.callback = sequence, self._origins[partition], send.callback
        if verdict is DeduplicationVerdict.DUPLICATE or not self._deduplication.wait_for_answer(
            partition, sequence, ticket, txn
        ):
            answer_duplicate(ticket)
        return None

    def _room(self, key: bytes | None, extra: Headers) -> int:
        """Payload of one chunk; officially the limit without the metadata."""
        used = len(key or b"") + len(self._producer_header) + _CHUNK_HEADER_BYTES + len(PRODUCER)
        used += sum(len(name.encode()) + len(value or b"") + _PER_HEADER_BYTES for name, value in extra)
        if self._encryptor is not None:
            used += self._encryptor.overhead_bytes() + _PER_HEADER_BYTES
        return self._record_bytes - used

    def _tickets(self, count: int, callback: SendCallback | None) -> list[Ticket]:
        """One for each chunk; none when the caller was told that they cannot be had."""
        if count > self._max_pending:  # blocking would never end
            full = f"a message of {count} chunks, producer {self._name} has room for {self._max_pending}"
            self._tell(callback, ProducerQueueIsFull(full))
            return []
        tickets: list[Ticket] = []
        try:
            while len(tickets) < count:
                ticket = self._ticket_now(callback)
                if ticket is None:
                    break
                tickets.append(ticket)
        finally:
            if len(tickets) < count:
                self._give_back(tickets)
                self._count(len(tickets))
        return tickets if len(tickets) == count else []

    @staticmethod
    def _give_back(tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            ticket.callback = None
            ticket.in_flight.give_back(ticket)

    def _count(self, more: int) -> None:
        with self._counting:
            self._more_chunks += more

    def _send_pieces(
        self,
        pieces: Sequence[bytes],
        tickets: list[Ticket],
        sequence: int,
        partition: int,
        key: bytes | None,
        metadata: MessageMetadata,
        marks: Marks,
        send: ChunkedSend,
        stamp: Callable[[], int],
    ) -> None:
        count, callback = send.chunks, send.callback
        origin = self._origins[partition]
        # Not the producer's name and the sequence id alone, as officially: what is left of a message whose producer
        # died is never mixed with what its successor sends.
        uuid = f"{self._name[:_LONGEST_NAME_IN_UUID]}-{sequence}-{secrets.token_hex(6)}"
        total = sum(map(len, pieces))
        try:
            now_ms = stamp()
        except Exception as refused:
            self._refused(refused, tickets, send, callback, first=True)
            return
        for number, piece in enumerate(pieces):
            ticket = tickets[number]
            ticket.sequence, ticket.origin = sequence, origin
            headers: list[tuple[str, str | bytes | None]] = [(PRODUCER, f"{sequence}{self._producer_header}")]
            if count > 1:
                last = None if 0 < number < count - 1 else number > 0
                ticket.callback = ChunkReport(self, send, origin, last)
                headers += encode_headers(replace(metadata, chunk=ChunkInfo(number, count, total, uuid)))
            else:
                ticket.callback = callback
                headers += encode_headers(metadata)
            headers += marks
            try:
                produce = self._produce if count == 1 else self._produce_chunk
                self._produce_one(produce, piece, key, partition, ticket, now_ms, headers)
            except Exception as refused:
                self._refused(refused, tickets[number:], send, callback, first=number == 0)
                return
        self._kafka.poll_inline()
        if self._kafka.asleep:
            self._kafka.wake()

    def _use(self, in_flight: SendsInFlight) -> None:
        super()._use(in_flight)
        self._produce_chunk = self._way_out(in_flight.kafka)

    def _produce_one(
        self,
        produce: Produce,
        piece: bytes,
        key: bytes | None,
        partition: int,
        ticket: Ticket,
        now_ms: int,
        headers: list[Any],
    ) -> None:
        while True:
            try:
                produce(self._kafka_topic, piece, key, partition, ticket, None, now_ms, headers)
                return
            except BufferError:
                self._kafka.wait_for_reports(_BLOCKED_POLL_S)

    def _refused(
        self,
        refused: Exception,
        unsent: Sequence[Ticket],
        send: ChunkedSend,
        callback: SendCallback | None,
        *,
        first: bool,
    ) -> None:
        """Nothing more of this message is sent; what is on its way already will never be a message."""
        given_up = unsent[0].in_flight
        origin = unsent[0].origin
        failure = as_pulsar(ours(refused, f"message to {self.topic()}", on_topic("Write", self._kafka_topic)))
        self._give_back(unsent)
        if given_up.kafka.fatal is not None:
            self._replace(given_up)
        if first:
            self._tell_deduplication(send, None, stored=False)
            self._failures += 1
            self._count(len(unsent) - 1)
            self._tell(callback, failure)
            return
        send.failure = send.failure or failure
        if send.answered(len(unsent)):
            self.answer(ChunkReport(self, send, origin, None))

    # Answers ------------------------------------------------------------------------------------------------------

    def _answer_failure(self, failure: PulsarException, callback: SendCallback | None) -> None:
        if not isinstance(callback, ChunkReport):
            super()._answer_failure(failure, callback)
            return
        callback.send.failure = callback.send.failure or failure
        if callback.send.answered(1):
            self.answer(callback)

    def answer(self, report: ChunkReport) -> None:
        """Every chunk was answered: so is the sender."""
        send = report.send
        self._count(send.chunks - 1)
        self._tell_deduplication(send, send.last_offset(report.origin), stored=send.failure is None)
        if send.failure is not None:
            super()._answer_failure(send.failure, send.callback)
        elif send.callback is not None:
            send.callback(Result.Ok, send.message_id(report.origin))

    def _tell_deduplication(self, send: ChunkedSend, last_offset: int | None, *, stored: bool) -> None:
        if send.admitted is not None:
            self._deduplication.chunked_answered(*send.admitted, last_offset, stored=stored)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _offset(origin: PartitionOrigin, message_id: NativeMessageId) -> int | None:
    if message_id is NO_ID:
        return None
    return origin.layout.kafka_offset(max(0, origin.partition), message_id.ledger_id(), message_id.entry_id())


class ChunkingProducer(Chunking):
    """This producer sends chunks to a topic that other producers may write to, too."""


class ConfirmedChunkingProducer(Chunking, ConfirmedProducer):
    """This producer sends chunks to a topic that it has for itself."""
