"""Entries that wait for their redelivery delay. Pure."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from typing import Final

from pyroaring import BitMap64

from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint

_STEPS: Final = 100

_Choice = Callable[[int, "Endpoint | None"], bool]


class NegativeAcks:
    """Negative acknowledgements by due time on the monotonic clock, rounded up to a hundredth of the delay (1 ms at
    least).

    A second negative acknowledgement of a waiting entry counts only if it is another consumer's, which holds the entry
    by now. Source: NegativeAcksTracker of the official client, which rounds to a third of the delay.

    Memory: compressed bitmaps, one for each partition, consumer and rounded time: some bytes a message, and some
    hundred bitmaps for each delay in use.
    """

    def __init__(self) -> None:
        self._times: list[int] = []
        self._due: dict[int, dict[tuple[int, Endpoint | None], BitMap64]] = {}
        self._waiting: dict[int, BitMap64] = {}

    def add(self, now_s: float, delay_s: float, partition: int, offset: int, endpoint: Endpoint | None) -> None:
        """Redeliver `offset`, held by `endpoint` (None: by no consumer), `delay_s` after `now_s`."""
        waiting = self._waiting.get(partition)
        if waiting is None:
            waiting = self._waiting[partition] = BitMap64()
        elif offset in waiting and not self._take_from_others(partition, offset, endpoint):
            return
        waiting.add(offset)
        step_ms = max(1, int(delay_s * 1000 / _STEPS))
        time_ms = math.ceil((now_s + delay_s) * 1000 / step_ms) * step_ms
        holders = self._due.get(time_ms)
        if holders is None:
            holders = self._due[time_ms] = {}
            heapq.heappush(self._times, time_ms)
        offsets = holders.get((partition, endpoint))
        if offsets is None:
            holders[partition, endpoint] = BitMap64((offset,))
        else:
            offsets.add(offset)

    def _take_from_others(self, partition: int, offset: int, endpoint: Endpoint | None) -> bool:
        """Remove the entry's earlier negative acknowledgement; False if it is the same consumer's."""
        for holders in self._due.values():
            for key, offsets in holders.items():
                if key[0] == partition and offset in offsets:
                    if key[1] is endpoint:
                        return False
                    offsets.discard(offset)
                    if not offsets:
                        del holders[key]
                    return True
        return True

    def next_due(self) -> float | None:
        """The time at which the next entry is due."""
        while self._times and not self._due[self._times[0]]:
            del self._due[heapq.heappop(self._times)]
        return self._times[0] / 1000 if self._times else None

    def due(self, now_s: float) -> Iterator[tuple[int, Endpoint | None, BitMap64]]:
        """Take (partition, consumer, offsets) of due entries, earliest first."""
        while self._times and self._times[0] <= now_s * 1000:
            for (partition, endpoint), offsets in self._due.pop(heapq.heappop(self._times)).items():
                self._waiting[partition] -= offsets
                yield partition, endpoint, offsets

    def waiting(self, partition: int) -> dict[float, BitMap64]:
        """The waiting entries of a partition, by due time."""
        found: dict[float, BitMap64] = {}
        for time_ms, holders in self._due.items():
            for (number, _), offsets in holders.items():
                if number == partition:
                    found[time_ms / 1000] = found.get(time_ms / 1000, BitMap64()) | offsets
        return found

    def offsets(self, partition: int) -> BitMap64:
        return self._waiting.get(partition, BitMap64())

    def any_without_holder(self, partition: int) -> bool:
        return any((partition, None) in holders for holders in self._due.values())

    def forget_consumer(self, endpoint: Endpoint, partition: int) -> None:
        """Forget a consumer's negative acknowledgements: its entries are redelivered without a delay."""
        self._forget(lambda number, holder: holder is endpoint and number == partition)

    def disown(self, endpoint: Endpoint, partition: int, held: BitMap64) -> BitMap64:
        """Remove a consumer that is gone. Its waiting entries have no holder now, and still wait; returns them. Those
        that are not among the entries that it `held` are forgotten: they are redelivered already."""
        found = BitMap64()
        for holders in self._due.values():
            offsets = holders.pop((partition, endpoint), None)
            if offsets is None:
                continue
            self._waiting[partition] -= offsets - held
            if still := offsets & held:
                found |= still
                holders[partition, None] = still | holders.get((partition, None), BitMap64())
        return found

    def forget_partition(self, partition: int) -> None:
        self._forget(lambda number, _: number == partition)

    def _forget(self, gone: _Choice) -> None:
        for holders in self._due.values():
            for partition, endpoint in [key for key in holders if gone(*key)]:
                self._waiting[partition] -= holders.pop((partition, endpoint))
