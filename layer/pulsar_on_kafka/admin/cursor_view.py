"""A cursor view shows a cursor as it was last saved: what is acknowledged where, and what each ledger of it costs.
Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pyroaring import BitMap64

from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.saved_cursor import RecoveredCursor
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.state.cursors.cursor_marker import SavedLedger


@dataclass(frozen=True, slots=True)
class LedgerCost:
    """The cost of a ledger: its acknowledged entries above mark-delete, and their bytes on Kafka.

    `acknowledged` counts entries, `holes` the unacknowledged ranges before an acknowledged entry of it, `batches` the
    batch entries of which some messages are acknowledged. `record`: `commit` (the group commit's metadata), or
    `segment`, whose records lie at `segment_offsets` of `pulsar.system.cursors` and take `size_bytes`. The commit does
    not separate its bytes by ledger: `size_bytes` is 0, see `PartitionCursor.commit_bytes`.
    """

    ledger_id: int
    start: int
    end: int
    acknowledged: int
    holes: int
    batches: int
    record: str
    size_bytes: int
    segment_offsets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class EntryFate:
    """An entry's fate on a subscription.

    `of_batch`: the number of acknowledged messages of a batch, and of all; None for other entries, and for a batch
    without acknowledged ones. `deliveries`: the delivery count, None where none is kept (the entry was never negatively
    acknowledged, and there is no dead letter policy). `suspect`: whether a dead consumer may have had it. `put_off_ms`:
    the Unix time of its redelivery.
    """

    acknowledged: bool
    of_batch: tuple[int, int] | None
    deliveries: int | None
    suspect: bool
    put_off_ms: int | None


@dataclass(frozen=True, slots=True)
class PartitionCursor:
    """One partition's cursor. Offsets are Kafka's; `end` is the log's end, `mark_delete` -1 where nothing is
    acknowledged. `marker_bytes`: the records that index the segments, the marker first, then its pages."""

    partition: int
    start: int
    end: int
    mark_delete: int
    backlog: int
    acknowledged: int
    holes: int
    batches: int
    saved_in: str
    commit_bytes: int
    marker_offset: int | None
    marker_bytes: tuple[int, ...]
    ledgers: tuple[LedgerCost, ...]
    layout: LedgerLayout
    state: CursorState
    """All of it in memory; for `shares`."""

    @property
    def entries_per_ledger(self) -> int:
        return self.layout.entries_per_ledger

    def message_id(self, offset: int) -> NativeMessageId:
        """The id of the entry at an offset; it names the partition, even if the topic has only one."""
        return NativeMessageId(self.partition, *self.layout.position(self.partition, offset), -1)

    @property
    def segment_bytes(self) -> int:
        return sum(ledger.size_bytes for ledger in self.ledgers)

    @property
    def total_bytes(self) -> int:
        """The bytes on Kafka, without keys and headers."""
        return self.commit_bytes + sum(self.marker_bytes) + self.segment_bytes

    @property
    def drawn_from(self) -> int:
        """The beginning of a picture: the ledger of the first unacknowledged entry, or the log's start."""
        first = (self.mark_delete + 1) // self.entries_per_ledger * self.entries_per_ledger
        return min(max(self.start, first), self.end)

    def edges(self, cells: int) -> list[int]:
        """The offsets between which `cells` cells, or fewer, of a picture lie; each cell has one entry at least."""
        first, length = self.drawn_from, self.end - self.drawn_from
        count = max(1, min(cells, length))
        return [first + length * cell // count for cell in range(count + 1)]

    def shares(self, edges: Sequence[int]) -> list[float]:
        """The acknowledged share of each cell, 0.0 to 1.0."""
        return [
            (end - start - left) / (end - start) if end > start else 0.0
            for left, (start, end) in zip(self.unacknowledged(edges), pairwise(edges), strict=True)
        ]

    def unacknowledged(self, edges: Sequence[int]) -> list[int]:
        """The number of unacknowledged entries of each cell."""
        return [end - start - _acknowledged(self.state, start, end) for start, end in pairwise(edges)]

    def suspects(self, edges: Sequence[int]) -> list[int]:
        """The number of unacknowledged entries of each cell that a consumer may have held when it died."""
        known = self.state.deliveries
        if known is None:
            return [0] * max(0, len(edges) - 1)
        left = BitMap64(offset for offset in known.suspects if not self.state.is_acknowledged(offset))
        return [left.range_cardinality(start, end) for start, end in pairwise(edges)]

    @property
    def highest(self) -> int:
        """The highest acknowledged offset; -1 where nothing is."""
        found = self.state.deleted.max()
        return self.mark_delete if found is None else found

    def next_hole(self, offset: int) -> int | None:
        """The first unacknowledged entry at or above `offset` that lies below an acknowledged one."""
        found = self.state.deleted.first_gap(max(offset, self.state.next_unacked))
        return found if found < self.highest else None

    def acknowledged_ranges(self) -> Iterator[tuple[int, int]]:
        """The ranges of acknowledged entries above mark-delete, in order: first and last offset, both inclusive."""
        deleted, position = self.state.deleted, self.state.next_unacked
        while (first := deleted.next_member(position, self.end)) < self.end:
            position = deleted.first_gap(first)
            yield first, position - 1

    def acknowledged_in_batches(self) -> Iterator[tuple[int, list[int]]]:
        """The batch entries of which some messages are acknowledged: the offset, and the batch indexes of those."""
        for offset, acks in self.state.batches.items():
            yield offset, [index for index in range(acks.batch_size) if acks.acked >> index & 1]

    def fate(self, offset: int) -> EntryFate:
        """The state of one entry, as last saved."""
        known, batch = self.state.deliveries, self.state.batches.get(offset)
        counted = [] if known is None else [counts for counts, held in known.counts.items() if offset in held]
        delivered, seen_again = counted[0] if counted else (0, 0)
        return EntryFate(
            self.state.is_acknowledged(offset),
            None if batch is None else (batch.batch_size - batch.left, batch.batch_size),
            max(delivered, seen_again + 1) if counted else None,
            known is not None and offset in known.suspects,
            None if known is None else next((ms for ms, held in known.put_off.items() if offset in held), None),
        )


def _acknowledged(state: CursorState, start: int, end: int) -> int:
    count = max(0, min(end, state.next_unacked) - start)
    position, size = max(start, state.next_unacked), state.deleted.entries_per_ledger
    while position < end:
        index, entry = divmod(position, size)
        upto = min(end, (index + 1) * size)
        bitmap = state.deleted.ledger(index)
        if bitmap is not None:
            count += bitmap.range_cardinality(entry, entry + upto - position)
        position = upto
    return count


def view_of(
    partition: int,
    cursor: RecoveredCursor,
    layout: LedgerLayout,
    start: int,
    end: int,
    saved_in: str,
    commit_bytes: int,
    marker_bytes: Sequence[int],
) -> PartitionCursor:
    """`cursor` has all its ledgers in memory."""
    state = cursor.state
    ledgers = tuple(_ledgers(partition, cursor, layout))
    return PartitionCursor(
        partition,
        start,
        end,
        state.mark_delete,
        state.backlog(end),
        len(state.deleted),
        state.deleted.count_gaps(),
        sum(ledger.batches for ledger in ledgers),
        saved_in,
        commit_bytes,
        cursor.saved.marker_offset if cursor.saved is not None else None,
        tuple(marker_bytes),
        ledgers,
        layout,
        state,
    )


def _ledgers(partition: int, cursor: RecoveredCursor, layout: LedgerLayout) -> Iterator[LedgerCost]:
    state = cursor.state
    segments: dict[int, SavedLedger] = cursor.saved.segments if cursor.saved is not None else {}
    for index in sorted(state.ledgers_with_state()):
        first, following = layout.ledger_range(index)
        saved = segments.get(index)
        summary = state.summary(index, saved.summary.size_bytes if saved is not None else 0)
        before_the_first = bool(summary.acked) and summary.lowest > 0
        yield LedgerCost(
            layout.ledger_id(partition, index),
            first,
            following,
            summary.acked,
            max(0, summary.runs - 1) + before_the_first,
            summary.batches,
            "commit" if saved is None else "segment",
            summary.size_bytes,
            () if saved is None else tuple(ref.kafka_offset for ref in saved.parts),
        )
