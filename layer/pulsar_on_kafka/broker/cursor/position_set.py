"""A set of offsets of one partition, kept as one compressed bitmap per ledger, of which some may be away.

A ledger that is away is known by its summary only: where a summary answers, it stays away; where it does not, the
owner brings it back (`bring_back`), and what that raises comes out of the call, before anything was changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from pyroaring import BitMap

from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka.broker.cursor.batch_acks import Ledgers
from pulsar_on_kafka_mapping.state.cursors.cursor_marker import LedgerSummary

MAX_ENTRIES_PER_LEDGER: Final = 1 << 22
_LEDGER_OVERHEAD_BYTES: Final = 250


class PositionSet(Ledgers[BitMap, LedgerSummary]):
    """Offsets, grouped by `offset // entries_per_ledger`, so that a change touches the bitmaps of few ledgers.

    Memory: at most 8 kB for each 65,536 offsets of the span in use, less where members or gaps are rare; some 300
    bytes for a ledger that is away.
    """

    __slots__ = ("_floor", "_used", "now_s")

    def __init__(self, entries_per_ledger: int, bring_back: Callable[[int], None]) -> None:
        if not 1 <= entries_per_ledger <= MAX_ENTRIES_PER_LEDGER:
            raise InvalidOption(f"entries per ledger must be 1 to {MAX_ENTRIES_PER_LEDGER}, got {entries_per_ledger}")
        super().__init__(entries_per_ledger, bring_back)
        self._used: dict[int, int] = {}
        """The last use of each loaded ledger."""
        self._floor = 0
        """No ledger below it is named anywhere."""
        self.now_s = 0
        """The owner's clock at its last update (monotonic, in seconds)."""

    @property
    def entries_per_ledger(self) -> int:
        return self._entries_per_ledger

    def __len__(self) -> int:
        return sum(map(len, self._ledgers.values())) + sum(summary.acked for summary in self._away.values())

    def __contains__(self, offset: int) -> bool:
        index, entry = divmod(offset, self._entries_per_ledger)
        bitmap = self._ledgers.get(index)
        if bitmap is None:
            if index not in self._away:
                return False
            bitmap = self._back(index)
        return bitmap is not None and entry in bitmap

    def __iter__(self) -> Iterator[int]:
        """Ascending."""
        for index, bitmap in self.ledgers():
            base = index * self._entries_per_ledger
            for entry in bitmap:
                yield base + entry

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PositionSet):
            return NotImplemented
        return self._entries_per_ledger == other._entries_per_ledger and dict(self.ledgers()) == dict(other.ledgers())

    __hash__ = None  # type: ignore[assignment]  # mutable

    def max(self) -> int | None:
        index = max((max(ledgers) for ledgers in (self._ledgers, self._away) if ledgers), default=None)
        if index is None:
            return None
        bitmap = self._ledgers.get(index)
        return index * self._entries_per_ledger + (
            int(bitmap.max()) if bitmap is not None else self._away[index].highest
        )

    def add_all(self, offsets: Sequence[int]) -> set[int]:
        """Add offsets in any order, repeats allowed. Gives the indexes of the ledgers that changed."""
        size = self._entries_per_ledger
        if self._away:
            self.need(offset // size for offset in offsets)
        changed: set[int] = set()
        first, last = min(offsets) // size, max(offsets) // size
        if first == last:
            base = first * size
            self._merge(first, BitMap([offset - base for offset in offsets]), changed)
            return changed
        for index, group in groupby(sorted(offsets), key=lambda offset: offset // size):
            base = index * size
            self._merge(index, BitMap([offset - base for offset in group]), changed)
        return changed

    def _merge(self, index: int, entries: BitMap, changed: set[int]) -> None:
        self._used[index] = self.now_s
        self._floor = min(self._floor, index)
        bitmap = self._ledgers.get(index)
        if bitmap is None:
            self._ledgers[index] = entries
            changed.add(index)
            return
        before = len(bitmap)
        bitmap |= entries
        if len(bitmap) != before:
            changed.add(index)

    def add_range(self, start: int, end: int) -> set[int]:
        """Add [start, end). Gives the indexes of the ledgers that changed."""
        size = self._entries_per_ledger
        changed: set[int] = set()
        indexes = range(start // size, (end - 1) // size + 1 if end > start else start // size)
        self.need(indexes)
        for index in indexes:
            base = index * size
            self._merge(index, BitMap(range(max(start, base) - base, min(end, base + size) - base)), changed)
        return changed

    def add_to_ledger(self, index: int, entries: BitMap) -> int:
        """Adds the entries of one ledger, an immutable bitmap; returns the number of new ones."""
        self.need((index,))
        known = self._ledgers.get(index)
        added = len(entries) - (0 if known is None else known.intersection_cardinality(entries))
        if added:
            self._merge(index, entries.copy(), set())
        return added

    def put_ledger(self, index: int, entries: BitMap) -> None:
        """Replace what is known of one ledger; an empty bitmap forgets it."""
        self._away.pop(index, None)
        self._floor = min(self._floor, index)
        if entries:
            self._ledgers[index] = entries
            self._used[index] = self.now_s
        else:
            self._ledgers.pop(index, None)
            self._used.pop(index, None)

    # Ledgers that are away ----------------------------------------------------------------------------------------

    def send_away(self, index: int, summary: LedgerSummary) -> None:
        """Keep nothing but the summary of a ledger, which has members."""
        self._floor = min(self._floor, index)
        self._ledgers.pop(index, None)
        self._used.pop(index, None)
        self._away[index] = summary

    def need(self, indexes: Iterable[int]) -> None:
        if self._away:
            for index in self._away.keys() & set(indexes):
                self._bring_back(index)

    def _back(self, index: int) -> BitMap | None:
        self._bring_back(index)
        return self._ledgers.get(index)

    def last_used(self, index: int) -> int:
        """The last use of a loaded ledger (`touch`); 0 for never."""
        return self._used.get(index, 0)

    def touch(self, index: int) -> None:
        self._used[index] = self.now_s

    def size_bytes(self, index: int) -> int:
        bitmap = self._ledgers.get(index)
        if bitmap is None:
            return 0
        found = bitmap.get_statistics()
        containers = found["n_bytes_array_containers"] + found["n_bytes_run_containers"]
        return _LEDGER_OVERHEAD_BYTES + int(containers + found["n_bytes_bitset_containers"])

    def first_gap(self, start: int) -> int:
        """The lowest offset at or above `start` that is not in the set."""
        size = self._entries_per_ledger
        index, entry = divmod(start, size)
        while True:
            bitmap = self._ledgers.get(index)
            if bitmap is None and index in self._away:
                if entry == 0:
                    end = self._away[index].leading
                    if end < size:
                        return index * size + end
                    index += 1
                    continue
                bitmap = self._back(index)
            if bitmap is None or entry not in bitmap:
                return index * size + entry
            end = _run_end(bitmap, entry)
            if end < size:
                return index * size + end
            index, entry = index + 1, 0

    def drop_below(self, offset: int) -> None:
        """Forget everything below `offset`. A ledger that is away and reaches below it is brought back first."""
        size = self._entries_per_ledger
        boundary, entry = divmod(offset, size)
        if entry and boundary in self._away and self._away[boundary].lowest < entry:
            self._bring_back(boundary)
        if boundary > self._floor:
            self._floor = boundary
            for ledgers in (self._ledgers, self._away, self._used):
                for index in [index for index in ledgers if index < boundary]:
                    del ledgers[index]
        bitmap = self._ledgers.get(boundary)
        if bitmap is not None and entry:
            bitmap.remove_range(0, entry)
            if not bitmap:
                del self._ledgers[boundary]
                self._used.pop(boundary, None)

    def clear(self) -> None:
        self._ledgers.clear()
        self._away.clear()
        self._used.clear()
        self._floor = 0

    def within(self, start: int, end: int) -> set[int]:
        size = self._entries_per_ledger
        found: set[int] = set()
        for index in range(start // size, (end - 1) // size + 1 if end > start else start // size):
            bitmap = self._ledgers.get(index)
            if bitmap is None:
                if index not in self._away:
                    continue
                bitmap = self._back(index)
                if bitmap is None:
                    continue
            self._used[index] = self.now_s
            base = index * size
            low, high = max(start - base, 0), min(end - base, size)
            part = bitmap & BitMap(range(low, high))
            found.update(base + entry for entry in part)
        return found

    def count_below(self, end: int) -> int:
        boundary, entry = divmod(end, self._entries_per_ledger)
        if entry and boundary in self._away and self._away[boundary].highest >= entry:
            self._bring_back(boundary)
        here = sum(
            len(bitmap) if index < boundary else int(bitmap.range_cardinality(0, entry))
            for index, bitmap in self._ledgers.items()
            if index < boundary or (index == boundary and entry)
        )
        return here + sum(
            summary.acked
            for index, summary in self._away.items()
            if index < boundary or (index == boundary and summary.highest < entry)
        )

    def ledgers(self) -> Iterator[tuple[int, BitMap]]:
        """(ledger index, entry ids) in ascending order. The bitmaps are live: do not change them."""
        for index in sorted(self.ledger_indexes()):
            bitmap = self._ledgers.get(index)
            if bitmap is None:
                bitmap = self._back(index)
            if bitmap is not None:
                yield index, bitmap

    def ledger(self, index: int) -> BitMap | None:
        return self._ledgers.get(index) if index not in self._away else self._back(index)

    def count_gaps(self) -> int:
        """The number of ranges that are *not* in the set, between a gap below its lowest member and its largest member.

        Loads no ledger.
        """
        size = self._entries_per_ledger
        runs = 0
        joined_to = None  # the offset behind the last run so far
        for index in sorted(self.ledger_indexes()):
            bitmap = self._ledgers.get(index)
            if bitmap is None:
                summary = self._away[index]
                low, high, here = summary.lowest, summary.highest, summary.runs
            else:
                low, high, here = int(bitmap.min()), int(bitmap.max()), count_runs(bitmap)
            runs += here - (index * size + low == joined_to)
            joined_to = index * size + high + 1
        return runs

    def next_member(self, offset: int, otherwise: int) -> int:
        """The lowest member at or above `offset`; `otherwise` when there is none."""
        largest = self.max()
        return otherwise if largest is None or largest < offset else self._next_member(offset)

    def _next_member(self, offset: int) -> int:
        size = self._entries_per_ledger
        index, entry = divmod(offset, size)
        bitmap = self._ledgers.get(index)
        if bitmap is None and index in self._away and self._away[index].highest >= entry:
            bitmap = self._back(index)
        if bitmap is not None and int(bitmap.max()) >= entry:
            return index * size + int(bitmap.next_set_bit(entry))
        later = min(other for ledgers in (self._ledgers, self._away) for other in ledgers if other > index)
        bitmap = self._ledgers.get(later)
        return later * size + (int(bitmap.min()) if bitmap is not None else self._away[later].lowest)


def count_runs(bitmap: BitMap) -> int:
    """The number of ranges of the members."""
    return len(bitmap) - len(bitmap & bitmap.shift(1))


def leading_run(bitmap: BitMap) -> int:
    """The number of members from 0 on without a gap."""
    return _run_end(bitmap, 0) if 0 in bitmap else 0


def _run_end(bitmap: BitMap, start: int) -> int:
    """End (exclusive) of the run of members that begins at `start`, which is a member."""
    step = 1
    low = start + 1  # everything in [start, low) is a member
    while bitmap.contains_range(low, low + step):
        low += step
        step *= 2
    while step > 1:
        step //= 2
        if bitmap.contains_range(low, low + step):
            low += step
    return low
