"""Reads leased records from Kafka and puts their messages into consumers' inboxes.

All of it runs in the member's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any, Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.incarnation_checks import IncarnationCheck
from pulsar_on_kafka.broker.subscriptions.leases.lease_options import RecordReader
from pulsar_on_kafka.broker.subscriptions.leases.leased_partition import LeasedPartition, ToRead
from pulsar_on_kafka.broker.subscriptions.leases.lessee import Lessee
from pulsar_on_kafka.broker.subscriptions.partition.entry_delivery import DeliveryBuilder, EntryNotes
from pulsar_on_kafka.broker.subscriptions.records.batches import (
    UnknownBatchFormat,
    UnreadableMessages,
    report_corrupt,
    report_stop,
)
from pulsar_on_kafka.broker.subscriptions.records.chunks import MAX_REREAD_BYTES, ChunkAssembly, Known, WholeMessage
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Delivery
from pulsar_on_kafka.kafka.records import packed_headers_of
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.records.message_record import is_plain
from pulsar_on_kafka_mapping.state.cursors.lease_records import LeasedEntry

_TIMEOUT_S: Final = 2.0
_RETRY_INTERVAL_S: Final = 0.2
_ANY_NUMBER: Final = 2**63 - 1
_MAX_AT_ONCE: Final = 2000
_REST_AFTER_S: Final = 10.0
_DEAD_LETTER_RETRY_INTERVAL_S: Final = 1.0

_log = logging.getLogger(__name__)


class LeasedRecords:
    """One reading takes entries of one partition. Memory: the records of one reading, at most 2,000 entries of 32 MiB
    together, or one larger message in chunks. `EntryNotes.fitting` limits compressed entries."""

    def __init__(
        self,
        name: str,
        kafka_topic: str,
        reader: RecordReader,
        clock: Clock,
        lessee: Lessee,
        incarnation: IncarnationCheck,
        slot_of: Callable[[int, Any], int] | None = None,
    ) -> None:
        """`slot_of` returns the hash slot of a record by offset; None on other subscriptions than Key_Shared."""
        self._slot_of = slot_of
        self._name = name
        self._kafka_topic = kafka_topic
        self._incarnation = incarnation
        self._reader = reader
        self._clock = clock
        self._lessee = lessee
        self._not_before_s = 0.0
        self.rest_s = inf
        """The time at which fetching ahead stops, on the monotonic clock."""

    def read(self) -> bool:
        """Read entries for inboxes with room, in 2 s at most; True when any were read.

        Raises:
            TooManyHandles: the process has no room for the reader's handle.
        """
        if self._clock.monotonic() < self._not_before_s:
            return False
        taken = self._lessee.take_to_read(_MAX_AT_ONCE)
        if not taken:
            return False
        self.rest_s = self._clock.monotonic() + _REST_AFTER_S
        try:
            records, read_to = self._records(taken[0].partition, taken)
        except errors.TooManyHandles:
            raise  # the member ends, and its owner leases the entries to another one
        except errors.StoreError as failure:
            _log.warning("subscription=%s cannot read leased records yet: %s", self._name, failure)
            self._lessee.to_read.extendleft(reversed(taken))
            self._not_before_s = self._clock.monotonic() + _RETRY_INTERVAL_S
            return False
        self._incarnation.before_delivery()
        left: list[ToRead] = []
        for each in taken:
            behind = any(each.endpoint is other.endpoint for other in left)
            rest = each.entries if behind else self._hand_out(each, records, read_to)
            if rest:
                left.append(each._replace(entries=rest))
        self._lessee.to_read.extendleft(reversed(left))
        return True

    def rest(self) -> None:
        """Fetch nothing ahead once ten seconds have passed without a lease. Call it now and then."""
        if self._clock.monotonic() >= self.rest_s:
            self.rest_s = inf
            self._reader.leave()

    def _records(self, partition: LeasedPartition, taken: Sequence[ToRead]) -> tuple[dict[int, Any], int]:
        """Records by offset, and the offset up to which missing records are gone from Kafka."""
        requested: set[int] = set()
        for each in taken:
            for entry in each.entries:
                requested.update(entry.chunks or (entry.offset,))
        if not requested:
            return {}, -1
        offsets = sorted(requested)
        number, deadline = partition.slot.number, Deadline.after(_TIMEOUT_S)
        records: dict[int, Any] = {}
        whole = len(offsets) > sum(len(each.entries) for each in taken)
        try:
            size = 0
            for batch in self._reader.read_at(self._kafka_topic, number, offsets, deadline):
                records.update((record.offset(), record) for record in batch)
                size += sum(map(len, batch))
                if size >= MAX_REREAD_BYTES and not whole:
                    return records, batch[-1].offset()
        except errors.OffsetOutOfRange:
            low = self._reader.log_start(self._kafka_topic, number, deadline)
            left = [offset for offset in offsets if offset >= low]
            for batch in self._reader.read_at(self._kafka_topic, number, left, deadline):
                records.update((record.offset(), record) for record in batch)
        return records, offsets[-1]

    def _hand_out(self, each: ToRead, records: Mapping[int, Any], read_to: int) -> tuple[LeasedEntry, ...]:
        """Put readable messages into the inbox. Returns the entries to be read again when there is room."""
        leased, endpoint = each.partition, each.endpoint
        feed = endpoint.feed(leased.slot)
        entries = EntryNotes(ChunkAssembly())
        offsets: list[int] = []
        bodies: list[Any] = []
        gone: list[int] = []
        rest: list[LeasedEntry] = []
        for entry in each.entries:
            if leased.in_flight.holders.get(entry.offset) is not feed:
                continue  # it was given up meanwhile
            try:
                body = _body(entry, records, entries)
            except UnknownBatchFormat as reason:  # it stays with the consumer, which does not get it
                report_stop(self._name, f"offset {entry.offset}: {reason}")
                continue
            except CorruptRecord as reason:
                report_corrupt(self._name, entry.offset, reason)
                gone.append(entry.offset)
                continue
            if body is not None:
                offsets.append(entry.offset)
                bodies.append(body)
            elif entry.offset <= read_to:
                gone.append(entry.offset)
            else:
                rest.append(entry)

        offsets, bodies = self._not_waiting(each, offsets, bodies)

        def unreadable(offset: int, reason: CorruptRecord | UnreadableMessages) -> None:
            report_corrupt(self._name, offset, reason)
            if isinstance(reason, UnreadableMessages):
                leased.slot.acks_in_batch.extend((offset, *each) for each in reason.messages())
            else:
                gone.append(offset)

        held_back: list[int] = []  # they stay with their consumer, which does not get them
        deliveries = DeliveryBuilder(
            leased.batches.get, held_back.append, entries, leased.in_flight, leased.redeliveries, unreadable
        )
        count = entries.fitting(offsets, _ANY_NUMBER)
        if count < len(offsets):
            late = frozenset(offsets[count:])
            rest = [entry for entry in each.entries if entry.offset in late or entry in rest]
            offsets, bodies = offsets[:count], bodies[:count]
        if offsets:
            endpoint.deliver_or_bury(deliveries.messages(offsets, bodies, feed, None), self._not_stored)
        if gone:
            self._lessee.gone(leased, gone)
        return tuple(rest)

    def _not_waiting(self, each: ToRead, offsets: list[int], bodies: list[Any]) -> tuple[list[int], list[Any]]:
        """These entries without those that wait behind a refused one of their key, which are given back."""
        if self._slot_of is None or not each.endpoint.ordered_redelivery:
            return offsets, bodies
        found = zip(offsets, bodies, strict=True)
        slots = {offset: self._slot_of(offset, body) for offset, body in found}
        waiting = self._lessee.waiting(each, slots)
        kept = [at for at, offset in enumerate(offsets) if offset not in waiting]
        return [offsets[at] for at in kept], [bodies[at] for at in kept]

    def _not_stored(self, letter: Delivery) -> None:
        """Redeliver a dead letter that could not be stored, after a second. Any thread."""
        feed = letter.feed
        feed.slot.nacks.append((self._clock.monotonic(), _DEAD_LETTER_RETRY_INTERVAL_S, letter.offset, feed.endpoint))


def _body(entry: LeasedEntry, records: Mapping[int, Any], entries: EntryNotes) -> Any | None:
    """The record of an entry, noted where it is more than one message in one record; None when it is not there.

    Raises:
        CorruptRecord: its headers cannot be read.
    """
    record = records.get(entry.offset)
    if record is None or any(offset not in records for offset in entry.chunks):
        return None
    if not is_plain(packed_headers_of(record)):
        entries.note(entry.offset, record)
    if not entry.chunks:
        return record
    entries.chunks.known[entry.offset] = Known(entry.chunks, entry.total_bytes)
    chunks = [records[offset] for offset in entry.chunks]
    return WholeMessage(entry.chunks, entry.total_bytes, chunks[-1], chunks)
