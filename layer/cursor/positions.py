"""A set of offsets of one partition, kept as one compressed bitmap per ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from pyroaring import BitMap

from layer.errors import InvalidOption

MAX_ENTRIES_PER_LEDGER: Final = 1 << 22


class PositionSet:
    """Offsets, grouped by `offset // entries_per_ledger`, so that a change touches the bitmaps of few ledgers.

    Memory: at most 8 kB for each 65,536 offsets of the span in use, less where members or gaps are rare.
    """

    __slots__ = ("_entries_per_ledger", "_ledgers")

    def __init__(self, entries_per_ledger: int) -> None:
        if not 1 <= entries_per_ledger <= MAX_ENTRIES_PER_LEDGER:
            raise InvalidOption(f"entries per ledger must be 1 to {MAX_ENTRIES_PER_LEDGER}, got {entries_per_ledger}")
        self._entries_per_ledger = entries_per_ledger
        self._ledgers: dict[int, BitMap] = {}

    @property
    def entries_per_ledger(self) -> int:
        return self._entries_per_ledger

    def __len__(self) -> int:
        return sum(map(len, self._ledgers.values()))

    def __bool__(self) -> bool:
        return bool(self._ledgers)

    def __contains__(self, offset: int) -> bool:
        index, entry = divmod(offset, self._entries_per_ledger)
        bitmap = self._ledgers.get(index)
        return bitmap is not None and entry in bitmap

    def __iter__(self) -> Iterator[int]:
        """Ascending."""
        for index in sorted(self._ledgers):
            base = index * self._entries_per_ledger
            for entry in self._ledgers[index]:
                yield base + entry

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PositionSet):
            return NotImplemented
        return self._entries_per_ledger == other._entries_per_ledger and self._ledgers == other._ledgers

    __hash__ = None  # type: ignore[assignment]  # mutable

    def max(self) -> int | None:
        if not self._ledgers:
            return None
        index = max(self._ledgers)
        return index * self._entries_per_ledger + int(self._ledgers[index].max())

    def add_all(self, offsets: Sequence[int]) -> set[int]:
        """Add offsets in any order, repeats allowed. Gives the indexes of the ledgers that changed."""
        size = self._entries_per_ledger
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
        for index in range(start // size, (end - 1) // size + 1 if end > start else start // size):
            base = index * size
            self._merge(index, BitMap(range(max(start, base) - base, min(end, base + size) - base)), changed)
        return changed

    def put_ledger(self, index: int, entries: BitMap) -> None:
        """Replace what is known of one ledger; an empty bitmap forgets it."""
        if entries:
            self._ledgers[index] = entries
        else:
            self._ledgers.pop(index, None)

    def first_gap(self, start: int) -> int:
        """The lowest offset at or above `start` that is not in the set."""
        size = self._entries_per_ledger
        index, entry = divmod(start, size)
        while True:
            bitmap = self._ledgers.get(index)
            if bitmap is None or entry not in bitmap:
                return index * size + entry
            end = _run_end(bitmap, entry)
            if end < size:
                return index * size + end
            index, entry = index + 1, 0

    def drop_below(self, offset: int) -> None:
        """Forget everything below `offset`."""
        size = self._entries_per_ledger
        boundary, entry = divmod(offset, size)
        if len(self._ledgers) == 1:
            below = [index for index in self._ledgers if index < boundary]
        else:
            below = sorted(index for index in self._ledgers if index < boundary)
        for index in below:
            del self._ledgers[index]
        bitmap = self._ledgers.get(boundary)
        if bitmap is not None and entry:
            bitmap.remove_range(0, entry)
            if not bitmap:
                del self._ledgers[boundary]

    def clear(self) -> None:
        self._ledgers.clear()

    def within(self, start: int, end: int) -> set[int]:
        """The members in [start, end)."""
        size = self._entries_per_ledger
        found: set[int] = set()
        for index in range(start // size, (end - 1) // size + 1 if end > start else start // size):
            bitmap = self._ledgers.get(index)
            if bitmap is None:
                continue
            base = index * size
            low, high = max(start - base, 0), min(end - base, size)
            part = bitmap & BitMap(range(low, high))
            found.update(base + entry for entry in part)
        return found

    def count_below(self, end: int) -> int:
        """How many members lie below `end`."""
        boundary, entry = divmod(end, self._entries_per_ledger)
        return sum(
            len(bitmap) if index < boundary else int(bitmap.range_cardinality(0, entry))
            for index, bitmap in self._ledgers.items()
            if index < boundary or (index == boundary and entry)
        )

    def ledgers(self) -> Iterator[tuple[int, BitMap]]:
        """(ledger index, entry ids) in ascending order. The bitmaps are live: do not change them."""
        for index in sorted(self._ledgers):
            yield index, self._ledgers[index]

    def ledger_indexes(self) -> set[int]:
        return set(self._ledgers)

    def ledger(self, index: int) -> BitMap | None:
        return self._ledgers.get(index)

    def gaps(self, start: int, limit: int) -> list[tuple[int, int]]:
        """The first `limit` ranges [a, b) at or above `start` that are *not* in the set, below its largest member."""
        largest = self.max()
        found: list[tuple[int, int]] = []
        position = start
        while largest is not None and position < largest and len(found) < limit:
            gap = self.first_gap(position)
            if gap > largest:
                break
            end = self._next_member(gap)
            found.append((gap, end))
            position = end
        return found

    def _next_member(self, offset: int) -> int:
        size = self._entries_per_ledger
        index, entry = divmod(offset, size)
        bitmap = self._ledgers.get(index)
        if bitmap is not None and int(bitmap.max()) >= entry:
            return index * size + int(bitmap.next_set_bit(entry))
        later = min(other for other in self._ledgers if other > index)
        return later * size + int(self._ledgers[later].min())


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
