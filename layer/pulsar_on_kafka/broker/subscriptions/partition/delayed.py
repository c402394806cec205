"""Delayed messages of one partition, and the records of those that are due soon. No I/O, no clock.

Each record's own header decides; the state here is rebuilt when a partition is read again. Source: Pulsar's
InMemoryDelayedDeliveryTracker. Differs from Pulsar: a message is never early and at most a tick late, while Pulsar's
may be early by a tick of 1 s and more.

A jump to one record in Kafka takes as long as reading 5,000 small ones in a row (kafka/reading/fetcher.py). So the
messages that are due next are chosen by time, as many as there is room for, and read together by offset.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Container, Iterable, Sequence
from heapq import heappop, heappush
from itertools import islice
from typing import Any, Final

from pyroaring import BitMap64

from pulsar_on_kafka.broker.subscriptions.records.chunks import WholeMessage
from pulsar_on_kafka_mapping.encoding.decimals import decimal_or_none
from pulsar_on_kafka_mapping.records.record_headers import DELIVER_AT

TICK_MS: Final = 100
"""Times are rounded up to a multiple of this. Pulsar's `delayedDeliveryTickTimeMillis` is 1,000."""
MAX_DELAYED: Final = 1_000_000
"""Messages set aside by one subscription's partitions in a process; above it reading pauses until some are due."""

_TICKS_PER_BLOCK: Final = 1024
_OPENED_AHEAD: Final = 1024
"""Ticks before its beginning at which a block's messages are sorted into ticks."""
_NONE: Final = BitMap64()
_FORGOTTEN_TOGETHER: Final = 64
_FEW: Final = 4096
"""So many messages are looked through at once, in less than a millisecond."""
_LONGEST_DELAY_MS: Final = 2**53
"""285,000 years: what is later stays within the arithmetic of 64 bits."""


def deliver_at_ms(headers: Sequence[tuple[str, bytes | None]] | None) -> int:
    """Returns the delivery time of a record, Unix time in ms; 0 for none, also if the header is no number."""
    due_ms = 0
    for name, value in headers or ():
        if name == DELIVER_AT:
            due_ms = min(decimal_or_none(value or b"", most=2**128 - 1) or 0, _LONGEST_DELAY_MS)
    return due_ms


class DelayedMessages:
    """Offsets by due time, and those that are due and were not taken yet.

    Memory: 8 bytes a message that is due within four minutes or so, 16 bytes for a later one, and about 200 bytes for
    each tick (each 1,024 ticks, if later) that has any; what is due, or forgotten, is one compressed bitmap each.
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
        self._forgotten = BitMap64()
        """Acknowledged messages that may still be in the lists."""

    def __len__(self) -> int:
        """Counts the messages set aside, due or not."""
        return self._count + len(self._due)

    @property
    def has_due(self) -> bool:
        return bool(self._due)

    def next_due_ms(self) -> int | None:
        """Returns when the next one is due, or somewhat before that; None if no message waits for a time."""
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
        """Finds the messages that are due at `now_ms`."""
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
        return bool(self._due) and not self._due.issubset(others)

    def take_due(self, limit: int, besides: BitMap64 = _NONE) -> list[int]:
        """Takes up to `limit` offsets that are due, lowest first, without those in `besides`."""
        taken = list(islice(self._due - besides if besides else self._due, limit))
        self._due.difference_update(BitMap64(taken))
        return taken

    def upcoming(self, first_tick: int, end_tick: int, most: int) -> tuple[array[int], int]:
        """Returns the messages due from one tick to before another, by time, `most` or the rest of a tick more; and the
        next tick. `end_tick` lies a minute and a half ahead of `advance` at most."""
        found = array("Q")
        for tick in sorted(tick for tick in self._ticks if first_tick <= tick < end_tick):
            if len(found) >= most:
                return found, tick
            found.extend(self._near[tick])
        return found, end_tick

    def forget(self, offsets: BitMap64) -> None:
        """Forgets these messages, which are acknowledged. Where there are more than 4,096, up to a 64th of all is
        counted for a while longer: removing one takes as long as removing many."""
        self._due -= offsets
        self._forgotten |= offsets
        if self._count <= _FEW or len(self._forgotten) * _FORGOTTEN_TOGETHER >= self._count:
            gone, self._forgotten = self._forgotten, BitMap64()
            self._keep(lambda offset: offset not in gone)

    def forget_below(self, end: int) -> None:
        self._keep(lambda offset: offset >= end)
        self._due.remove_range(0, end)

    def _keep(self, stays: Callable[[int], bool]) -> None:
        for tick, offsets in self._near.items():
            self._near[tick] = array("Q", filter(stays, offsets))
        for block, pairs in self._far.items():
            kept = array("Q")
            for tick, offset in zip(pairs[::2], pairs[1::2], strict=True):
                if stays(offset):
                    kept.extend((tick, offset))
            self._far[block] = kept
        self._count = sum(map(len, self._near.values())) + sum(len(pairs) // 2 for pairs in self._far.values())

    def clear(self) -> None:
        self._near.clear()
        self._ticks.clear()
        self._far.clear()
        self._blocks.clear()
        self._count = 0
        self._due.clear()
        self._forgotten.clear()

    def _put_near(self, tick: int, offset: int) -> None:
        offsets = self._near.get(tick)
        if offsets is None:
            offsets = self._near[tick] = array("Q")
            heappush(self._ticks, tick)
        offsets.append(offset)


MAX_BYTES: Final = 16 * 1024 * 1024
WINDOW_MS: Final = 60_000
"""No message is read earlier than this before its time."""

_OVERHEAD_BYTES: Final = 500
"""The size of a record in memory, besides its key and value."""


class DelayedSoon:
    """Memory: records of 16 MiB (counted with 500 bytes each besides key and value), the last one of them beyond it."""

    def __init__(self) -> None:
        self._records: dict[int, Any] = {}
        self.required = BitMap64()
        """Offsets that are being read; when they are due, they wait for that."""
        self._bytes = 0
        self._average = 1024.0
        self._horizon_tick = 0
        """Messages that are due before it were chosen already, or found no room."""

    def __len__(self) -> int:
        return len(self._records)

    @property
    def size_bytes(self) -> int:
        return self._bytes

    def keep(self, offset: int, due_ms: int, record: Any, now_ms: int) -> None:
        """Keeps a record that is being set aside if it is due within the window and there is room. Chunked messages are
        not kept."""
        if due_ms - now_ms < WINDOW_MS and type(record) is not WholeMessage:
            self._put(offset, record)

    def arrived(self, records: Iterable[Any]) -> bool:
        """Keeps records that were read; False if there is no room for more."""
        for record in records:
            offset = record.offset()
            if offset in self.required:
                self.required.discard(offset)
                if not self._put(offset, record):
                    return False
        return True

    def _put(self, offset: int, record: Any) -> bool:
        size = len(record) + _OVERHEAD_BYTES
        self._average += (size - self._average) / 100
        if self._bytes >= MAX_BYTES:
            return False
        if offset not in self._records:
            self._records[offset] = record
            self._bytes += size
        return True

    def take(self, offsets: Iterable[int]) -> dict[int, Any]:
        """Removes these records, and returns those that were here."""
        found: dict[int, Any] = {}
        if self._records:
            for offset in offsets:
                record = self._records.pop(offset, None)
                if record is not None:
                    found[offset] = record
                    self._bytes -= len(record) + _OVERHEAD_BYTES
        return found

    def choose(self, delayed: DelayedMessages, now_ms: int, besides: Container[int] = ()) -> list[int]:
        """Chooses what to read next, by ascending offset; nothing while half of the room or of the window is in use.
        `besides`: offsets that are not to be chosen."""
        now_tick = now_ms // TICK_MS
        window = WINDOW_MS // TICK_MS
        if self._bytes > MAX_BYTES // 2 or self._horizon_tick - now_tick > window // 2:
            return []
        room = int((MAX_BYTES - self._bytes) / self._average)
        chosen: array[int]
        chosen, self._horizon_tick = delayed.upcoming(
            max(now_tick, self._horizon_tick), now_tick + window, max(1, room)
        )
        self.required = BitMap64(offset for offset in chosen if offset not in self._records and offset not in besides)
        return list(self.required)

    def require_nothing(self) -> None:
        """Reading has ended; messages that were not read are read when they are due."""
        self.required = BitMap64()

    def forget(self, offsets: BitMap64) -> None:
        self.take([offset for offset in self._records if offset in offsets])
        self.required -= offsets

    def forget_below(self, end: int) -> None:
        self.take([offset for offset in self._records if offset < end])
        self.required.remove_range(0, end)

    def clear(self) -> None:
        self._records.clear()
        self.required = BitMap64()
        self._bytes = self._horizon_tick = 0
