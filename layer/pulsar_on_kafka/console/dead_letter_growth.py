"""Growth of dead letters within the last quarter of an hour, from the overviews of that time. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from pulsar_on_kafka.admin.overview.records import Overview, SubscriptionPlace

WITHIN_MS: Final = 15 * 60_000
_STEP_MS: Final = 60_000


class DeadLetterGrowth:
    """Counts of dead letters, one set a minute. Memory: 16 counts for each subscription that has any."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, Mapping[SubscriptionPlace, int]]] = deque()
        self._grown: Mapping[SubscriptionPlace, int] = {}

    @property
    def grown(self) -> Mapping[SubscriptionPlace, int]:
        """The number of new letters since the lowest count of the last quarter of an hour, of subscriptions that have
        any."""
        return self._grown

    def saw(self, overview: Overview) -> None:
        """Takes an overview, none older than the one before."""
        at_ms = overview.gathered_ms
        counts = {each.place: each.dead_letters for each in overview.subscriptions}
        while self._seen and self._seen[0][0] < at_ms - WITHIN_MS:
            self._seen.popleft()
        self._grown = {
            key: count - lowest
            for key, count in counts.items()
            if count and self._seen and (lowest := min(before.get(key, 0) for _, before in self._seen)) < count
        }
        if not self._seen or at_ms - self._seen[-1][0] >= _STEP_MS:
            self._seen.append((at_ms, {key: count for key, count in counts.items() if count}))
