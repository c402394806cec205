"""The counts of a round over replicated subscriptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

STALE_S: Final = 5.0
"""Who was stopped for longer between looking and asking does nothing: there may have been a seek."""


@dataclass(frozen=True, slots=True)
class SyncRound:
    """`subscriptions`: partitions of subscriptions that were looked at; `behind`: records that were not read yet."""

    subscriptions: int
    told: int
    taken_over: int
    behind: int

    def plus(self, other: SyncRound) -> SyncRound:
        return SyncRound(
            self.subscriptions + other.subscriptions,
            self.told + other.told,
            self.taken_over + other.taken_over,
            self.behind + other.behind,
        )


NOTHING_DONE: Final = SyncRound(0, 0, 0, 0)
