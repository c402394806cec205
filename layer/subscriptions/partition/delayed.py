"""Messages of one partition that are to be delivered later. No I/O, no clock.

The truth is each record's own header; what is kept here is made anew when a partition is read again. Source: Pulsar's
InMemoryDelayedDeliveryTracker. Differs from Pulsar: a message is never early and at most a tick late, while Pulsar's
may be early by a tick of 1 s and more.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import islice
from typing import Final

from pyroaring import BitMap64

from pulsar_on_kafka.mapping.encoding.decimals import decimal_or_none
from pulsar_on_kafka.mapping.records.record_headers import DELIVER_AT

TICK_MS: Final = 100
"""Times are rounded up to a multiple of this. Pulsar's `delayedDeliveryTickTimeMillis` is 1,000."""
MAX_DELAYED: Final = 1_000_000
"""Messages set aside by one subscription's partitions in a process; above it reading pauses until some are due."""

_TICKS_PER_BLOCK: Final = 1024
_OPENED_AHEAD: Final = 1024
"""Ticks before its beginning at which a block's messages are sorted into ticks."""
_NONE: Final = BitMap64()
_LONGEST_DELAY_MS: Final = 2**53
"""285,000 years: what is later stays within the arithmetic of 64 bits."""


def deliver_at_ms(headers: Sequence[tuple[str, bytes | None]] | None) -> int:
    """When a record is to be delivered, Unix time in ms; 0 when at once, also when the header is no number."""
    due_ms = 0
    for name, value in headers or ():
        if name == DELIVER_AT:
            due_ms = min(decimal_or_none(value or b"", most=2**128 - 1) or 0, _LONGEST_DELAY_MS)
    return due_ms


class DelayedMessages:
    """Offsets by due time, and those that are due and were not taken yet.

    Memory: 8 bytes a message that is due within four minutes or so, 16 bytes for a later one, and about 200 bytes for
    each tick (each 1,024 ticks, if later) that has any; what is due is one compressed bitmap.
    """

    def __init__(self) -> None:
        self._near: dict[int, array[int]] = {}
        """Tick to offsets, for ticks below `_near_end`; `_ticks` is a heap of its keys."""
        self._ticks: list[int] = []
        self._far: dict[int, array[int]] = {}
        """Block of ticks to tick, offset, tick, offset ...; `_blocks` is a heap of its keys."""
        self._blocks: list[int] = []
        self._near_end = 0
        self._count = 0
        self._due = BitMap64()

    def __len__(self) -> int:
        """What is set aside, due or not."""
        return self._count + len(self._due)

    @property
    def has_due(self) -> bool:
        return bool(self._due)

    def next_due_ms(self) -> int | None:
        """When the next one is due, or somewhat before that; None when nothing waits for a time."""
        if self._ticks:
            return self._ticks[0] * TICK_MS
        return self._blocks[0] * _TICKS_PER_BLOCK * TICK_MS if self._blocks else None

    def set_aside(self, offset: int, due_ms: int) -> None:
        tick = -(-due_ms // TICK_MS)
        self._count += 1
        if tick < self._near_end:
            self._put_near(tick, offset)
            return
        block = tick // _TICKS_PER_BLOCK
        pairs = self._far.get(block)
        if pairs is None:
            pairs = self._far[block] = array("Q")
            heappush(self._blocks, block)
        pairs.append(tick)
        pairs.append(offset)

    def advance(self, now_ms: int) -> None:
        """It is `now_ms`: find out what is due."""
        now_tick = now_ms // TICK_MS
        while self._blocks and self._blocks[0] * _TICKS_PER_BLOCK <= now_tick + _OPENED_AHEAD:
            block = heappop(self._blocks)
            self._near_end = max(self._near_end, (block + 1) * _TICKS_PER_BLOCK)
            pairs = self._far.pop(block)
            for tick, offset in zip(pairs[::2], pairs[1::2], strict=True):
                self._put_near(tick, offset)
        if not self._ticks or self._ticks[0] > now_tick:
            return
        found = array("Q")
        while self._ticks and self._ticks[0] <= now_tick:
            found.extend(self._near.pop(heappop(self._ticks)))
        self._count -= len(found)
        self._due.update(found)

    def has_due_besides(self, others: BitMap64) -> bool:
        """`has_due`, without these."""
        return bool(self._due) and not self._due.issubset(others)

    def take_due(self, limit: int, besides: BitMap64 = _NONE) -> list[int]:
        """Up to `limit` offsets that are due, lowest first, without those in `besides`."""
        taken = list(islice(self._due - besides if besides else self._due, limit))
        self._due.difference_update(BitMap64(taken))
        return taken

    def upcoming(self, first_tick: int, end_tick: int, most: int) -> tuple[array[int], int]:
        """What is due from one tick to before another, by time, `most` or the rest of a tick more; and the tick that is
        next. `end_tick` lies a minute and a half ahead of `advance` at most."""
        found = array("Q")
        for tick in sorted(tick for tick in self._ticks if first_tick <= tick < end_tick):
            if len(found) >= most:
                return found, tick
            found.extend(self._near[tick])
        return found, end_tick

    def forget_below(self, end: int) -> None:
        """Nobody wants the offsets below `end` any more."""
        for tick, offsets in self._near.items():
            self._near[tick] = array("Q", (offset for offset in offsets if offset >= end))
        for block, pairs in self._far.items():
            kept = array("Q")
            for tick, offset in zip(pairs[::2], pairs[1::2], strict=True):
                if offset >= end:
                    kept.extend((tick, offset))
            self._far[block] = kept
        self._count = sum(map(len, self._near.values())) + sum(len(pairs) // 2 for pairs in self._far.values())
        self._due.remove_range(0, end)

    def clear(self) -> None:
        """The partition is read anew, or is somebody else's."""
        self._near.clear()
        self._ticks.clear()
        self._far.clear()
        self._blocks.clear()
        self._count = 0
        self._due.clear()

    def _put_near(self, tick: int, offset: int) -> None:
        offsets = self._near.get(tick)
        if offsets is None:
            offsets = self._near[tick] = array("Q")
            heappush(self._ticks, tick)
        offsets.append(offset)
