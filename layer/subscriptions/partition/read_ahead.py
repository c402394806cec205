"""Records of a partition that are read ahead wait here to be handed out. No I/O, no threads."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


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
        """Of the next entry; None when there is none."""
        chunk = self._chunks[0] if self._chunks else None
        return None if chunk is None else chunk.offsets[chunk.taken]

    def replace_next(self, record: Any) -> None:
        """Of the next entry, which is there."""
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
