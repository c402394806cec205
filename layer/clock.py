"""Time as an argument, so that tests can move it."""

from __future__ import annotations

import time
from typing import NamedTuple, Protocol


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds that only grow."""
        ...

    def now_ms(self) -> int:
        """Unix time in milliseconds."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def monotonic(self) -> float:
        return time.monotonic()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class Moment(NamedTuple):
    """Both clocks, because the monotonic one stands still while a machine sleeps."""

    monotonic_s: float
    wall_ms: int

    @classmethod
    def of(cls, clock: Clock) -> Moment:
        return cls(clock.monotonic(), clock.now_ms())

    def seconds_until(self, later: Moment) -> float:
        return max(later.monotonic_s - self.monotonic_s, (later.wall_ms - self.wall_ms) / 1000)
