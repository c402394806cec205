"""The cursor machine keeps a cursor's state, which acknowledgements change. No clock, no threads, and no I/O but
`Loader`'s."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pyroaring import BitMap, BitMap64

from pulsar_on_kafka.base.errors import InvalidCursorPosition, StoreError
from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet, BatchAckSets
from pulsar_on_kafka.broker.cursor.position_set import PositionSet, count_runs, leading_run
from pulsar_on_kafka_mapping.state.cursors.cursor_marker import LedgerSummary
from pulsar_on_kafka_mapping.state.cursors.cursor_state import Deliveries, Holes

MAX_REQUESTS: Final = 8
"""The limit of request ids that a cursor remembers. They make its commit 90 characters longer at most, once there was a
request."""

Loader = Callable[[Sequence[int]], Iterable[tuple[int, Holes]]]
"""Reads the saved holes of ledgers (ledger index, entry ids). Raises StoreError."""


class NewlyAcknowledged(NamedTuple):
    """The effect of acknowledging ledgers: the number of whole entries that were not acknowledged, and the number of
    such messages of each batch entry, by offset."""

    entries: int
    in_batches: dict[int, int]

    @property
    def messages(self) -> int:
        """An entry that was acknowledged as a whole counts as one."""
        return self.entries + sum(self.in_batches.values())


class CursorState:
    """Mark-delete position, individually deleted positions and batch ack sets of one partition.

    Offsets are Kafka's. `next_unacked` is Pulsar's mark-delete position + 1: everything below it is acknowledged, it
    itself is not. `revision` grows with every change, so that a save identifies the state that it covered.

    Saved ledgers may be unloaded (`send_away`) and are read back on demand. A call that needs an unreadable one raises
    StoreError before it changes anything.

    Memory: see PositionSet and BatchAckSets.
    """

    __slots__ = (
        "batches",
        "deleted",
        "deliveries",
        "dirty_ledgers",
        "leased_from",
        "loader",
        "next_unacked",
        "pending_acks",
        "requests",
        "resets",
        "revision",
    )

    def __init__(self, next_unacked: int, entries_per_ledger: int) -> None:
        if next_unacked < 0:
            raise InvalidCursorPosition(f"a cursor cannot start at offset {next_unacked}")
        self.next_unacked = next_unacked
        self.deleted = PositionSet(entries_per_ledger, self._bring_back)
        self.batches = BatchAckSets(entries_per_ledger, self._bring_back)
        self.loader: Loader | None = None
        """Reads back what is away."""
        self.deliveries: Deliveries | None = None
        """The delivery counts, as saved; the owner (`DeliveryGuard`) updates them, not this class."""
        self.requests: dict[bytes, int] = {}
        """Requests of other processes that took effect, with the result, by id, oldest first."""
        self.pending_acks = False
        """Transactions acknowledge here (`CommitMetadata.pending_acks`)."""
        self.leased_from: int | None = None
        """See `CommitMetadata.leased_from`; kept up by the owner (`Leasing`), not here."""
        self.dirty_ledgers: set[int] = set()
        self.revision = 0
        self.resets = 0
        """Counts seeks: what was saved before one may name what is not acknowledged any more."""

    @property
    def mark_delete(self) -> int:
        """Pulsar's mark-delete position as an offset; one below the start when nothing is acknowledged."""
        return self.next_unacked - 1

    def is_acknowledged(self, offset: int) -> bool:
        return offset < self.next_unacked or offset in self.deleted

    def ledgers_with_state(self) -> set[int]:
        return self.deleted.ledger_indexes() | self.batches.ledger_indexes()

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
        self.need(offsets)
        changed = self.deleted.add_all(offsets)
        if not changed:
            return False
        self.batches.discard(offsets)
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
        self.need(range(start, end))
        changed = self.deleted.add_range(start, end)
        if not changed:
            return False
        for index in changed & self.batches.ledger_indexes():
            self.batches.discard([offset for offset in self.batches.ledger(index) if start <= offset < end])
        self.dirty_ledgers |= changed
        self.revision += 1
        return True

    def acknowledge_cumulative(self, upto: int) -> bool:
        """Acknowledge everything up to and including `upto`. Source: ManagedCursorImpl.asyncMarkDelete."""
        if upto < self.next_unacked:
            return False
        self.need((upto + 1,))
        self.next_unacked = upto + 1
        self._drop_below()
        self._advance()
        self.revision += 1
        return True

    def acknowledge_batches(self, acks: Mapping[int, BatchAckSet]) -> dict[int, int]:
        """Acknowledge messages of many batch entries at once, repeats allowed; a set of another size than the one that
        is known of an entry is passed over.

        Gives how many messages of each entry are acknowledged that were not, without the entries where none is. Source:
        ManagedCursorImpl.asyncDelete with ack sets.
        """
        self.need(acks)
        newly: dict[int, int] = {}
        complete: list[int] = []
        for offset, added in acks.items():
            if self.is_acknowledged(offset):
                continue
            known = self.batches.get(offset)
            before = 0
            if known is not None:
                if known.batch_size != added.batch_size:
                    continue
                before = known.acked
            after = before | added.acked
            if after == before:
                continue
            newly[offset] = after.bit_count() - before.bit_count()
            merged = BatchAckSet(added.batch_size, after)
            if merged.complete:
                complete.append(offset)
            else:
                self.batches.put(offset, merged)
                index = offset // self.deleted.entries_per_ledger
                self.deleted.touch(index)
                self.dirty_ledgers.add(index)
        self.acknowledge(complete)
        if newly:
            self.revision += 1
        return newly

    def acknowledge_ledgers(self, ledgers: Mapping[int, Holes]) -> NewlyAcknowledged:
        """Acknowledge whole bitmaps of entries, and messages of batch entries, by ledger index and entry id.

        What is acknowledged already is no change, a batch's set of another size than the known one is passed over.
        Raises StoreError, with nothing changed.
        """
        self.need_ledgers(ledgers)
        size = self.deleted.entries_per_ledger
        changed: set[int] = set()
        entries = 0
        for index, holes in ledgers.items():
            base = index * size
            acked = holes.acked
            if base < self.next_unacked:
                acked = acked.copy()
                acked.remove_range(0, min(self.next_unacked - base, size))
            if added := self.deleted.add_to_ledger(index, acked):
                entries += added
                changed.add(index)
                self.batches.discard([offset for offset in self.batches.ledger(index) if offset - base in acked])
        self.dirty_ledgers |= changed
        self._advance()
        if changed:
            self.revision += 1
        newly = self.acknowledge_batches(
            {
                index * size + entry: BatchAckSet(*acks)
                for index, holes in ledgers.items()
                for entry, acks in holes.batches.items()
            }
        )
        return NewlyAcknowledged(entries, newly)

    def advance(self) -> None:
        """Move mark-delete where that had to wait for a ledger that could not be read back."""
        before = self.next_unacked
        self._advance()
        if self.next_unacked != before:
            self.revision += 1

    def reset(self, next_unacked: int) -> None:
        """Seek: everything below is acknowledged, nothing at or above is."""
        if next_unacked < 0:
            raise InvalidCursorPosition(f"a cursor cannot be set to offset {next_unacked}")
        self.dirty_ledgers |= self.ledgers_with_state()
        self.next_unacked = next_unacked
        self.resets += 1
        self.deleted.clear()
        self.batches.clear()
        if self.deliveries is not None and self.deliveries.only_seen:
            self.deliveries = None
        self.revision += 1

    def let_transactions_acknowledge(self) -> None:
        """Records with the next save that transactions acknowledge here: the next owner of the cursor then reads their
        acks before it serves."""
        if not self.pending_acks:
            self.pending_acks = True
            self.revision += 1

    def took_effect(self, request: bytes, result: int) -> None:
        """Remembers, with the next save, the result of this request; for the last `MAX_REQUESTS`."""
        self.requests = {**self.requests, request: result}
        while len(self.requests) > MAX_REQUESTS:
            del self.requests[next(iter(self.requests))]
        self.revision += 1

    def after(self, count: int, end: int) -> tuple[int, int]:
        """(Offset behind the next `count` unacknowledged entries, how many they are); none of them at or above `end`.

        `next_unacked` and 0 when there are none.
        """
        found, position = 0, self.next_unacked
        while found < count:
            start = self.deleted.first_gap(position)
            if start >= end:
                break
            step = min(count - found, self.deleted.next_member(start, end) - start, end - start)
            found += step
            position = start + step
        return position, found

    def restore(
        self,
        here: Mapping[int, Holes],
        away: Mapping[int, LedgerSummary] | None = None,
        loader: Loader | None = None,
    ) -> None:
        """Take over saved state: ledgers that were read, and ledgers of which only the summary was."""
        self.loader = loader
        for index, holes in here.items():
            self.put_ledger(index, holes)
        for index, summary in (away or {}).items():
            self._send_away(index, summary)
        self.need_ledgers((self.next_unacked // self.deleted.entries_per_ledger,))
        self._drop_below()
        self._advance()

    def unacknowledged(self, start: int, end: int) -> BitMap64:
        found = BitMap64()
        position = max(start, self.next_unacked)
        while position < end:
            gap = self.deleted.first_gap(position)
            upto = min(end, self.deleted.next_member(gap, end))
            if gap < upto:
                found.add_range(gap, upto)
            position = max(upto, gap)
        return found

    def known_end(self) -> int:
        """The offset behind the highest known entry; for batch entries in an unloaded ledger, behind its first one."""
        deleted = self.deleted.max()
        return max(self.next_unacked, self.batches.known_end(), 0 if deleted is None else deleted + 1)

    def backlog(self, end: int) -> int:
        return max(0, end - self.next_unacked - self.deleted.count_below(end))

    # Ledgers that are away ----------------------------------------------------------------------------------------

    def send_away(self, index: int, size_bytes: int) -> bool:
        """Keep only the summary of a ledger whose segments, of `size_bytes`, hold exactly what is known of it.

        False when it has to stay: mark-delete lies in it, or it has nothing.
        """
        if index == self.next_unacked // self.deleted.entries_per_ledger or self.is_away(index):
            return False
        summary = self.summary(index, size_bytes)
        if not summary.acked and not summary.batches:
            return False
        self._send_away(index, summary)
        return True

    def ledgers_here(self) -> set[int]:
        return self.deleted.ledgers_here() | self.batches.ledgers_here()

    def last_used(self, index: int) -> int:
        """The time (`deleted.now_s`) of the last use of a loaded ledger."""
        return self.deleted.last_used(index)

    def size_bytes(self, index: int) -> int:
        return self.deleted.size_bytes(index) + self.batches.size_bytes(index)

    def is_away(self, index: int) -> bool:
        return self.deleted.is_away(index) or self.batches.is_away(index)

    def summary(self, index: int, size_bytes: int) -> LedgerSummary:
        """The summary of a ledger that is here, whose segments take `size_bytes`."""
        bitmap = self.deleted.ledger(index)
        batches = len(self.batches.ledger(index))
        if not bitmap:
            return LedgerSummary(0, 0, 0, 0, 0, batches, size_bytes)
        low, high = int(bitmap.min()), int(bitmap.max())
        return LedgerSummary(len(bitmap), low, high, leading_run(bitmap), count_runs(bitmap), batches, size_bytes)

    def holes_of(self, index: int) -> Holes:
        """Holes of one ledger, by entry id; a copy."""
        base = index * self.deleted.entries_per_ledger
        batches = {offset - base: acks for offset, acks in self.batches.ledger(index).items()}
        bitmap = self.deleted.ledger(index)
        return Holes(BitMap() if bitmap is None else bitmap.copy(), batches)

    def need_ledgers(self, indexes: Iterable[int]) -> None:
        """Bring these ledgers back, where they are away. Raises StoreError."""
        requested = [index for index in indexes if self.is_away(index)]
        if requested:
            self._bring_back(*requested)

    def need(self, offsets: Iterable[int]) -> None:
        """Bring the ledgers of these back, where they are away. Raises StoreError, with nothing changed."""
        if self.deleted.away or self.batches.away:
            size = self.deleted.entries_per_ledger
            if isinstance(offsets, range):
                self.need_ledgers(range(offsets.start // size, (offsets.stop - 1) // size + 1))
            else:
                self.need_ledgers({offset // size for offset in offsets})

    def _send_away(self, index: int, summary: LedgerSummary) -> None:
        if summary.acked:
            self.deleted.send_away(index, summary)
        if summary.batches:
            self.batches.send_away(index, summary.batches)

    def _bring_back(self, *indexes: int) -> None:
        if self.loader is None:
            raise LookupError(f"ledgers {indexes} are not in memory and no loader is set")
        for index, holes in list(self.loader(indexes)):
            self.put_ledger(index, holes)

    def put_ledger(self, index: int, holes: Holes) -> None:
        """Replace what is known of a ledger by what was saved of it."""
        base = index * self.deleted.entries_per_ledger
        passed = self.next_unacked - base
        acked = holes.acked
        if passed > 0 and acked:
            acked.remove_range(0, min(passed, self.deleted.entries_per_ledger))
        self.deleted.put_ledger(index, acked)
        self.batches.put_ledger(
            index, {base + entry: BatchAckSet(*acks) for entry, acks in holes.batches.items() if entry >= passed}
        )

    def _advance(self) -> None:
        """Move mark-delete over what is complete. Source: ManagedCursorImpl, first of individualDeletedMessages."""
        size = self.deleted.entries_per_ledger
        if self.deleted.is_away(self.next_unacked // size):
            return  # it was not touched, and began with a gap
        try:
            moved = self.deleted.first_gap(self.next_unacked)
            if moved != self.next_unacked:
                self.need_ledgers((moved // size,))
        except StoreError:
            return  # tried again with the next change, and by `advance`
        if moved != self.next_unacked:
            self.next_unacked = moved
            self._drop_below()

    def _drop_below(self) -> None:
        # A saved segment may keep positions that mark-delete has passed since: recovery drops them again. So moving
        # mark-delete makes no ledger dirty.
        self.deleted.drop_below(self.next_unacked)
        if self.batches:
            self.batches.drop_below(self.next_unacked)
