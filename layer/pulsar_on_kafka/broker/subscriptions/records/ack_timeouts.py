"""Messages that one consumer received and did not acknowledge in time. Pure."""

from __future__ import annotations

from collections import deque
from typing import Final

from pyroaring import BitMap64

_STEPS: Final = 10


class AckTimeouts:
    """Finds the messages that were received `timeout_s` to 1.1 times `timeout_s` ago.

    The time counts from `receive()`, not from the inbox. Source: UnAckedMessageTrackerEnabled of the official client,
    and as measured there (11 s for a time-out of 10 s).

    Memory: one compressed bitmap for each tenth of the time-out and partition; what was received since the last look
    is one pair of numbers each.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._step_s = timeout_s / _STEPS
        self.received: deque[tuple[int, int]] = deque()
        """Partition and offset of each receipt since the last look; appended to by any thread."""
        self._steps: deque[tuple[float, dict[int, BitMap64]]] = deque()

    def next_due(self, now_s: float, *, receives: bool) -> float | None:
        """Returns when, on the monotonic clock, the next message may expire, or the next look is due. `receives`: the
        inbox has messages."""
        looks_s = now_s + self._step_s if receives or self.received else None
        if not self._steps:
            return looks_s
        due_s = self._steps[0][0] + self._timeout_s
        return due_s if looks_s is None else min(due_s, looks_s)

    def expired(self, now_s: float) -> dict[int, BitMap64]:
        """Returns expired offsets by partition, acknowledged or not; each one is returned once."""
        if self.received:
            self._take_in(now_s)
        found: dict[int, BitMap64] = {}
        while self._steps and self._steps[0][0] + self._timeout_s <= now_s:
            for partition, offsets in self._steps.popleft()[1].items():
                found[partition] = found[partition] | offsets if partition in found else offsets
        return found

    def _take_in(self, now_s: float) -> None:
        if not self._steps or now_s >= self._steps[-1][0]:
            self._steps.append((now_s + self._step_s, {}))
        partitions = self._steps[-1][1]
        groups: dict[int, list[int]] = {}
        for _ in range(len(self.received)):
            partition, offset = self.received.popleft()
            groups.setdefault(partition, []).append(offset)
        for partition, received in groups.items():
            offsets = BitMap64(received)
            self.forget(partition, offsets)  # received again: its time starts anew
            partitions[partition] = partitions[partition] | offsets if partition in partitions else offsets

    def forget(self, partition: int, offsets: BitMap64) -> None:
        """Forgets messages that are redelivered for another reason."""
        for _, partitions in self._steps:
            if partition in partitions:
                partitions[partition] -= offsets

    def forget_partition(self, partition: int) -> None:
        for _, partitions in self._steps:
            partitions.pop(partition, None)
