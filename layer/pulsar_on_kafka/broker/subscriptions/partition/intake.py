"""Intake of one partition: takes records from Kafka, passes them through the filters, and buffers the rest until they
are dispatched.

No I/O and no threads.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyroaring import BitMap64

from pulsar_on_kafka.base.meters import SubscriptionMeter
from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity
from pulsar_on_kafka.broker.subscriptions.partition.delayed import DelayedMessages, DelayedSoon
from pulsar_on_kafka.broker.subscriptions.partition.entry_delivery import EntryNotes
from pulsar_on_kafka.broker.subscriptions.partition.log_access import LogAccess
from pulsar_on_kafka.broker.subscriptions.partition.partition_options import PartitionTerms
from pulsar_on_kafka.broker.subscriptions.partition.record_filter import (
    AcknowledgedFilter,
    CompactedFilter,
    DelayedFilter,
    EntryFilter,
    FencedFilter,
    HeldFilter,
    PassedOverFilter,
    RecordBatch,
    RecordFilter,
    UncommittedFilter,
)
from pulsar_on_kafka.broker.subscriptions.partition.transaction_holds import TransactionHolds
from pulsar_on_kafka.broker.subscriptions.records.batches import UnreadableMessages, report_stop
from pulsar_on_kafka.broker.subscriptions.records.chunks import WholeMessage
from pulsar_on_kafka.broker.subscriptions.records.read_committed import ReadCommitted
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition
from pulsar_on_kafka_mapping.records.epoch_fences import Fence


class Intake:
    """Memory: the records buffered, and what the filters say; the member stops reading above its limit."""

    def __init__(
        self,
        identity: CursorIdentity,
        cursor: CursorState,
        entries: EntryNotes,
        held: TransactionHolds,
        log: LogAccess,
        terms: PartitionTerms,
        settle: Callable[[list[int]], None],
        redeliver: Callable[[list[int]], None],
    ) -> None:
        """`settle` receives entries that were acknowledged because nothing of them can be delivered, and `redeliver`
        those that are complete but lie behind the read position."""
        self._identity = identity
        self._cursor = cursor
        self._entries = entries
        self._chunks = entries.chunks
        self._log = log
        self._settle = settle
        self._redeliver = redeliver
        self._elsewhere = terms.elsewhere
        self.read_position = cursor.next_unacked
        """Everything below was judged. The next offset expected from Kafka, unless some records wait in `committed`."""
        self.end_seen = False
        """The log was seen to reach as far as the cursor knows of it, since that was recovered or reading went back."""
        self.stopped: str | None = None
        """The reason why nothing of this partition is read any more."""
        self.meter = SubscriptionMeter()
        self.buffer = ReadAhead(log.record, cursor.is_acknowledged)
        self.delayed = DelayedMessages() if terms.delays else None
        """Messages to be delivered later; None on Exclusive and Failover."""
        self.delayed_soon = DelayedSoon()
        """Records of some of them that are due soon."""
        self.committed = ReadCommitted(
            DataPartition(identity.topic, identity.partition, identity.topic_incarnation), terms.now_ms
        )
        self._passed_over = PassedOverFilter()
        self._uncommitted = UncommittedFilter(self.committed, cursor)
        self._fenced = FencedFilter(terms.fences, cursor)
        self._readable = EntryFilter(identity, cursor, entries, self.committed, self._stop)
        self._undelayed = None if self.delayed is None else DelayedFilter(self.delayed, self.delayed_soon, terms.now_ms)
        self._stored: list[RecordFilter] = [
            self._passed_over,
            AcknowledgedFilter(cursor),
            HeldFilter(held, terms.now_ms if terms.delays else None),
        ]
        self._judged: list[RecordFilter] = [self._fenced, self._readable]
        if self._undelayed is not None:
            self._judged.append(self._undelayed)
        if terms.compacted is not None:
            self._judged.append(CompactedFilter(terms.compacted, cursor, entries))
        self._filters = [*self._stored, self._uncommitted, *self._judged]

    @property
    def passed_over(self) -> BitMap64:
        """Offsets that reading passes over, because they reach consumers in another way."""
        return self._passed_over.offsets

    @property
    def taken_upto(self) -> int:
        """No entry below it waits for its first dispatch, except those taken for that."""
        waiting = self.buffer.next_offset()
        return self.read_position if waiting is None else waiting

    @property
    def corrupt_entries(self) -> int:
        return self._readable.corrupt_entries

    @property
    def may_read_on(self) -> bool:
        """The records that stopped reading were dispatched, or can be read by now."""
        return not self.buffer.entries and not self.committed.full

    def accept(self, offsets: list[int], records: list[Any]) -> None:
        """Takes a run of records in offset order. Offsets that no fetch returned count as deleted.

        Raises:
            StoreError: the cursor's state of them is out of memory and cannot be read; nothing was changed.
        """
        expected = self._next_fetched()
        if offsets[0] < expected:  # fetched before a seek took effect
            keep = [i for i, offset in enumerate(offsets) if offset >= expected]
            offsets, records = [offsets[i] for i in keep], [records[i] for i in keep]
            if not offsets:
                return
        end = offsets[-1] + 1
        self._cursor.need(range(self.read_position, end))
        if self._elsewhere is not None:
            entries, batches = self._elsewhere.of(self._cursor, offsets, records)
            self._cursor.acknowledge(entries)
            self._cursor.acknowledge_batches({offset: BatchAckSet(*acks) for offset, acks in batches.items()})
        if offsets[0] != expected or end - offsets[0] != len(offsets):
            self._acknowledge_gaps(expected, offsets)
        self._pass(self._filters, RecordBatch(offsets, records, end))

    def release(self) -> None:
        """Takes those of the records kept back in `committed` that can be read by now. Raises StoreError as
        `accept`."""
        self._cursor.need(range(self.read_position, self._next_fetched()))
        if self.committed.waits_from is not None:
            self._pass((*self._stored, *self._judged), self._uncommitted.release())

    def _pass(self, filters: Iterable[RecordFilter], batch: RecordBatch) -> None:
        begin, apart = self.read_position, self.passed_over.copy() if self.passed_over else None
        for each in filters:
            if not batch.offsets:
                break
            batch = each.apply(batch)
        self.read_position = batch.end
        if apart is not None:
            self._settle_passed_over(apart, begin, batch.end)
        if self.committed.in_use and self._filters[0] is not self._uncommitted:
            self._filters = [self._uncommitted, *self._stored, *self._judged]
        if batch.offsets:
            chunked = bool(batch.odd) and bool(self._chunks)
            self.meter.received_bytes += self.buffer.add(batch.offsets, batch.records, chunked=chunked)
        self.complete_chunks()

    def _settle_passed_over(self, apart: BitMap64, begin: int, end: int) -> None:
        """Settles entries of this range that were to be redelivered, and turned out to be gaps of the log, aborted, or
        acknowledged in another cluster. The delivery guard permits no redelivery of them."""
        gone = (apart & BitMap64(range(begin, end))) - self._cursor.unacknowledged(begin, end)
        if gone:
            self._settle(list(gone))

    def complete_chunks(self) -> None:
        """Redelivers messages that are complete, and settles chunks that will never be a message."""
        complete = self._readable.completed_early
        if complete:
            self._readable.completed_early = []
            self._redeliver(complete)
        if self._chunks.given_up:
            offsets = self._chunks.take_given_up(self._identity)
            self._cursor.acknowledge(offsets)
            self._settle(offsets)

    def expire_chunks(self) -> None:
        """Gives up chunked messages of which the log had nothing for too long."""
        if self._chunks.expire(self.read_position, self._log.end):
            self.complete_chunks()

    def readable(self, records: Mapping[int, Any]) -> tuple[list[int], list[int]]:
        """Checks records that were read again. Returns the offsets of those to deliver, and of chunks of messages that
        were not known, which need `complete_chunks`; others are settled."""
        found, unreadable, chunks = self._readable.readable(records)
        if unreadable:
            self._settle(unreadable)
        return found, chunks

    def skip_unreadable(self, offset: int, reason: Exception | UnreadableMessages) -> None:
        """Acknowledges an entry that cannot be read, or those of its messages that cannot."""
        self._readable.skip(offset, reason)
        if self._cursor.is_acknowledged(offset):
            self._settle([offset])

    def set_aside(self, records: Mapping[int, Any]) -> list[int]:
        """Sets those of these records aside whose delivery time has not come, and returns their offsets."""
        return [] if self._undelayed is None else self._undelayed.not_yet_due(records)

    def skip_to(self, position: int) -> None:
        """Continues at a later offset."""
        self.read_position = position

    def rewind(self) -> None:
        """Forgets everything that was read, and reads from the cursor's first unacknowledged entry again."""
        self.buffer.clear()
        self._chunks.forget_pending()
        self._entries.clear()
        if self.delayed is not None:
            self.delayed.clear()
            self.delayed_soon.clear()
        self.passed_over.clear()
        self.read_position = self._cursor.next_unacked
        self.end_seen = False
        self.committed.rewind()

    def add_fences(self, fences: Iterable[Fence]) -> None:
        """Adds fences that lie between the read position and the next record to be read."""
        self._fenced.add(fences)

    def forget_delayed(self, offsets: BitMap64) -> None:
        """Forgets delayed messages that are acknowledged."""
        if self.delayed is not None:
            self.delayed.forget(offsets)
            self.delayed_soon.forget(offsets)

    def forget_delayed_below(self, end: int) -> None:
        if self.delayed is not None:
            self.delayed.forget_below(end)
            self.delayed_soon.forget_below(end)

    def bounded(self, position: int) -> int:
        """Limits a position that another process named to the log's end. Raises StoreError."""
        return self._log.bounded(position, self.read_position)

    def stop(self, reason: str) -> None:
        """Reads nothing of this partition any more, and logs the reason."""
        self.stopped = reason
        report_stop(self._identity, reason)

    def _stop(self, offset: int, reason: Exception) -> None:
        self.stop(f"offset {offset}: {reason}")

    def _next_fetched(self) -> int:
        if self.committed.waits_from is None:
            return self.read_position
        self.committed.forget_below(self.read_position)
        return max(self.committed.end, self.read_position)

    def _acknowledge_gaps(self, expected: int, offsets: Sequence[int]) -> None:
        for offset in offsets:
            if offset > expected:
                self._cursor.acknowledge_range(expected, offset)
            expected = offset + 1


@dataclass(slots=True)
class _Run:
    """Records read from Kafka in one go, and their offsets; `taken` of them were dispatched already."""

    offsets: list[int]
    records: list[Any]
    size_bytes: int
    taken: int = 0


class ReadAhead:
    """Buffer of records that are to be dispatched. Memory: these records."""

    def __init__(self, read_again: Callable[[int], Any | None], is_acknowledged: Callable[[int], bool]) -> None:
        """`read_again` returns the record at an offset, or None if it cannot be read now."""
        self._runs: deque[_Run] = deque()
        self._read_again = read_again
        self._is_acknowledged = is_acknowledged
        self._absent: deque[int] = deque()
        """Chunked messages whose payload was dropped, lowest first."""
        self.entries = 0
        self.size_bytes = 0
        """The size of the runs that were not taken to their ends."""

    def add(self, offsets: list[int], records: list[Any], *, chunked: bool) -> int:
        """Adds a run of records above all earlier ones, and returns its bytes. `chunked`: it may have chunked
        messages."""
        size_bytes = sum(map(len, records))
        self._runs.append(_Run(offsets, records, size_bytes))
        self.entries += len(offsets)
        self.size_bytes += size_bytes
        if chunked:
            self._absent += [each.offset() for each in records if type(each) is WholeMessage and not each.present]
        return size_bytes

    def next_offset(self) -> int | None:
        run = self._runs[0] if self._runs else None
        return None if run is None else run.offsets[run.taken]

    def take(
        self, limit: int, fitting: Callable[[Sequence[int], int], int] | None, below: int | None
    ) -> tuple[list[int], list[Any]]:
        """Takes the next entries of one run, all below `below`: as many as `fitting` returns for `limit` (None:
        `limit`). Takes none while the payload of the next one cannot be read."""
        if not self._runs:
            return [], []
        if self._absent:
            if not self._has_next_payload():
                return [], []
            if self._absent and (below is None or self._absent[0] < below):
                below = self._absent[0]
        run = self._runs[0]
        if fitting is not None:
            end = run.taken + fitting(run.offsets[run.taken :], limit)
        else:
            end = min(len(run.offsets), run.taken + limit)
        if below is not None:
            end = bisect_left(run.offsets, below, run.taken, end)
        if run.taken == 0 and end == len(run.offsets):
            offsets, records = run.offsets, run.records
        else:
            offsets, records = run.offsets[run.taken : end], run.records[run.taken : end]
        run.taken = end
        self.entries -= len(offsets)
        if end == len(run.offsets):
            self._runs.popleft()
            self.size_bytes -= run.size_bytes
        return offsets, records

    def _has_next_payload(self) -> bool:
        """Whether the next entry has its payload; a dropped one is read again."""
        offset = self._absent[0]
        run = self._runs[0]
        if run.offsets[run.taken] == offset:
            record = self._read_again(offset)
            if record is None and not self._is_acknowledged(offset):
                return False
            self._absent.popleft()
            if record is not None:
                run.records[run.taken] = record
        return True

    def clear(self) -> None:
        self._runs.clear()
        self._absent.clear()
        self.entries = self.size_bytes = 0
