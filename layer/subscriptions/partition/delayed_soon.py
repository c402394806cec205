"""Records of delayed messages that are due soon, so that each need not be read alone when its time comes. No I/O.

A jump to one record in Kafka takes as long as reading 5,000 small ones in a row (kafka/fetcher.py). So what is due in
the next time is chosen by time, as much as there is room for, and read in one go by offset, ahead of its time.
"""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterable
from typing import Any, Final

from pyroaring import BitMap64

from pulsar_on_kafka.subscriptions.partition.delayed import TICK_MS, DelayedMessages
from pulsar_on_kafka.subscriptions.records.whole_message import WholeMessage

MOST_BYTES: Final = 16 * 1024 * 1024
WINDOW_MS: Final = 60_000
"""Nothing is read longer than this ahead of its time."""

_OVERHEAD_BYTES: Final = 500
"""Of a record in memory, besides its key and value."""


class DelayedSoon:
    """Memory: records of 16 MiB (counted with 500 bytes each besides key and value), the last one of them beyond it."""

    def __init__(self) -> None:
        self._records: dict[int, Any] = {}
        self.wanted = BitMap64()
        """What is being read; when its time comes it waits for that."""
        self._bytes = 0
        self._average = 1024.0
        self._horizon_tick = 0
        """What is due before it was chosen already, or did not find room."""

    def __len__(self) -> int:
        return len(self._records)

    @property
    def size_bytes(self) -> int:
        return self._bytes

    def keep(self, offset: int, due_ms: int, record: Any, now_ms: int) -> None:
        """A record that is being set aside: keep it if it is due within the window and there is room. Chunked messages
        are not kept."""
        if due_ms - now_ms < WINDOW_MS and type(record) is not WholeMessage:
            self._put(offset, record)

    def arrived(self, records: Iterable[Any]) -> bool:
        """These were read; False when there is no room for more."""
        for record in records:
            offset = record.offset()
            if offset in self.wanted:
                self.wanted.discard(offset)
                if not self._put(offset, record):
                    return False
        return True

    def _put(self, offset: int, record: Any) -> bool:
        size = len(record) + _OVERHEAD_BYTES
        self._average += (size - self._average) / 100
        if self._bytes >= MOST_BYTES:
            return False
        if offset not in self._records:
            self._records[offset] = record
            self._bytes += size
        return True

    def take(self, offsets: Iterable[int]) -> dict[int, Any]:
        """Those of these that are here, which then are not here any more."""
        found: dict[int, Any] = {}
        if self._records:
            for offset in offsets:
                record = self._records.pop(offset, None)
                if record is not None:
                    found[offset] = record
                    self._bytes -= len(record) + _OVERHEAD_BYTES
        return found

    def choose(self, delayed: DelayedMessages, now_ms: int, besides: Container[int] = ()) -> list[int]:
        """What to read next, by ascending offset; nothing while half of the room or half of the window is in use.
        `besides`: what is not to be chosen."""
        now_tick = now_ms // TICK_MS
        window = WINDOW_MS // TICK_MS
        if self._bytes > MOST_BYTES // 2 or self._horizon_tick - now_tick > window // 2:
            return []
        room = int((MOST_BYTES - self._bytes) / self._average)
        chosen: array[int]
        chosen, self._horizon_tick = delayed.upcoming(
            max(now_tick, self._horizon_tick), now_tick + window, max(1, room)
        )
        self.wanted = BitMap64(offset for offset in chosen if offset not in self._records and offset not in besides)
        return list(self.wanted)

    def nothing_wanted(self) -> None:
        """Reading has ended; what did not come is read when it is due."""
        self.wanted = BitMap64()

    def forget_below(self, end: int) -> None:
        """Nobody wants the offsets below `end` any more."""
        self.take([offset for offset in self._records if offset < end])
        self.wanted.remove_range(0, end)

    def clear(self) -> None:
        """The partition is read anew, or is somebody else's."""
        self._records.clear()
        self.wanted = BitMap64()
        self._bytes = self._horizon_tick = 0
