"""Which records of a partition are void because an exclusive producer had taken the topic over before them. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

from mapping.headers import exclusive_epoch, producer_epoch


class Fences:
    """Where each exclusive epoch begins in one partition.

    The rule of design.md 3: after the first record of an exclusive epoch the records of lower epochs are void. It
    judges every record by itself, so whoever reads, from wherever, judges alike. A record without our producer header
    belongs to no producer of ours and is never void. Memory: one entry per exclusive producer that wrote here.
    """

    def __init__(self, known: Iterable[tuple[int, int]] = ()) -> None:
        """`known`: (offset of its first record, epoch)."""
        self._first: dict[int, int] = {}
        self._offsets: list[int] = []
        self._highest: list[int] = []
        self.add(known)

    def __bool__(self) -> bool:
        return bool(self._offsets)

    def learn(self, offsets: Sequence[int], records: Sequence[Any], odd: Iterable[int]) -> None:
        """Take in the records of exclusive producers among those at the indices `odd`."""
        self.add((offsets[i], epoch) for i in odd if (epoch := exclusive_epoch(records[i].headers())) is not None)

    def void_in(self, offsets: Sequence[int], records: Sequence[Any]) -> list[int]:
        """Indices of the void ones."""
        return [
            i
            for i, record in enumerate(records)
            if (epoch := producer_epoch(record.headers())) is not None and epoch < self._epoch_before(offsets[i])
        ]

    def valid(self, records: list[Any], odd: Iterable[int]) -> list[Any]:
        """`learn`, then a run of records without the void ones."""
        offsets = [record.offset() for record in records]
        self.learn(offsets, records, odd)
        void = set(self.void_in(offsets, records)) if self else set()
        return [record for i, record in enumerate(records) if i not in void] if void else records

    def _epoch_before(self, offset: int) -> int:
        at = bisect_left(self._offsets, offset)
        return self._highest[at - 1] if at else 0

    def add(self, found: Iterable[tuple[int, int]]) -> None:
        """`found`: as `known`."""
        changed = False
        for offset, epoch in found:
            if offset < self._first.get(epoch, offset + 1):
                self._first[epoch] = offset
                changed = True
        if not changed:
            return
        self._offsets, self._highest = [], []
        highest = 0
        for offset, epoch in sorted((offset, epoch) for epoch, offset in self._first.items()):
            if epoch > highest:
                highest = epoch
                self._offsets.append(offset)
                self._highest.append(epoch)
