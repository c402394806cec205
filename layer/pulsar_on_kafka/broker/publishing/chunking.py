"""A message that is too big for one record is sent as several. Source: ProducerImpl::sendAsyncWithStatsUpdate of the
official client."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Sequence
from typing import Final

from msgspec import structs

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.deduplication.deduplication_machine import DeduplicationVerdict
from pulsar_on_kafka.broker.publishing.deduplication import Produce, answer_duplicate
from pulsar_on_kafka.broker.publishing.in_flight import (
    NO_ID,
    OwnCallback,
    SendCallback,
    SendsInFlight,
    Ticket,
    is_prompt,
    report_refusal,
)
from pulsar_on_kafka.broker.publishing.official_errors import as_pulsar
from pulsar_on_kafka.broker.publishing.outgoing_message import ReadyMessage
from pulsar_on_kafka.broker.publishing.outlet import Outlet
from pulsar_on_kafka.exceptions import MessageTooBig, ProducerQueueIsFull, PulsarException, Result
from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka.kafka.settings import FRAMING_BYTES, MAX_MESSAGE_BYTES
from pulsar_on_kafka_mapping.ids.native_message_id import ChunkedMessageId, NativeMessageId, PartitionOrigin
from pulsar_on_kafka_mapping.records.message_record import ChunkInfo, Headers, MessageMetadata, encode_headers
from pulsar_on_kafka_mapping.records.record_headers import PRODUCER, SCHEMA_IDS

_log = logging.getLogger(__name__)

_PER_HEADER_BYTES: Final = 10
_CHUNK_HEADER_BYTES: Final = 160
KEY_AND_HEADERS_BYTES: Final = 64 * 1024
_LONGEST_NAME_IN_UUID: Final = 60


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
    """One message under way in several records. Its sender gets one report, when all records were answered.

    Memory: two offsets and a count; the chunks are in librdkafka's queue.
    """

    def __init__(self, chunks: int, callback: SendCallback | None) -> None:
        self.chunks = chunks
        self.callback = callback
        self.failure: PulsarException | None = None
        self.admitted: tuple[int, int] | None = None
        """Partition and sequence id for the report to deduplication."""
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
        """The offset of the last chunk, where it is known."""
        return _offset(origin, self._ends.get(True, NO_ID))

    def message_id(self, origin: PartitionOrigin) -> NativeMessageId:
        """NO_ID when a retry found a chunk already stored: its offset is unknown then."""
        first, last = (_offset(origin, self._ends[end]) for end in (False, True))
        return NO_ID if first is None or last is None else ChunkedMessageId(origin, first, last)


class ChunkReport(OwnCallback):
    """The callback of one chunk."""

    of_message = False

    def __init__(self, chunking: Chunking, send: ChunkedSend, origin: PartitionOrigin, last: bool | None) -> None:
        self._chunking = chunking
        self._send = send
        self._origin = origin
        self._last = last
        self.prompt = is_prompt(send.callback)

    def __call__(self, result: Result, message_id: NativeMessageId) -> None:
        """Called for a stored chunk only."""
        if self._send.stored(message_id, last=self._last):
            self._chunking.answer(self._send, self._origin)

    def fail(self, failure: PulsarException) -> None:
        self._chunking.failed(self._send, failure, 1, self._origin)


class Chunking:
    """A message above the limit becomes several records of one partition, with one sequence id and one time.

    Every record carries key, properties and the other metadata, and counts as a message under way
    (`max_pending_messages`), as officially. Messages are sent in chunks one at a time.

    Memory: as any producer's, where each chunk counts, besides the message that is being sent.
    """

    def __init__(self, outlet: Outlet[SendsInFlight], record_bytes: int) -> None:
        """`record_bytes`: see `record_limit`."""
        self.whole_bytes = max(0, record_bytes - KEY_AND_HEADERS_BYTES)
        """Below it every message whose key and headers are not huge fits into one record."""
        self._outlet = outlet
        self._record_bytes = record_bytes
        self._one_message = threading.RLock()

    def put(self, message: ReadyMessage) -> None:
        """Send a message, in as many records as it takes. Raises PulsarException to who waits for the answer."""
        payload, callback = message.payload, message.callback
        assert payload is not None  # noqa: S101 - what has none is not large
        room = self._room(message.key, [*message.metadata_headers(), *message.marks])
        if room <= 0:
            report_refusal(callback, MessageTooBig(f"key and headers leave no room below {self._record_bytes} bytes"))
            return
        pieces = [payload[start : start + room] for start in range(0, len(payload), room)] or [payload]
        if len(pieces) > 1 and not self._outlet.on_record(callback, chunks=True):
            return
        outlet = self._outlet
        with self._one_message:
            if message.sequence_id is None:
                message = structs.replace(message, sequence_id=outlet.origins[message.partition].next_sequence_id())
            tickets = self._tickets(len(pieces), callback)
            send = ChunkedSend(len(pieces), callback)
            if tickets and (len(pieces) == 1 or not outlet.deduplicates):
                self._send(pieces, tickets, message, send)
            elif tickets:
                self._send_if_new(pieces, tickets, message, send)

    def _send_if_new(
        self, pieces: Sequence[bytes], tickets: list[Ticket], message: ReadyMessage, send: ChunkedSend
    ) -> None:
        """Sends a new message; the sender of a message that was stored before or is under way gets that result."""
        assert message.sequence_id is not None  # noqa: S101 - `put` gave it one
        txn = None if message.metadata is None else message.metadata.txn
        deduplication, partition = self._outlet.admitted.deduplication, message.partition
        sequence, ticket = message.sequence_id, tickets[0]
        while True:
            try:
                verdict, sequence, counts = deduplication.admit_chunked(partition, sequence, txn)
            except BaseException:
                self._give_back(tickets, len(tickets))
                raise
            if verdict is DeduplicationVerdict.NEW:
                send.admitted = (partition, sequence) if counts else None
                self._send(pieces, tickets, structs.replace(message, sequence_id=sequence), send)
                return
            ticket.sequence, ticket.origin, ticket.callback = sequence, self._outlet.origins[partition], send.callback
            is_stored = verdict is DeduplicationVerdict.DUPLICATE
            if is_stored or deduplication.wait_for_answer(partition, sequence, ticket, txn):
                self._give_back(tickets[1:], len(tickets) - 1)
                if is_stored:
                    answer_duplicate(ticket)
                return

    def _room(self, key: bytes | None, extra: Headers) -> int:
        """Payload of one chunk; officially the limit without the metadata."""
        outlet = self._outlet
        used = len(key or b"") + len(outlet.header) + _CHUNK_HEADER_BYTES + len(PRODUCER)
        used += sum(len(name.encode()) + len(value or b"") + _PER_HEADER_BYTES for name, value in extra)
        if outlet.sealer is not None:
            used += outlet.sealer.overhead_bytes() + _PER_HEADER_BYTES
        return self._record_bytes - used

    def _tickets(self, count: int, callback: SendCallback | None) -> list[Ticket]:
        """One ticket for each chunk; an empty list when the sender got the error that none are left."""
        most = self._outlet.max_pending
        if count > most:  # blocking would never end
            name = self._outlet.admitted.name
            report_refusal(
                callback, ProducerQueueIsFull(f"a message of {count} chunks, producer {name} has room for {most}")
            )
            return []
        tickets: list[Ticket] = []
        try:
            while len(tickets) < count:
                ticket = self._outlet.ticket(callback)
                if ticket is None:
                    break
                tickets.append(ticket)
        finally:
            if len(tickets) < count:
                self._give_back(tickets, len(tickets))
        return tickets if len(tickets) == count else []

    def _give_back(self, tickets: Sequence[Ticket], of_no_message: int) -> None:
        for ticket in tickets:
            ticket.callback = None
            ticket.in_flight.give_back(ticket)
        self._outlet.count_records(of_no_message)

    def _send(self, pieces: Sequence[bytes], tickets: list[Ticket], message: ReadyMessage, send: ChunkedSend) -> None:
        outlet, sequence, count = self._outlet, message.sequence_id, send.chunks
        assert sequence is not None  # noqa: S101 - `put` gave it one
        origin = outlet.origins[message.partition]
        # Not the producer's name and the sequence id alone, as officially: what is left of a message whose producer
        # died is never mixed with what its successor sends.
        uuid = f"{outlet.admitted.name[:_LONGEST_NAME_IN_UUID]}-{sequence}-{secrets.token_hex(6)}"
        total = sum(map(len, pieces))
        try:
            now_ms = time.time_ns() // 1_000_000 if message.stamp is None else message.stamp()
        except Exception as refused:  # the transaction timed out, for example: the sender gets the reason
            self._refused(refused, tickets, send, origin, first=True)
            return
        for number, piece in enumerate(pieces):
            ticket = tickets[number]
            ticket.sequence, ticket.origin, ticket.callback = sequence, origin, send.callback
            headers: Headers = [(PRODUCER, outlet.header % sequence)]
            if count > 1:
                last = None if 0 < number < count - 1 else number > 0
                ticket.callback = ChunkReport(self, send, origin, last)
                chunk = ChunkInfo(number, count, total, uuid)
                headers += encode_headers(structs.replace(message.metadata or MessageMetadata(), chunk=chunk))
                headers += [mark for mark in message.marks if mark[0] not in SCHEMA_IDS]  # a chunk is no value of it
            else:
                headers += [*message.metadata_headers(), *message.marks]
            try:
                self._produce(
                    outlet.produce if count == 1 else outlet.produce_admitted, piece, message, ticket, now_ms, headers
                )
            except Exception as refused:  # by librdkafka, or by a check before it: the sender gets the reason
                self._refused(refused, tickets[number:], send, origin, first=number == 0)
                return
        outlet.kafka.poll_inline()
        if outlet.kafka.asleep:
            outlet.kafka.wake()

    def _produce(
        self, produce: Produce, piece: bytes, message: ReadyMessage, ticket: Ticket, now_ms: int, headers: Headers
    ) -> None:
        topic = self._outlet.kafka_topic
        while True:
            try:
                produce(topic, piece, message.key, message.partition, ticket.report, None, now_ms, headers)
                return
            except BufferError:
                self._outlet.kafka.wait_for_reports()

    def _refused(
        self, refused: Exception, unsent: Sequence[Ticket], send: ChunkedSend, origin: PartitionOrigin, *, first: bool
    ) -> None:
        """Nothing more of this message is sent; what is on its way already will never be a message."""
        outlet = self._outlet
        given_up = unsent[0].in_flight
        failure = as_pulsar(outlet.why_refused(refused))
        self._give_back(unsent, len(unsent) - 1 if first else 0)
        if given_up.kafka.fatal is not None:
            outlet.replace(given_up)
        if first:
            self._report_to_deduplication(send, None, stored=False)
            outlet.failures += 1
            report_refusal(send.callback, failure)
        else:
            self.failed(send, failure, len(unsent), origin)

    def failed(self, send: ChunkedSend, failure: PulsarException, chunks: int, origin: PartitionOrigin) -> None:
        """Counts this number of chunks as not stored."""
        send.failure = send.failure or failure
        if send.answered(chunks):
            self.answer(send, origin)

    def answer(self, send: ChunkedSend, origin: PartitionOrigin) -> None:
        """Every chunk was answered: so is the sender."""
        self._outlet.count_records(send.chunks - 1)
        if send.failure is None and send.admitted is not None:
            void = self._outlet.admitted.deduplication.why_void()
            send.failure = None if void is None else as_pulsar(void)
        self._report_to_deduplication(send, send.last_offset(origin), stored=send.failure is None)
        if send.failure is not None:
            self._outlet.answer_failure(send.failure, send.callback)
        elif send.callback is not None:
            send.callback(Result.Ok, send.message_id(origin))

    def _report_to_deduplication(self, send: ChunkedSend, last_offset: int | None, *, stored: bool) -> None:
        if send.admitted is not None:
            self._outlet.admitted.deduplication.chunked_answered(*send.admitted, last_offset, stored=stored)


def _offset(origin: PartitionOrigin, message_id: NativeMessageId) -> int | None:
    if message_id is NO_ID:
        return None
    return origin.layout.kafka_offset(max(0, origin.partition), message_id.ledger_id(), message_id.entry_id())
