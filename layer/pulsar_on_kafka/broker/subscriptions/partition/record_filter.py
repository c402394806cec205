"""The intake sifts what comes from Kafka for one partition: which records of a run are for consumers, and what becomes
of the others; what is for them is read ahead.

No I/O and no threads.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

from pyroaring import BitMap64

from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity
from pulsar_on_kafka.broker.subscriptions.partition.delayed import DelayedMessages, DelayedSoon, deliver_at_ms
from pulsar_on_kafka.broker.subscriptions.partition.entry_delivery import EntriesAtHand
from pulsar_on_kafka.broker.subscriptions.partition.in_flight import TransactionHolds
from pulsar_on_kafka.broker.subscriptions.partition.partition_options import PartitionTerms
from pulsar_on_kafka.broker.subscriptions.records.batches import (
    UnknownBatchFormat,
    UnreadableMessages,
    is_marker,
    report_corrupt,
    report_stop,
)
from pulsar_on_kafka.broker.subscriptions.records.chunks import TooManyIncomplete, WholeMessage, chunk_info
from pulsar_on_kafka.broker.subscriptions.records.compaction import CompactedRange
from pulsar_on_kafka.broker.subscriptions.records.read_committed import Passed, ReadCommitted
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition, look_over
from pulsar_on_kafka.kafka.records import headers_of, packed_headers_of
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.records.message_record import is_plain
from pulsar_on_kafka_mapping.records.transaction_headers import in_transaction


class Intake:
    """Memory: `apart`, and what ReadCommitted, DelayedMessages, DelayedSoon and Fences say."""

    def __init__(
        self,
        identity: CursorIdentity,
        cursor: CursorState,
        entries: EntriesAtHand,
        held: TransactionHolds,
        terms: PartitionTerms,
    ) -> None:
        self._identity = identity
        self._cursor = cursor
        self._entries = entries
        self._held = held
        self._now_ms = terms.now_ms
        self.read_position = cursor.next_unacked
        """Everything below was looked at. The next offset expected from Kafka, unless some records wait in
        `committed`."""
        self.committed = ReadCommitted(
            DataPartition(identity.topic, identity.partition, identity.topic_incarnation), terms.now_ms
        )
        self.apart = BitMap64()
        """What reading passes over, because it comes by redelivery or waits for its time."""
        self.delayed = DelayedMessages() if terms.delays else None
        """What is to be delivered later."""
        self.delayed_soon = DelayedSoon()
        """Some of what is delayed, at hand already."""
        self._compacted = terms.compacted
        self.fences = terms.fences
        self.end_seen = False
        """The log was seen to reach as far as the cursor knows of it, since that was recovered or reading went back."""
        self.stopped: str | None = None
        """Why nothing is read from this partition any more."""
        self.corrupt_entries = 0
        """Entries that could not be read, as a whole or some of their messages, and were skipped."""
        self._elsewhere = terms.elsewhere
        self.complete_elsewhere: list[int] = []
        """Chunked messages that were complete with another chunk than their last one: they come by redelivery."""

    def sift(self, offsets: list[int], records: list[Any]) -> tuple[list[int], list[Any]]:
        """Of a run of records in offset order those that are to be handed out. Offsets that no fetch returned count as
        deleted. From the first record of an open transaction on they wait in `committed`.

        Raises:
            StoreError: what the cursor knows of them is out of memory and cannot be read; nothing was changed.
        """
        expected = self._next_fetched()
        if offsets[0] < expected:  # fetched before a seek took effect
            keep = [i for i, offset in enumerate(offsets) if offset >= expected]
            offsets, records = [offsets[i] for i in keep], [records[i] for i in keep]
            if not offsets:
                return offsets, records
        end = offsets[-1] + 1
        self._cursor.need(range(self.read_position, end))
        if self._elsewhere is not None:
            entries, batches = self._elsewhere.of(self._cursor, offsets, records)
            self._cursor.acknowledge(entries)
            self._cursor.acknowledge_batches({offset: BatchAckSet(*acks) for offset, acks in batches.items()})
        if offsets[0] != expected or end - offsets[0] != len(offsets):
            self._acknowledge_gaps(expected, offsets)
        sifted = not self.committed.in_use
        if sifted:  # else what is acknowledged is looked at, too: markers tell of the records before them
            self.read_position = end
            offsets, records = self._wanted(offsets, records)
            if not offsets:
                return offsets, records
        return self._pass_on(self.committed.take(offsets, records, look_over(offsets, records), end), sifted=sifted)

    def release(self) -> tuple[list[int], list[Any]]:
        """The same of what waits in `committed`, by what is known of transactions now.

        Raises:
            StoreError: as `sift`.
        """
        self._cursor.need(range(self.read_position, self._next_fetched()))
        if self.committed.waits_from is None:
            return [], []
        return self._pass_on(self.committed.release(), sifted=False)

    def _next_fetched(self) -> int:
        if self.committed.waits_from is None:
            return self.read_position
        self.committed.forget_below(self.read_position)
        return max(self.committed.end, self.read_position)

    def _pass_on(self, passed: Passed, *, sifted: bool) -> tuple[list[int], list[Any]]:
        self.read_position = passed.upto
        offsets, records = passed.offsets, passed.records
        if not sifted and offsets:
            offsets, records = self._wanted(offsets, records)
        if passed.excluded:
            self._cursor.acknowledge(list(passed.excluded))
        if not offsets:
            return offsets, records
        offsets, records = self._without_odd(offsets, records, passed.odd)
        if self._compacted is not None:
            offsets, records = self._without_superseded(offsets, records, self._compacted)
        return offsets, records

    def rewind(self, position: int) -> None:
        self.read_position = position
        self.end_seen = False
        self.committed.rewind()

    def readable(self, records: Mapping[int, Any]) -> tuple[list[int], list[int], list[int]]:
        """The offsets of records that were read again; apart from them those that cannot be read or are markers, which
        are skipped, and those that are chunks of messages which were not known yet. One of an unknown format is not
        skipped: reading stops, and another owner goes on with it."""
        found: list[int] = []
        unreadable: list[int] = []
        chunks: list[int] = []
        for offset, record in records.items():
            try:
                if not is_plain(packed_headers_of(record)):
                    if is_marker(record):
                        self._cursor.acknowledge([offset])
                        unreadable.append(offset)
                        continue
                    self._entries.note(offset, record)
                    if type(record) is not WholeMessage and (info := chunk_info(record)) is not None:
                        chunks.append(offset)
                        self._entries.forget((offset,))
                        if (whole := self._entries.chunks.add(offset, info, record)) is not None:
                            self.complete_elsewhere.append(whole.offset())
                        continue
                found.append(offset)
            except (UnknownBatchFormat, TooManyIncomplete) as reason:
                self._stop(offset, reason)
                unreadable.append(offset)
            except CorruptRecord as reason:
                self.skip(offset, reason)
                unreadable.append(offset)
        return found, unreadable, chunks

    def skip(self, offset: int, reason: Exception | UnreadableMessages) -> None:
        """This entry, or some of its messages, cannot be read: they count as acknowledged."""
        self.corrupt_entries += 1
        report_corrupt(self._identity, offset, reason)
        if isinstance(reason, UnreadableMessages):
            self._cursor.acknowledge_batches({offset: reason.acks})
        else:
            self._cursor.acknowledge(self._entries.chunks.acknowledged([offset]))

    def not_yet_due(self, records: Mapping[int, Any]) -> list[int]:
        """Set those aside whose time has not come."""
        now_ms = self._now_ms()
        return [offset for offset, record in records.items() if self._set_aside(offset, record, now_ms)]

    def _set_aside(self, offset: int, record: Any, now_ms: int) -> bool:
        """Whether its time has not come."""
        due_ms = 0 if self.delayed is None else deliver_at_ms(headers_of(record))
        if self.delayed is None or due_ms <= now_ms:
            return False
        self.delayed.set_aside(offset, due_ms)
        self.delayed_soon.keep(offset, due_ms, record, now_ms)
        return True

    def _acknowledge_gaps(self, expected: int, offsets: Sequence[int]) -> None:
        for offset in offsets:
            if offset > expected:
                self._cursor.acknowledge_range(expected, offset)
            expected = offset + 1

    def _without_superseded(
        self, offsets: list[int], records: list[Any], compacted: CompactedRange
    ) -> tuple[list[int], list[Any]]:
        """Without what compaction leaves out, which counts as acknowledged."""
        left = compacted.remaining(records)
        if len(left) == len(records) and not compacted.parts:
            return offsets, records
        remaining = [record.offset() for record in left]
        superseded = sorted(set(offsets).difference(remaining))
        self._cursor.acknowledge(self._entries.chunks.acknowledged(superseded))
        parts = {offset: compacted.parts[offset] for offset in remaining if offset in compacted.parts}
        self._cursor.acknowledge_batches(parts)
        keep = [i for i, offset in enumerate(remaining) if not self._cursor.is_acknowledged(offset)]
        kept = [remaining[i] for i in keep]
        self._entries.forget(set(offsets).difference(kept))
        return kept, [left[i] for i in keep]

    def _wanted(self, offsets: list[int], records: list[Any]) -> tuple[list[int], list[Any]]:
        if self.apart:
            keep = [i for i, offset in enumerate(offsets) if offset not in self.apart]
            self.apart.remove_range(0, self.read_position)
            offsets, records = [offsets[i] for i in keep], [records[i] for i in keep]
            if not offsets:
                return offsets, records
        offsets, records = without_acknowledged(self._cursor, offsets, records)
        if self._held and offsets:
            offsets, records = self._held.without(offsets, records)
        return offsets, records

    def _without_odd(
        self, offsets: list[int], records: list[Any], odd_offsets: list[int]
    ) -> tuple[list[int], list[Any]]:
        """Without markers and what cannot be read; batch entries are noted, chunks are put together."""
        if not odd_offsets and not self.fences:
            return offsets, records
        wanted = frozenset(odd_offsets)
        odd = [i for i, offset in enumerate(offsets) if offset in wanted]
        self.fences.learn(offsets, records, odd)
        dropped = set(self.fences.void_in(offsets, records)) if self.fences else set()
        parts: set[int] = set()
        for i in odd:
            if i in dropped:
                continue
            try:
                if is_marker(records[i]):
                    dropped.add(i)
                    continue
                in_transaction(headers_of(records[i]))
                self._entries.note(offsets[i], records[i])
                if (info := chunk_info(records[i])) is not None:
                    whole = self._entries.chunks.add(offsets[i], info, records[i])
                    if whole is not None and whole.offset() == offsets[i]:
                        records[i] = whole
                    else:
                        parts.add(i)
                        self._entries.forget((offsets[i],))
                        if whole is not None:
                            self.complete_elsewhere.append(whole.offset())
            except (UnknownBatchFormat, TooManyIncomplete) as reason:
                self._stop_at(offsets[i], reason)
                offsets, records = offsets[:i], records[:i]
                dropped = {earlier for earlier in dropped if earlier < i}
                parts = {earlier for earlier in parts if earlier < i}
                break
            except CorruptRecord as reason:
                self.skip(offsets[i], reason)
                dropped.add(i)
        self._cursor.acknowledge([offsets[i] for i in dropped])
        dropped |= parts
        if self.delayed is not None:
            now_ms, kept = self._now_ms(), [i for i in odd if i < len(offsets) and i not in dropped]
            dropped.update(i for i in kept if self._set_aside(offsets[i], records[i], now_ms))
        if not dropped:
            return offsets, records
        keep = [i for i in range(len(offsets)) if i not in dropped]
        return [offsets[i] for i in keep], [records[i] for i in keep]

    def _stop_at(self, offset: int, reason: Exception) -> None:
        self._stop(offset, reason)
        self.read_position = offset
        self.committed.rewind()

    def _stop(self, offset: int, reason: Exception) -> None:
        self.stopped = f"offset {offset}: {reason}"
        report_stop(self._identity, self.stopped)


def without_acknowledged(cursor: CursorState, offsets: list[int], records: list[Any]) -> tuple[list[int], list[Any]]:
    """These records, but for what is acknowledged; `offsets` ascend and are not empty."""
    floor = cursor.next_unacked
    if floor <= offsets[0] and not cursor.deleted:
        return offsets, records
    acked = cursor.acknowledged_in(offsets[0], offsets[-1] + 1)
    if not acked and offsets[0] >= floor:
        return offsets, records
    if offsets[0] >= floor and acked.isdisjoint(offsets):
        return offsets, records
    stays = [offset >= floor and offset not in acked for offset in offsets]
    return list(compress(offsets, stays)), list(compress(records, stays))


@dataclass(slots=True)
class Chunk:
    """Records read from Kafka in one go, and their offsets; `taken` of them are handed out already."""

    offsets: list[int]
    records: list[Any]
    size_bytes: int
    taken: int = 0


class ReadAhead:
    """Memory: the records put in and not taken; the member stops reading above its limit."""

    def __init__(self) -> None:
        self._chunks: deque[Chunk] = deque()
        self.entries = 0
        self.size_bytes = 0
        """Of the runs that were not taken to their ends."""

    def add(self, offsets: list[int], records: list[Any], size_bytes: int) -> None:
        """A run of records above everything that was added before."""
        self._chunks.append(Chunk(offsets, records, size_bytes))
        self.entries += len(offsets)
        self.size_bytes += size_bytes

    def next_offset(self) -> int | None:
        chunk = self._chunks[0] if self._chunks else None
        return None if chunk is None else chunk.offsets[chunk.taken]

    def replace_next(self, record: Any) -> None:
        chunk = self._chunks[0]
        chunk.records[chunk.taken] = record

    def take(
        self, limit: int, fitting: Callable[[Sequence[int], int], int] | None, below: int | None
    ) -> tuple[list[int], list[Any]]:
        """The next entries, from one run: as many as `fitting` says of `limit` (None: `limit`), all below `below`."""
        if not self._chunks:
            return [], []
        chunk = self._chunks[0]
        if fitting is not None:
            end = chunk.taken + fitting(chunk.offsets[chunk.taken :], limit)
        else:
            end = min(len(chunk.offsets), chunk.taken + limit)
        if below is not None:
            end = bisect_left(chunk.offsets, below, chunk.taken, end)
        if chunk.taken == 0 and end == len(chunk.offsets):
            offsets, records = chunk.offsets, chunk.records
        else:
            offsets, records = chunk.offsets[chunk.taken : end], chunk.records[chunk.taken : end]
        chunk.taken = end
        self.entries -= len(offsets)
        if end == len(chunk.offsets):
            self._chunks.popleft()
            self.size_bytes -= chunk.size_bytes
        return offsets, records

    def clear(self) -> None:
        self._chunks.clear()
        self.entries = self.size_bytes = 0
