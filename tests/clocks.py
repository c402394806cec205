"""Clocks that tests set."""

from __future__ import annotations

import pytest


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


WRONG_CLOCKS = pytest.mark.usefixtures("machine_clock")
"""Has a test run once more for each clock that the fixture sets: the machine of the test's own process is hours or days
off. Brokers and the programs that the test starts have the right time."""
