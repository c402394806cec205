"""Batch entries on their way to consumers: one record, many messages.

An entry goes to one consumer as a whole, so in-flight messages and redeliveries are counted by entries, as in Pulsar (a
redelivered entry omits acknowledged messages); queues, permits and limits count messages. Source:
AbstractBaseDispatcher.filterEntriesForConsumer, ConsumerImpl::receiveIndividualMessagesFromBatch.

A batch entry that cannot be read is reported (logged as an error, counted in `PartitionStats.corrupt_entries`) and
acknowledged, as Pulsar's clients do (`BatchDeSerializeError`): it would fail for every consumer, every time, and its
neighbours are not to wait for it. Messages of a batch that cannot be read are reported and acknowledged likewise; the
other messages of the batch are delivered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, repeat
from operator import itemgetter, methodcaller
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Corrupt
from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.subscriptions.records.chunks import WholeMessage
from pulsar_on_kafka.broker.subscriptions.records.compressed import uncompressed, uncompressed_size
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import (
    MAX_BYTES_AT_ONCE,
    BatchAck,
    BatchEntry,
    Delivery,
    EntryDelivery,
    PartitionConsumer,
)
from pulsar_on_kafka.broker.subscriptions.records.decryption import uncompressed_record
from pulsar_on_kafka.kafka.reading.fetcher import Fetcher
from pulsar_on_kafka.kafka.records import headers_of, packed_headers_of
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.records.batch_entry import EntryMessages, decode_batch
from pulsar_on_kafka_mapping.records.message_record import BatchInfo, batch_info, is_plain
from pulsar_on_kafka_mapping.records.record_headers import BATCH, MARKER, PayloadFormat
from pulsar_on_kafka_mapping.wire import single_messages
from pulsar_on_kafka_mapping.wire.ack_sets import indexes_of

_log = logging.getLogger(__name__)

_OFFSET: Final = itemgetter(0)
_RECORD_OFFSET: Final[Callable[[Any], int]] = methodcaller("offset")
_OF_PULSAR: Final = b"%d:" % PayloadFormat.PULSAR_BATCH
_KNOWN: Final = tuple(int(form) for form in PayloadFormat)
_ALONE: Final = b"%d:" % PayloadFormat.PULSAR_MESSAGE
_NONE: Final[Mapping[int, BatchAckSet]] = MappingProxyType({})


class UnknownBatchFormat(CorruptRecord):
    """A later version wrote the entry: it is not corrupt, so it must not be skipped."""


def is_batch(record: Any) -> bool:
    """Whether this is a batch entry, of any form; one compressed message is none."""
    return any(name == BATCH and (value or b"")[:2] != _ALONE for name, value in headers_of(record) or ())


def payload_form(record: Any) -> BatchInfo | None:
    """Returns the form of a record's value, and its number of messages; None for the payload of one plain message.

    Raises:
        CorruptRecord: the headers cannot be read.
        UnknownBatchFormat: it has another form than this version knows.
    """
    headers = headers_of(record)
    if not any(name == BATCH for name, _ in headers or ()):
        return None
    info = batch_info(headers)
    if info is not None and info.format_version not in _KNOWN:
        raise UnknownBatchFormat(
            f"batch entry of format {info.format_version}, this version reads {', '.join(map(str, _KNOWN))}: "
            "a newer one is needed"
        )
    return info


def batch_size(record: Any) -> int:
    """Number of messages that a record's headers name; 0 when it is no batch entry. Raises as `payload_form`."""
    form = payload_form(record)
    return 0 if form is None or form.format_version == PayloadFormat.PULSAR_MESSAGE else form.messages


def messages_in(record: Any, value: bytes, size: int) -> EntryMessages:
    """The messages of a batch entry in whichever form it has them; `value` is its value in clear.

    Raises:
        CorruptRecord: the value is no batch of `size` messages, or none of them can be read.
    """
    if not any(name == BATCH and (form or b"")[:2] == _OF_PULSAR for name, form in headers_of(record) or ()):
        return decode_batch(value, size)
    return single_messages.PulsarBatch(uncompressed(record, value), size)


class UnreadableMessages(NamedTuple):
    """Some messages of a batch entry cannot be read; `reason` is the first one's."""

    acks: BatchAckSet
    reason: CorruptRecord

    def messages(self) -> Iterable[tuple[int, int]]:
        """Batch index and size of the batch, of each."""
        return ((index, self.acks.batch_size) for index in indexes_of(self.acks.acked))

    def __str__(self) -> str:
        return f"{self.acks.acked.bit_count()} of the {self.acks.batch_size} messages of its batch: {self.reason}"


def unpack(
    record: Any, size: int, consumer: PartitionConsumer, offset: int, redeliveries: int, acked: BatchAckSet | None
) -> tuple[list[Delivery], UnreadableMessages | None]:
    """Returns the messages of a batch entry that are not in `acked`, in order; and those that cannot be read.

    Raises:
        CorruptRecord: its value is no batch of `size` messages.
    """
    value = record.value()
    if value is None:
        raise CorruptRecord(f"batch entry has no value, expected {size} messages")
    entry = BatchEntry(messages_in(record, value, size), size)
    make = consumer.endpoint.delivery_type.in_batch
    if acked is not None and acked.batch_size != size:
        raise CorruptRecord(f"batch entry has {size} messages, the cursor knows {acked.batch_size}")
    left_out = 0 if acked is None else acked.acked
    lost = [index for index in entry.columns.unreadable if not left_out >> index & 1]
    if not lost and not left_out:
        same = map(repeat, (record, consumer, offset, redeliveries))
        return list(map(make, *same, range(size), repeat(entry))), None
    unreadable = sum(1 << index for index in lost)
    requested = indexes_of(((1 << size) - 1) & ~(left_out | unreadable))
    found = [make(record, consumer, offset, redeliveries, index, entry) for index in requested]
    if not lost:
        return found, None
    return found, UnreadableMessages(BatchAckSet(size, unreadable), entry.columns.unreadable[lost[0]])


def is_marker(record: Any) -> bool:
    """Whether this is a marker: a record without payload that is never delivered."""
    return any(name == MARKER for name, _ in headers_of(record) or ())


class Begun(NamedTuple):
    """Reading begins inside of the batch entry at `offset`, with batch index `first`."""

    offset: int
    first: int


def messages_of(
    records: Sequence[Any],
    consumer: PartitionConsumer,
    begun: Begun | None,
    left_out: Mapping[int, BatchAckSet] = _NONE,
) -> list[Delivery]:
    """Returns the messages of a run of records for a reader: batches unpacked, without those `left_out` (by offset),
    without markers and without unreadable ones, which are reported."""
    make = consumer.endpoint.delivery_type
    whole = make is EntryDelivery
    if not whole and all(is_plain(packed_headers_of(record)) for record in records):
        return list(map(make, records, repeat(consumer), map(_RECORD_OFFSET, records), repeat(0)))
    found: list[Delivery] = []
    for record in records:
        offset = record.offset()
        try:
            size = batch_size(record)
            if whole:
                if not is_marker(record):
                    found += _entry_of(record, consumer, size, begun, left_out.get(offset))
                continue
            body, readable = consumer.decrypted(record)
            if body is None:
                continue
            if size and readable:
                messages, lost = unpack(
                    body, size, consumer, offset, 0, _passed(offset, size, begun, left_out.get(offset))
                )
                found += messages
                _report_lost(consumer, offset, lost)
            elif type(body) is WholeMessage:
                if readable:
                    body.check()
                found.append(make.in_chunks(body, consumer, offset, 0))
            elif not is_marker(record):
                found.append(make(uncompressed_record(body) if readable else body, consumer, offset, 0))
        except UnknownBatchFormat as reason:
            raise Corrupt(f"{consumer.slot.topic_name} at offset {offset}: {reason}") from reason
        except CorruptRecord as reason:
            _log.error("reader=%s offset=%d is skipped, it cannot be read: %s", consumer.endpoint.name, offset, reason)
    return found


def _report_lost(consumer: PartitionConsumer, offset: int, lost: UnreadableMessages | None) -> None:
    if lost is not None:
        _log.error("reader=%s offset=%d is read without %s", consumer.endpoint.name, offset, lost)


def affordable(records: Sequence[Any]) -> tuple[int, int]:
    """Returns how many of these records may be decompressed at once, at least one, and their decompressed bytes."""
    size = 0
    for number, record in enumerate(records, 1):
        try:
            plain_bytes = None if is_plain(packed_headers_of(record)) else uncompressed_size(record)
        except CorruptRecord:
            plain_bytes = None
        size += len(record) if plain_bytes is None else plain_bytes
        if size >= MAX_BYTES_AT_ONCE:
            return number, size
    return len(records), size


def _passed(offset: int, size: int, begun: Begun | None, left_out: BatchAckSet | None) -> BatchAckSet | None:
    """Returns the messages of a batch entry that a reader does not get."""
    first = begun.first if begun is not None and begun.offset == offset else 0
    passed = (1 << min(first, size)) - 1 | (0 if left_out is None else left_out.acked)
    return BatchAckSet(size, passed) if passed else None


def _entry_of(
    record: Any, consumer: PartitionConsumer, size: int, begun: Begun | None, left_out: BatchAckSet | None
) -> Sequence[EntryDelivery]:
    """Returns the record as a whole, unless no message of it is left."""
    offset = record.offset()
    if not size:
        chunks = len(record.offsets) if type(record) is WholeMessage else 1
        return [EntryDelivery(record, consumer, offset, 0, chunks, None)]
    passed = _passed(offset, size, begun, left_out)
    left = size if passed is None else passed.left
    return [EntryDelivery(record, consumer, offset, 0, left, passed)] if left else []


def messages_of_entry(fetcher: Fetcher, kafka_topic: str, partition: int, offset: int, deadline: Deadline) -> int:
    """`batch_size` of the record at an offset, read from Kafka; 0 also where there is none (any more).

    Raises:
        CorruptRecord: its headers cannot be read.
        StoreError: Kafka could not be asked.
    """
    low, end = fetcher.watermarks(kafka_topic, partition, deadline)
    if low <= offset < end:
        for batch in fetcher.read_at(kafka_topic, partition, [offset], deadline):
            return batch_size(batch[0])
    return 0


def gathered(acks: Iterable[BatchAck], sets: Iterable[tuple[int, BatchAckSet]] = ()) -> dict[int, BatchAckSet]:
    """Gathers acknowledgements of single messages by entry. If an entry has two sizes, the first is believed."""
    found: dict[int, BatchAckSet] = {}
    for offset, each in sets:
        known = found.get(offset)
        if known is None:
            found[offset] = each
        elif known.batch_size == each.batch_size:
            found[offset] = BatchAckSet(each.batch_size, known.acked | each.acked)
    for offset, group in groupby(acks, _OFFSET):
        run = list(group)
        size = run[0][2]
        bits = 0
        indexes = {index for _, index, its_size in run if its_size == size}
        if len(indexes) == size:
            bits = (1 << size) - 1
        else:
            for index in indexes:
                bits |= 1 << index
        known = found.get(offset)
        if known is None:
            found[offset] = BatchAckSet(size, bits)
        elif known.batch_size == size:
            found[offset] = BatchAckSet(size, known.acked | bits)
    return found


def up_to(acks: Iterable[BatchAck]) -> tuple[int, Mapping[int, BatchAckSet]]:
    """Returns the farthest of some cumulative acknowledgements: its entry, and the messages of that."""
    offset, index, size = max(acks)
    return offset, {offset: BatchAckSet(size, (1 << index + 1) - 1)}


def report_corrupt(cursor: object, offset: int, reason: Exception | UnreadableMessages) -> None:
    _log.error("cursor=%s offset=%d is skipped and acknowledged, it cannot be read: %s", cursor, offset, reason)


def report_beyond_end(cursor: object, offset: int, end: int) -> None:
    _log.warning(
        "cursor=%s another process named offset %d, but the log ends at %d, which is used instead", cursor, offset, end
    )


def report_stop(cursor: object, reason: str) -> None:
    _log.error("cursor=%s stopped: %s", cursor, reason)
