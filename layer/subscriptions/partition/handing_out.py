"""Entries become messages for a consumer: batches are unpacked, what is encrypted is opened, what came in chunks is
checked. No I/O, no threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pulsar_on_kafka.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.mapping.errors import CorruptRecord
from pulsar_on_kafka.mapping.state.cursors.lease_records import LeasedEntry
from pulsar_on_kafka.subscriptions.partition.in_flight import DeliveriesInFlight
from pulsar_on_kafka.subscriptions.partition.transaction_holds import TransactionHolds
from pulsar_on_kafka.subscriptions.records.batches import unpack
from pulsar_on_kafka.subscriptions.records.endpoint import Delivery, Feed
from pulsar_on_kafka.subscriptions.records.entries import EntriesAtHand
from pulsar_on_kafka.subscriptions.records.whole_message import WholeMessage


class KnowsBatches(Protocol):
    """A cursor, as far as it matters here."""

    @property
    def batches(self) -> AckSets: ...


class AckSets(Protocol):
    def get(self, offset: int, /) -> BatchAckSet | None: ...


class HandingOut:
    """`unreadable` is told of an entry whose value cannot be read."""

    def __init__(
        self,
        cursor: KnowsBatches,
        entries: EntriesAtHand,
        held: TransactionHolds,
        in_flight: DeliveriesInFlight,
        redeliveries: Mapping[int, int],
        unreadable: Callable[[int, CorruptRecord], None],
    ) -> None:
        self._cursor = cursor
        self._entries = entries
        self._held = held
        self._in_flight = in_flight
        self._redeliveries = redeliveries
        self._unreadable = unreadable

    def messages(
        self, offsets: Sequence[int], records: Sequence[Any], feed: Feed, holder: Feed | None
    ) -> list[Delivery]:
        """The messages of these entries, without what cannot be read; `holder` (None: nobody) has them from now on."""
        make = feed.endpoint.delivery_type
        entries, in_flight, counts = self._entries, self._in_flight, self._redeliveries
        if entries.are_plain:
            if holder is not None:
                in_flight.hold(offsets, holder)
            if not counts:
                return [make(record, feed, offset, 0) for record, offset in zip(records, offsets, strict=True)]
            return [
                make(record, feed, offset, counts.get(offset, 0))
                for record, offset in zip(records, offsets, strict=True)
            ]
        found: list[Delivery] = []
        for offset, record in zip(offsets, records, strict=True):
            size = entries.batches.pop(offset, 0)
            body, readable = feed.unseal(record) if entries.sealed else (record, True)
            if body is None:  # it stays with the consumer, which does not get it
                if holder is not None:
                    in_flight.hold((offset,), feed)
            elif type(body) is WholeMessage:
                found += self._chunked(offset, body, feed, holder, readable=readable)
            elif size and readable:
                found += self._batch(offset, body, size, feed, holder)
            else:
                if holder is not None:
                    in_flight.hold((offset,), holder)
                found.append(make(body, feed, offset, counts.get(offset, 0)))
        return found

    def leases(self, offsets: Sequence[int], records: Sequence[Any], holder: Feed | None) -> list[LeasedEntry]:
        """These entries for a consumer in another process, which reads them itself; `holder` (None: nobody) has them
        from now on."""
        entries, in_flight, counts = self._entries, self._in_flight, self._redeliveries
        if entries.are_plain:
            if holder is not None:
                in_flight.hold(offsets, holder)
            return [LeasedEntry(offset, counts.get(offset, 0)) for offset in offsets]
        found: list[LeasedEntry] = []
        for offset, record in zip(offsets, records, strict=True):
            count = counts.get(offset, 0)
            size = entries.batches.pop(offset, 0)
            if type(record) is WholeMessage:
                chunks = tuple(record.offsets)
                if holder is not None:
                    in_flight.hold_batch(offset, holder, len(chunks))
                found.append(LeasedEntry(offset, count, len(chunks), None, chunks, record.total_bytes))
            elif size:
                acked = self._held.with_held(offset, self._cursor.batches.get(offset))
                left = size if acked is None else size - acked.acked.bit_count()
                if not left:  # what is not acknowledged of it, transactions hold
                    self._held.back.add(offset)
                    continue
                if holder is not None:
                    in_flight.hold_batch(offset, holder, left)
                ack_set = None if acked is None else (acked.batch_size, acked.acked)
                found.append(LeasedEntry(offset, count, left, ack_set))
            else:
                if holder is not None:
                    in_flight.hold((offset,), holder)
                found.append(LeasedEntry(offset, count))
        return found

    def _chunked(
        self, offset: int, record: WholeMessage, feed: Feed, holder: Feed | None, *, readable: bool
    ) -> list[Delivery]:
        if readable:
            try:
                record.check()
            except CorruptRecord as reason:
                self._unreadable(offset, reason)
                return []
        if holder is not None:  # each chunk is one of the unacknowledged messages, as for Pulsar's brokers
            self._in_flight.hold_batch(offset, holder, len(record.offsets))
        return [feed.endpoint.delivery_type.in_chunks(record, feed, offset, self._redeliveries.get(offset, 0))]

    def _batch(self, offset: int, record: Any, size: int, feed: Feed, holder: Feed | None) -> list[Delivery]:
        acked = self._held.with_held(offset, self._cursor.batches.get(offset))
        try:
            found = unpack(record, size, feed, offset, self._redeliveries.get(offset, 0), acked)
        except CorruptRecord as reason:
            self._unreadable(offset, reason)
            return []
        if not found:  # what is not acknowledged of it, transactions hold
            self._held.back.add(offset)
        elif holder is not None:
            self._in_flight.hold_batch(offset, holder, len(found))
        return found
