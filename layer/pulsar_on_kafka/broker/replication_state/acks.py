"""Acknowledged positions of one partition, as sets that can be joined, taken apart and moved. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyroaring import BitMap

from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka_mapping.state.cursors.cursor_state import Holes

BatchSet = tuple[int, int]
"""A partly acknowledged batch entry: its number of messages, and a bit for each acknowledged one."""


class ReplicatedAcks:
    """Everything below `below`, single positions above it, and messages of batch entries, in blocks of `size`.

    Memory: a bitmap for each block that has anything (an eighth of a byte for each position at most), and about 200
    bytes for each batch entry of which only some messages are acknowledged.
    """

    __slots__ = ("batches", "below", "bitmaps", "size")

    def __init__(self, size: int, below: int = 0, blocks: Mapping[int, Holes] | None = None) -> None:
        self.size = size
        self.below = below
        self.bitmaps: dict[int, BitMap] = {}
        self.batches: dict[int, BatchSet] = {}
        """Sets by position."""
        for block, holes in (blocks or {}).items():
            self.add(block * size, holes.acked)
            for position, found in holes.batches.items():
                self.add_batch(block * size + position, found)

    def __bool__(self) -> bool:
        return bool(self.below or self.bitmaps or self.batches)

    def __len__(self) -> int:
        """Positions at or above `below` that are acknowledged as a whole."""
        return sum(map(len, self.bitmaps.values()))

    def add(self, start: int, relative: BitMap) -> None:
        if not relative:
            return
        position, end = start + int(relative.min()), start + int(relative.max()) + 1
        while position < end:
            block = position // self.size
            upto = min(end, (block + 1) * self.size)
            part = _cut(relative, position - start, upto - start).shift(start - block * self.size)
            if part:
                known = self.bitmaps.get(block)
                self.bitmaps[block] = part if known is None else known | part
            position = upto

    def add_batch(self, position: int, found: BatchSet) -> None:
        """Add messages of a batch entry; a set of another number of messages than the known one is passed over."""
        known = self.batches.get(position)
        if known is None:
            self.batches[position] = found
        elif known[0] == found[0]:
            self.batches[position] = (found[0], known[1] | found[1])

    def join(self, other: ReplicatedAcks) -> None:
        self.below = max(self.below, other.below)
        for block, bitmap in other.bitmaps.items():
            self.add(block * other.size, bitmap)
        for position, found in other.batches.items():
            self.add_batch(position, found)

    def has(self, position: int) -> bool:
        if position < self.below:
            return True
        bitmap = self.bitmaps.get(position // self.size)
        return bitmap is not None and position % self.size in bitmap

    def within(self, start: int, end: int) -> BitMap:
        """The acknowledged positions in [start, end), counted from `start`."""
        found = BitMap()
        if start < self.below:
            found.add_range(0, min(end, self.below) - start)
        position = max(start, self.below)
        while position < end:
            block = position // self.size
            base, upto = block * self.size, min(end, (block + 1) * self.size)
            bitmap = self.bitmaps.get(block)
            if bitmap is not None:
                found |= _cut(bitmap, position - base, upto - base).shift(base - start)
            position = upto
        return found

    def batches_within(self, start: int, end: int) -> Iterator[tuple[int, BatchSet]]:
        """(position, set) of the batch entries in [start, end) of which some messages are acknowledged."""
        return ((position, found) for position, found in self.batches.items() if start <= position < end)

    def blocks(self) -> dict[int, Holes]:
        """The blocks that lie at or above `below`."""
        sets: dict[int, dict[int, BatchSet]] = {}
        for position, found in self.batches.items():
            if not self.has(position):
                sets.setdefault(position // self.size, {})[position % self.size] = found
        blocks: dict[int, Holes] = {}
        for block in sorted({*self.bitmaps, *sets}):
            bitmap = _cut(self.bitmaps.get(block, BitMap()), max(0, self.below - block * self.size), self.size)
            if bitmap or block in sets:
                blocks[block] = Holes(bitmap, sets.get(block, {}))
        return blocks


def in_both(one: ReplicatedAcks, other: ReplicatedAcks) -> ReplicatedAcks:
    less, more = sorted((one, other), key=lambda acks: acks.below)
    found = ReplicatedAcks(less.size, less.below)
    for block, bitmap in less.bitmaps.items():
        start = block * less.size
        found.add(start, bitmap & more.within(start, start + less.size))
    return found


def news(report: ReplicatedAcks, known: ReplicatedAcks, start: int, end: int) -> tuple[BitMap, dict[int, BatchSet]]:
    """The acknowledgements of `report` in [start, end) that `known` lacks: positions counted from `start`, and sets by
    position.

    A batch entry of which some messages are known is returned as a set, also where all of them are acknowledged now.
    """
    acked = report.within(start, end)
    if acked:
        acked -= known.within(start, end)
    sets: dict[int, BatchSet] = {}
    for position, (messages, bits) in known.batches_within(start, end):
        if position - start in acked:
            acked.discard(position - start)
            sets[position] = (messages, (1 << messages) - 1 & ~bits)
    for position, (messages, bits) in report.batches_within(start, end):
        new = bits & ~known.batches.get(position, (0, 0))[1]
        if new and not known.has(position) and not report.has(position):
            sets[position] = (messages, new)
    return acked, sets


def of_cursor(state: CursorState) -> ReplicatedAcks:
    """All that a cursor has acknowledged. Reads back every ledger of it that is away: raises StoreError."""
    size = state.deleted.entries_per_ledger
    acks = ReplicatedAcks(size, state.next_unacked)
    for index, bitmap in state.deleted.ledgers():
        acks.bitmaps[index] = bitmap.copy()
    for offset, found in state.batches.items():
        acks.batches[offset] = (found.batch_size, found.acked)
    return acks


def _cut(bitmap: BitMap, start: int, end: int) -> BitMap:
    if not bitmap or (int(bitmap.min()) >= start and int(bitmap.max()) < end):
        return bitmap.copy()
    window = BitMap()
    if start < end:
        window.add_range(start, end)
    return bitmap & window
