"""Admission limits how many transactions a coordinator begins in one turn. Pure.

Whoever waits for a step of a transaction waits for turns, and each transaction makes them longer: it costs the
coordinator's process about half a millisecond in all, while what a turn takes in any case is a few answers of Kafka. If
all were begun at once that wish to, all of them would be slow, and what they write would hold up readers as long. So
those in the middle of a transaction come first, and a turn begins no more than what makes it about twice as long.
Beyond that throughput grows little, and waiting a lot.
"""

from __future__ import annotations

from typing import Final

_LEAST: Final = 4
_A_SECOND_OF_KAFKA: Final = 4000
_REMEMBERED_S: Final = 30.0


class Admission:
    """Goes by the fastest append of the last 30 to 60 s: that one was not held up by anything in this process."""

    def __init__(self) -> None:
        self._fastest_s = 0.0
        self._before_s = 0.0
        self._since_s = -_REMEMBERED_S

    def appended(self, took_s: float, now_s: float) -> None:
        """Kafka took an append, so many seconds after it was given."""
        if now_s - self._since_s >= _REMEMBERED_S:
            self._before_s = took_s if self._since_s < 0 else self._fastest_s
            self._fastest_s, self._since_s = took_s, now_s
        self._fastest_s = min(self._fastest_s, took_s)

    @property
    def begins(self) -> int:
        """Transactions that begin in the next turn: 4 for each millisecond of an append, 4 at least."""
        return max(_LEAST, int(_A_SECOND_OF_KAFKA * min(self._fastest_s, self._before_s)))
