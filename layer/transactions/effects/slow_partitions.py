"""Data partitions in which nothing could be done last time, and when it is tried again. Pure; times are monotonic.

So that transactions which touch such a partition wait for it by themselves, and no others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Final

from pulsar_on_kafka.mapping.state.transactions.transaction_log import TopicPartition

_FORGOTTEN_AFTER_S: Final = 600.0


@dataclass(slots=True)
class _Rest:
    until_s: float
    pause_s: float


class SlowPartitions:
    """Memory: one entry for each partition that failed and did not work since, for ten minutes after it was tried."""

    def __init__(self, first_pause_s: float, longest_pause_s: float) -> None:
        self._first_pause_s = first_pause_s
        self._longest_pause_s = longest_pause_s
        self._resting: dict[TopicPartition, _Rest] = {}

    def failed(self, partitions: Iterable[TopicPartition], now_s: float) -> None:
        """They rest, longer each time."""
        for each in [each for each, rest in self._resting.items() if rest.until_s < now_s - _FORGOTTEN_AFTER_S]:
            del self._resting[each]
        for each in partitions:
            before = self._resting.get(each)
            pause_s = self._first_pause_s if before is None else min(2 * before.pause_s, self._longest_pause_s)
            self._resting[each] = _Rest(now_s + pause_s, pause_s)

    def worked(self, partitions: Iterable[TopicPartition]) -> None:
        if self._resting:
            for each in partitions:
                self._resting.pop(each, None)

    def rested_s(self, partitions: Iterable[TopicPartition]) -> float:
        """The time from which on something may be tried in all of these; minus infinity when none of them failed."""
        if not self._resting:
            return -inf
        return max((self._resting[each].until_s for each in partitions if each in self._resting), default=-inf)
