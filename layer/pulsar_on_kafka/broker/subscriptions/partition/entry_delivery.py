"""Entries become messages for a consumer: batches are unpacked, encrypted values decrypted, chunked messages checked.
No I/O, no threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import repeat, starmap
from typing import Any

from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.subscriptions.partition.in_flight import DeliveriesInFlight
from pulsar_on_kafka.broker.subscriptions.records.batches import UnreadableMessages, payload_form, unpack
from pulsar_on_kafka.broker.subscriptions.records.chunks import ChunkAssembly, WholeMessage
from pulsar_on_kafka.broker.subscriptions.records.compressed import uncompressed_size
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import (
    MAX_BYTES_AT_ONCE,
    Delivery,
    EntryDelivery,
    PartitionConsumer,
)
from pulsar_on_kafka.broker.subscriptions.records.decryption import is_encrypted, uncompressed_record
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.records.record_headers import PayloadFormat
from pulsar_on_kafka_mapping.state.cursors.lease_records import LeasedEntry


class EntryNotes:
    """Notes entries before they are delivered: which ones are batches or chunked, and whether some are encrypted.
    Memory: one small entry for each batch entry that was read and not delivered, and what ChunkAssembly says."""

    def __init__(self, chunks: ChunkAssembly) -> None:
        self.batches: dict[int, int] = {}
        """Batch entries, and how many messages each has."""
        self.chunks = chunks
        self.encrypted = False
        """Some record was encrypted, so that the headers of every record are read before it is delivered."""
        self.compressed = False
        """Some single message was compressed."""
        self._uncompressed: dict[int, int] = {}
        """The decompressed sizes of entries that a client compressed."""

    @property
    def differ(self) -> bool:
        """Some entries have several messages, or become larger: `fitting` returns how many to deliver."""
        return bool(self.batches or self._uncompressed)

    @property
    def are_plain(self) -> bool:
        """Each entry is one message, and one record."""
        return not self.batches and not self.encrypted and not self.compressed and not self.chunks

    def note(self, offset: int, record: Any) -> None:
        """Reads the headers of a record that has others beside ours.

        Raises:
            CorruptRecord: they cannot be read.
        """
        self.encrypted = self.encrypted or is_encrypted(record)
        form = payload_form(record)
        if form is None:
            return
        size = uncompressed_size(record)
        if size is not None:
            self._uncompressed[offset] = size
        if form.format_version == PayloadFormat.PULSAR_MESSAGE:
            self.compressed = True
        else:
            self.batches[offset] = form.messages

    def fitting(self, offsets: Sequence[int], limit: int) -> int:
        """Returns how many of these entries have `limit` messages together; the last one may exceed it, as in Pulsar.
        Entries that a client compressed have at most `MAX_BYTES_AT_ONCE` together, besides the last one."""
        if not self.differ:
            return min(limit, len(offsets))
        messages = size = 0
        for number, offset in enumerate(offsets, 1):
            messages += self.batches.get(offset, 1)
            size += self._uncompressed.get(offset, 0)
            if messages >= limit or size >= MAX_BYTES_AT_ONCE:
                return number
        return len(offsets)

    def forget(self, offsets: Iterable[int]) -> None:
        if self.differ:
            for offset in offsets:
                self.take(offset, None)

    def take(self, offset: int, record: Any | None) -> tuple[int, int]:
        """Returns the number of messages of an entry that is delivered now (0: no batch), and its decompressed size;
        forgets both."""
        size = self._uncompressed.pop(offset, None)
        return self.batches.pop(offset, 0), (0 if record is None else len(record)) if size is None else size

    def clear(self) -> None:
        self.batches.clear()
        self._uncompressed.clear()


class DeliveryBuilder:
    """Turns entries into messages. `acked` returns the messages of a batch entry that are not to be delivered.
    `held_back` receives an entry of which no message is left, because transactions hold the others, and `unreadable`
    one whose value, or some messages of it, cannot be read."""

    def __init__(
        self,
        acked: Callable[[int], BatchAckSet | None],
        held_back: Callable[[int], None],
        entries: EntryNotes,
        in_flight: DeliveriesInFlight,
        redeliveries: Mapping[int, int],
        unreadable: Callable[[int, CorruptRecord | UnreadableMessages], None],
    ) -> None:
        self._acked = acked
        self._held_back = held_back
        self._entries = entries
        self._in_flight = in_flight
        self._redeliveries = redeliveries
        self._unreadable = unreadable

    def messages(
        self,
        offsets: Sequence[int],
        records: Sequence[Any],
        consumer: PartitionConsumer,
        holder: PartitionConsumer | None,
    ) -> list[Delivery]:
        """Returns the messages of these entries, without unreadable ones; `holder`, if any, has them from now on."""
        make = consumer.endpoint.delivery_type
        entries, in_flight, counts = self._entries, self._in_flight, self._redeliveries
        if make is EntryDelivery:
            return self._whole(offsets, records, consumer, holder)
        here = consumer.endpoint.bytes_here
        if entries.are_plain:
            if holder is not None:
                in_flight.hold(offsets, holder)
            here.add(len(offsets), sum(map(len, records)))
            redelivered = map(counts.get, offsets, repeat(0)) if counts else repeat(0, len(offsets))
            same = repeat(consumer, len(offsets))
            return list(starmap(make, zip(records, same, offsets, redelivered, strict=True)))
        found: list[Delivery] = []
        total_bytes = 0
        for offset, record in zip(offsets, records, strict=True):
            size, plain_bytes = entries.take(offset, record)
            total_bytes += plain_bytes
            body, readable = consumer.decrypted(record) if entries.encrypted else (record, True)
            if body is None:  # it stays with the consumer, which does not get it
                if holder is not None:
                    in_flight.hold((offset,), consumer)
            elif type(body) is WholeMessage:
                found += self._chunked(offset, body, consumer, holder, readable=readable)
            elif size and readable:
                found += self._batch(offset, body, size, consumer, holder)
            else:
                try:
                    plain = uncompressed_record(body) if entries.compressed and readable else body
                except CorruptRecord as reason:
                    self._unreadable(offset, reason)
                    continue
                if holder is not None:
                    in_flight.hold((offset,), holder)
                found.append(make(plain, consumer, offset, counts.get(offset, 0)))
        here.add(len(found), total_bytes)
        return found

    def _whole(
        self,
        offsets: Sequence[int],
        records: Sequence[Any],
        consumer: PartitionConsumer,
        holder: PartitionConsumer | None,
    ) -> list[Delivery]:
        return [
            EntryDelivery(record, consumer, offset, count, messages, acked)
            for offset, record, count, messages, acked in self._entries_held(offsets, records, holder)
        ]

    def leases(
        self, offsets: Sequence[int], records: Sequence[Any], holder: PartitionConsumer | None
    ) -> list[LeasedEntry]:
        """Returns these entries for a consumer in another process, which reads them itself; `holder`, if any, has them
        from now on."""
        return [
            LeasedEntry(offset, count, messages, acked, tuple(record.offsets), record.total_bytes)
            if type(record) is WholeMessage
            else LeasedEntry(offset, count, messages, acked)
            for offset, record, count, messages, acked in self._entries_held(offsets, records, holder)
        ]

    def _entries_held(
        self, offsets: Sequence[int], records: Sequence[Any], holder: PartitionConsumer | None
    ) -> Iterable[tuple[int, Any, int, int, BatchAckSet | None]]:
        """Returns offset, record, redelivery count, number of messages or chunks, and acknowledged messages of each
        entry that is delivered as a whole; `holder`, if any, has them from now on."""
        entries, in_flight, counts = self._entries, self._in_flight, self._redeliveries
        if entries.are_plain:
            if holder is not None:
                in_flight.hold(offsets, holder)
            redeliveries = [counts.get(offset, 0) for offset in offsets] if counts else repeat(0)
            return zip(offsets, records, redeliveries, repeat(1), repeat(None))
        found: list[tuple[int, Any, int, int, BatchAckSet | None]] = []
        for offset, record in zip(offsets, records, strict=True):
            size, _ = entries.take(offset, record)
            acked = self._acked(offset) if size else None
            messages = 1
            if type(record) is WholeMessage:
                messages = len(record.offsets)
            elif size:
                messages = size if acked is None else acked.left
                if not messages:
                    self._held_back(offset)
                    continue
            if holder is None:
                pass
            elif size or type(record) is WholeMessage:
                in_flight.hold_batch(offset, holder, messages)
            else:
                in_flight.hold((offset,), holder)
            found.append((offset, record, counts.get(offset, 0), messages, acked))
        return found

    def _chunked(
        self,
        offset: int,
        record: WholeMessage,
        consumer: PartitionConsumer,
        holder: PartitionConsumer | None,
        *,
        readable: bool,
    ) -> list[Delivery]:
        if readable:
            try:
                record.check()
            except CorruptRecord as reason:
                self._unreadable(offset, reason)
                return []
        if holder is not None:  # each chunk is one of the unacknowledged messages, as for Pulsar's brokers
            self._in_flight.hold_batch(offset, holder, len(record.offsets))
        return [consumer.endpoint.delivery_type.in_chunks(record, consumer, offset, self._redeliveries.get(offset, 0))]

    def _batch(
        self, offset: int, record: Any, size: int, consumer: PartitionConsumer, holder: PartitionConsumer | None
    ) -> list[Delivery]:
        try:
            found, lost = unpack(record, size, consumer, offset, self._redeliveries.get(offset, 0), self._acked(offset))
        except CorruptRecord as reason:
            self._unreadable(offset, reason)
            return []
        if lost is not None:
            self._unreadable(offset, lost)
        if not found:
            self._held_back(offset)
        elif holder is not None:
            self._in_flight.hold_batch(offset, holder, len(found))
        return found


def with_dead_entries(
    entries: list[LeasedEntry], max_redeliver_count: int, next_delivery: Callable[[int], int]
) -> list[LeasedEntry]:
    """Marks entries that killed too many processes as redelivered too often, though consumers refused them less."""
    most = max_redeliver_count
    return [
        replace(entry, redeliveries=most + 1)
        if entry.redeliveries <= most and next_delivery(entry.offset) > most + 2
        else entry
        for entry in entries
    ]
