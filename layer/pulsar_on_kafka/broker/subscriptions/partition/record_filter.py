"""Filters between Kafka and the read-ahead buffer of one partition. Each works on a batch and has its own state.

Records pass them in this order (`Intake` composes them):

1. `PassedOverFilter` and `AcknowledgedFilter` drop what consumers hold already, or have acknowledged.
2. `HeldFilter` drops entries that open transactions hold.
3. `UncommittedFilter` keeps records of open transactions back and drops those of aborted ones.
4. `FencedFilter` drops records of writers that were fenced out.
5. `EntryFilter` drops markers and unreadable records, and assembles chunked messages.
6. `DelayedFilter` sets messages aside until their delivery time.
7. `CompactedFilter` drops messages that compaction replaced.

On a topic with transactions `UncommittedFilter` is the first one, because a marker concerns the records before it, also
those that are acknowledged. A partition has only the filters that it needs. No I/O and no threads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import compress
from typing import Any, Protocol

from pyroaring import BitMap64

from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity
from pulsar_on_kafka.broker.metadata.producers.fences import Fences
from pulsar_on_kafka.broker.subscriptions.partition.delayed import DelayedMessages, DelayedSoon, deliver_at_ms
from pulsar_on_kafka.broker.subscriptions.partition.entry_delivery import EntryNotes
from pulsar_on_kafka.broker.subscriptions.partition.transaction_holds import TransactionHolds
from pulsar_on_kafka.broker.subscriptions.records.batches import (
    UnknownBatchFormat,
    UnreadableMessages,
    is_marker,
    report_corrupt,
)
from pulsar_on_kafka.broker.subscriptions.records.chunks import TooManyIncomplete, WholeMessage, chunk_info
from pulsar_on_kafka.broker.subscriptions.records.compaction import CompactedRange
from pulsar_on_kafka.broker.subscriptions.records.read_committed import Passed, ReadCommitted
from pulsar_on_kafka.broker.transactions.buffer.model import look_over
from pulsar_on_kafka.kafka.records import headers_of, packed_headers_of
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.records.epoch_fences import Fence
from pulsar_on_kafka_mapping.records.message_record import is_plain
from pulsar_on_kafka_mapping.records.transaction_headers import in_transaction


class RecordBatch:
    """Records of one partition in offset order.

    `odd` names the offsets whose headers need a closer look; offsets that are not here any more may be among them.
    `end`: everything below was judged.
    """

    __slots__ = ("_odd_positions", "end", "odd", "offsets", "records")

    def __init__(self, offsets: list[int], records: list[Any], end: int, odd: Sequence[int] = ()) -> None:
        self.offsets = offsets
        self.records = records
        self.end = end
        self.odd = odd
        self._odd_positions: list[int] | None = None if odd else []

    def odd_positions(self) -> list[int]:
        if self._odd_positions is None:
            odd = frozenset(self.odd)
            self._odd_positions = [i for i, offset in enumerate(self.offsets) if offset in odd]
        return self._odd_positions

    def without(self, dropped: Collection[int]) -> RecordBatch:
        """The batch without the records at these positions."""
        if not dropped:
            return self
        offsets, records = self.offsets, self.records
        keep = [i for i in range(len(offsets)) if i not in dropped]
        return RecordBatch([offsets[i] for i in keep], [records[i] for i in keep], self.end, self.odd)

    def below(self, position: int) -> RecordBatch:
        """The batch up to the record at this position, at which reading stops."""
        return RecordBatch(self.offsets[:position], self.records[:position], self.offsets[position], self.odd)


class RecordFilter(Protocol):
    """One step of the pipeline."""

    def apply(self, batch: RecordBatch) -> RecordBatch:
        """Returns the records that pass, which is the batch itself when all of them do. The batch is not empty."""


class PassedOverFilter:
    """Drops entries that reach consumers in another way than by being read: by redelivery, or held already. Memory: the
    offsets that reading has not passed."""

    def __init__(self) -> None:
        self.offsets = BitMap64()

    def apply(self, batch: RecordBatch) -> RecordBatch:
        passed_over = self.offsets
        if not passed_over:
            return batch
        dropped = {i for i, offset in enumerate(batch.offsets) if offset in passed_over}
        passed_over.remove_range(0, batch.end)
        return batch.without(dropped)


class AcknowledgedFilter:
    """Drops acknowledged entries."""

    def __init__(self, cursor: CursorState) -> None:
        self._cursor = cursor

    def apply(self, batch: RecordBatch) -> RecordBatch:
        offsets, records = without_acknowledged(self._cursor, batch.offsets, batch.records)
        return batch if offsets is batch.offsets else RecordBatch(offsets, records, batch.end, batch.odd)


class HeldFilter:
    """Drops entries that open transactions hold as a whole; they are redelivered when the transaction aborts.

    Delayed ones pass, so that they are set aside: after an abort they are still delivered at their time.
    """

    def __init__(self, held: TransactionHolds, now_ms: Callable[[], int] | None) -> None:
        """`now_ms` is None where delivery times do not count."""
        self._held = held
        self._now_ms = now_ms

    def apply(self, batch: RecordBatch) -> RecordBatch:
        if not self._held.attached or not self._held:
            return batch
        offsets, records = self._held.without(batch.offsets, batch.records, self._is_early)
        return batch if offsets is batch.offsets else RecordBatch(offsets, records, batch.end, batch.odd)

    def _is_early(self, record: Any) -> bool:
        return self._now_ms is not None and deliver_at_ms(headers_of(record)) > self._now_ms()


class UncommittedFilter:
    """Keeps records back from the first one of an open transaction on, and drops markers and aborted records, which
    count as acknowledged."""

    def __init__(self, committed: ReadCommitted, cursor: CursorState) -> None:
        self._committed = committed
        self._cursor = cursor

    def apply(self, batch: RecordBatch) -> RecordBatch:
        offsets, records = batch.offsets, batch.records
        return self._passed(self._committed.take(offsets, records, look_over(offsets, records), batch.end))

    def release(self) -> RecordBatch:
        """Returns the records kept back that may pass now."""
        return self._passed(self._committed.release())

    def _passed(self, passed: Passed) -> RecordBatch:
        if passed.excluded:
            self._cursor.acknowledge(list(passed.excluded))
        return RecordBatch(passed.offsets, passed.records, passed.upto, passed.odd)


class FencedFilter:
    """Drops void records, whose writer had been fenced out; they count as acknowledged. Learns new fences on the way.
    Memory: what Fences says."""

    def __init__(self, fences: Fences, cursor: CursorState) -> None:
        self._fences = fences
        self._cursor = cursor
        self._has_fences = bool(fences)

    def add(self, fences: Iterable[Fence]) -> None:
        """Adds fences that lie between the read position and the next record to be read."""
        self._fences.add(fences)
        self._has_fences = bool(self._fences)

    def apply(self, batch: RecordBatch) -> RecordBatch:
        if batch.odd:
            self._fences.learn(batch.offsets, batch.records, batch.odd_positions())
            self._has_fences = bool(self._fences)
        if not self._has_fences:
            return batch
        void = set(self._fences.void_in(batch.offsets, batch.records))
        if void:
            self._cursor.acknowledge([batch.offsets[i] for i in void])
        return batch.without(void)


class EntryFilter:
    """Notes batch entries, encrypted and compressed ones, assembles chunked messages, and drops markers and unreadable
    records, which count as acknowledged.

    A record that a newer version wrote, or a chunk for which there is no memory, stops the partition: another owner may
    be able to deliver it. Memory: what EntryNotes says.
    """

    def __init__(
        self,
        identity: CursorIdentity,
        cursor: CursorState,
        entries: EntryNotes,
        committed: ReadCommitted,
        stop: Callable[[int, Exception], None],
    ) -> None:
        """`stop` receives the offset at which nothing more of the partition can be read, and the reason. What waits in
        `committed` is behind that."""
        self._identity = identity
        self._cursor = cursor
        self._entries = entries
        self._committed = committed
        self._stop = stop
        self.corrupt_entries = 0
        """Entries that could not be read, as a whole or some of their messages, and were skipped."""
        self.completed_early: list[int] = []
        """Chunked messages that became complete with another chunk than their last one: they are redelivered."""

    def apply(self, batch: RecordBatch) -> RecordBatch:
        if not batch.odd:
            return batch
        offsets, records, entries = batch.offsets, batch.records, self._entries
        dropped: set[int] = set()
        incomplete: set[int] = set()
        for i in batch.odd_positions():
            try:
                if is_marker(records[i]):
                    dropped.add(i)
                    continue
                in_transaction(headers_of(records[i]))
                entries.note(offsets[i], records[i])
                if (info := chunk_info(records[i])) is not None:
                    whole = entries.chunks.add(offsets[i], info, records[i])
                    if whole is not None and whole.offset() == offsets[i]:
                        records[i] = whole
                    else:
                        incomplete.add(i)
                        entries.forget((offsets[i],))
                        if whole is not None:
                            self.completed_early.append(whole.offset())
            except (UnknownBatchFormat, TooManyIncomplete) as reason:
                self._stop(offsets[i], reason)
                self._committed.rewind()
                batch = batch.below(i)
                break
            except CorruptRecord as reason:
                self.skip(offsets[i], reason)
                dropped.add(i)
        self._cursor.acknowledge([offsets[i] for i in dropped])
        return batch.without(dropped | incomplete)

    def readable(self, records: Mapping[int, Any]) -> tuple[list[int], list[int], list[int]]:
        """Checks records that were read again. Returns three lists of offsets: records to deliver; unreadable ones and
        markers, which are skipped; and chunks of messages that were not known."""
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
                            self.completed_early.append(whole.offset())
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
        """Acknowledges an entry that cannot be read, or those of its messages that cannot."""
        self.corrupt_entries += 1
        report_corrupt(self._identity, offset, reason)
        if isinstance(reason, UnreadableMessages):
            self._cursor.acknowledge_batches({offset: reason.acks})
        else:
            self._cursor.acknowledge(self._entries.chunks.acknowledged([offset]))


class DelayedFilter:
    """Sets messages aside until their delivery time. Memory: what DelayedMessages and DelayedSoon say."""

    def __init__(self, delayed: DelayedMessages, soon: DelayedSoon, now_ms: Callable[[], int]) -> None:
        self._delayed = delayed
        self._soon = soon
        self._now_ms = now_ms

    def apply(self, batch: RecordBatch) -> RecordBatch:
        if not batch.odd:
            return batch
        now_ms, offsets, records = self._now_ms(), batch.offsets, batch.records
        return batch.without({i for i in batch.odd_positions() if self._set_aside(offsets[i], records[i], now_ms)})

    def not_yet_due(self, records: Mapping[int, Any]) -> list[int]:
        """Sets those records aside whose delivery time has not come, and returns their offsets."""
        now_ms = self._now_ms()
        return [offset for offset, record in records.items() if self._set_aside(offset, record, now_ms)]

    def _set_aside(self, offset: int, record: Any, now_ms: int) -> bool:
        due_ms = deliver_at_ms(headers_of(record))
        if due_ms <= now_ms:
            return False
        self._delayed.set_aside(offset, due_ms)
        self._soon.keep(offset, due_ms, record, now_ms)
        return True


class CompactedFilter:
    """Drops messages that compaction replaced by newer ones of their keys; they count as acknowledged."""

    def __init__(self, compacted: CompactedRange, cursor: CursorState, entries: EntryNotes) -> None:
        self._compacted = compacted
        self._cursor = cursor
        self._entries = entries

    def apply(self, batch: RecordBatch) -> RecordBatch:
        compacted, cursor = self._compacted, self._cursor
        left = compacted.remaining(batch.records)
        if len(left) == len(batch.records) and not compacted.parts:
            return batch
        remaining = [record.offset() for record in left]
        superseded = sorted(set(batch.offsets).difference(remaining))
        cursor.acknowledge(self._entries.chunks.acknowledged(superseded))
        cursor.acknowledge_batches(
            {offset: compacted.parts[offset] for offset in remaining if offset in compacted.parts}
        )
        keep = [i for i, offset in enumerate(remaining) if not cursor.is_acknowledged(offset)]
        kept = [remaining[i] for i in keep]
        self._entries.forget(set(batch.offsets).difference(kept))
        return RecordBatch(kept, [left[i] for i in keep], batch.end, batch.odd)


def without_acknowledged(cursor: CursorState, offsets: list[int], records: list[Any]) -> tuple[list[int], list[Any]]:
    """These records without acknowledged ones, or the same lists; `offsets` ascend and are not empty."""
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
