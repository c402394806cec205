"""Messages that were negatively acknowledged and wait for their delay to pass."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from layer.clock import Clock
from layer.dispatch.endpoint import Endpoint


class NegativeAcks:
    """One entry a message at most, so bounded by what was handed out.

    A second negative ack of a waiting message changes nothing. Source: NegativeAcksTracker of the official client.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int]] = []
        self._waiting: dict[tuple[int, int], Endpoint] = {}

    def add(self, due_s: float, partition: int, offset: int, endpoint: Endpoint) -> None:
        """Let `offset` come again at `due_s` on the monotonic clock."""
        if (partition, offset) not in self._waiting:
            self._waiting[partition, offset] = endpoint
            heapq.heappush(self._heap, (due_s, partition, offset))

    def next_due(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def due(self, clock: Clock) -> Iterator[tuple[int, int, Endpoint]]:
        """(partition, offset, consumer) of what is due by now; each is taken out."""
        if not self._heap:
            return
        now = clock.monotonic()
        while self._heap and self._heap[0][0] <= now:
            _, partition, offset = heapq.heappop(self._heap)
            yield partition, offset, self._waiting.pop((partition, offset))
