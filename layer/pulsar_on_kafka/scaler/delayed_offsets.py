"""The messages of a partition that are not yet due. Pure."""

from __future__ import annotations

from typing import Final

from pyroaring import BitMap64

from pulsar_on_kafka.broker.subscriptions.partition.delayed import DelayedMessages

_FEW: Final = 4096


class DelayedOffsets:
    """Messages of one partition that are not yet due, from `begin` to before `position`.

    Memory: see `DelayedMessages`, and a compressed bitmap.
    """

    def __init__(self, begin: int) -> None:
        self.begin = begin
        self.position = begin
        self._pending = BitMap64()
        self._delayed = DelayedMessages()

    def __len__(self) -> int:
        """Counts the messages in memory."""
        return len(self._delayed)

    def begins_after(self, first: int, end: int) -> bool:
        """Whether it lacks messages: the cursor was set back to `first`, or the log is another one that ends at
        `end`."""
        return first < self.begin or end < self.position

    def add(self, offset: int, due_ms: int) -> None:
        self._pending.add(offset)
        self._delayed.set_aside(offset, due_ms)

    def not_due(self, unacknowledged: BitMap64, first: int, now_ms: int) -> int:
        """The number of unacknowledged messages that are not yet due. Forgets those below `first`."""
        self._delayed.advance(now_ms)
        self._pending.difference_update(BitMap64(self._delayed.take_due(len(self._delayed))))
        self._pending.remove_range(0, first)
        self.begin = max(self.begin, first)
        if len(self._delayed) > 2 * len(self._pending) + _FEW:
            self._delayed.forget_below(first)
        return self._pending.intersection_cardinality(unacknowledged)
