"""Clocks that tests set."""

from __future__ import annotations


class PacedClock:
    """As much time as a test lets pass."""

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
