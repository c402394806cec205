"""What a cursor knows, and how acknowledgements change it. No I/O, no clock, no threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from layer.cursor.positions import PositionSet
from layer.errors import InvalidCursorPosition


@dataclass(frozen=True, slots=True)
class BatchAckSet:
    """Which messages of one batch entry are acknowledged: bit i of `acked` stands for batch index i."""

    batch_size: int
    acked: int

    @property
    def complete(self) -> bool:
        return self.acked == (1 << self.batch_size) - 1

    def unacked(self) -> int:
        return self.batch_size - self.acked.bit_count()


class CursorState:
    """Mark-delete position, individually deleted positions and batch ack sets of one partition.

    Offsets are Kafka's. `next_unacked` is Pulsar's mark-delete position + 1: everything below it is acknowledged, it
    itself is not. `revision` grows with every change, so that a save knows what it covered.
    """

    __slots__ = ("batches", "deleted", "dirty_ledgers", "next_unacked", "revision")

    def __init__(self, next_unacked: int, entries_per_ledger: int) -> None:
        if next_unacked < 0:
            raise InvalidCursorPosition(f"a cursor cannot start at offset {next_unacked}")
        self.next_unacked = next_unacked
        self.deleted = PositionSet(entries_per_ledger)
        self.batches: dict[int, BatchAckSet] = {}
        self.dirty_ledgers: set[int] = set()
        self.revision = 0

    @property
    def mark_delete(self) -> int:
        """Pulsar's mark-delete position as an offset; one below the start when nothing is acknowledged."""
        return self.next_unacked - 1

    def is_acknowledged(self, offset: int) -> bool:
        return offset < self.next_unacked or offset in self.deleted

    def has_individual_state(self) -> bool:
        return bool(self.deleted) or bool(self.batches)

    def acknowledged_in(self, start: int, end: int) -> set[int]:
        """The individually acknowledged offsets in [start, end), all at or above the mark-delete position."""
        return self.deleted.within(max(start, self.next_unacked), end)

    def acknowledge(self, offsets: Sequence[int]) -> bool:
        """Acknowledge entries one by one, in any order, repeats allowed; what is acknowledged already is no change.

        Source: ManagedCursorImpl.asyncDelete. Returns whether anything changed.
        """
        if not offsets:
            return False
        if min(offsets) < self.next_unacked:
            floor = self.next_unacked
            offsets = [offset for offset in offsets if offset >= floor]
            if not offsets:
                return False
        changed = self.deleted.add_all(offsets)
        if not changed:
            return False
        self._forget_batches(offsets)
        self.dirty_ledgers |= changed
        self._advance()
        self.revision += 1
        return True

    def acknowledge_range(self, start: int, end: int) -> bool:
        """Acknowledge [start, end): offsets that no fetch returns (compaction, foreign control records), markers."""
        start = max(start, self.next_unacked)
        if start >= end:
            return False
        if start == self.next_unacked:
            return self.acknowledge_cumulative(end - 1)
        changed = self.deleted.add_range(start, end)
        if not changed:
            return False
        self._forget_batches(range(start, end))
        self.dirty_ledgers |= changed
        self.revision += 1
        return True

    def acknowledge_cumulative(self, upto: int) -> bool:
        """Acknowledge everything up to and including `upto`. Source: ManagedCursorImpl.asyncMarkDelete."""
        if upto < self.next_unacked:
            return False
        self.next_unacked = upto + 1
        self._advance()
        self._drop_below()
        self.revision += 1
        return True

    def acknowledge_batch(self, offset: int, batch_size: int, indexes: Sequence[int]) -> bool:
        """Acknowledge messages of the batch entry at `offset` by batch index (0 to `batch_size` - 1)."""
        if self.is_acknowledged(offset):
            return False
        known = self.batches.get(offset, BatchAckSet(batch_size, 0))
        if known.batch_size != batch_size or any(not 0 <= index < batch_size for index in indexes):
            raise InvalidCursorPosition(
                f"batch at offset {offset} has {known.batch_size} messages, got indexes {list(indexes)} of {batch_size}"
            )
        acked = known.acked
        for index in indexes:
            acked |= 1 << index
        if acked == known.acked:
            return False
        merged = BatchAckSet(batch_size, acked)
        if merged.complete:
            return self.acknowledge([offset])
        self.batches[offset] = merged
        self.dirty_ledgers.add(offset // self.deleted.entries_per_ledger)
        self.revision += 1
        return True

    def reset(self, next_unacked: int) -> None:
        """Seek: everything below is acknowledged, nothing at or above is."""
        if next_unacked < 0:
            raise InvalidCursorPosition(f"a cursor cannot be set to offset {next_unacked}")
        self.dirty_ledgers |= self.deleted.ledger_indexes()
        self.next_unacked = next_unacked
        self.deleted.clear()
        self.batches.clear()
        self.revision += 1

    def restore(self, deleted: PositionSet, batches: Mapping[int, BatchAckSet]) -> None:
        """Take over individually deleted positions from a saved state."""
        self.deleted = deleted
        self.batches = dict(batches)
        self._advance()
        self._drop_below()

    def backlog(self, end: int) -> int:
        """Entries in [next_unacked, end) that are not acknowledged."""
        return max(0, end - self.next_unacked - self.deleted.count_below(end))

    def _advance(self) -> None:
        """Move mark-delete over what is complete. Source: ManagedCursorImpl, first of individualDeletedMessages."""
        moved = self.deleted.first_gap(self.next_unacked)
        if moved != self.next_unacked:
            self.next_unacked = moved
            self._drop_below()

    def _drop_below(self) -> None:
        # A saved segment may keep positions that mark-delete has passed since: recovery drops them again. So moving
        # mark-delete makes no ledger dirty.
        self.deleted.drop_below(self.next_unacked)
        if self.batches:
            floor = self.next_unacked
            self.batches = {offset: acks for offset, acks in self.batches.items() if offset >= floor}

    def _forget_batches(self, offsets: Sequence[int]) -> None:
        if self.batches:
            for offset in offsets:
                self.batches.pop(offset, None)
