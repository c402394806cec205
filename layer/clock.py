"""Time as an argument, so that tests can move it."""

from __future__ import annotations

import time
from typing import Protocol


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
