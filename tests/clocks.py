"""Clocks that tests set."""

from __future__ import annotations


class PacedClock:
    """A clock that moves on as much as a test lets it."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def monotonic(self) -> float:
        return self.ms / 1000

    def now_ms(self) -> int:
        return self.ms


class SetClock:
    """Seconds that a test sets."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def monotonic(self) -> float:
        return self.seconds

    def now_ms(self) -> int:
        return int(self.seconds * 1000)
