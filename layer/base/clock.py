"""Time as an argument, so that tests can move it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

_HEARD_S: Final = 60.0


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds that only grow."""
        ...

    def now_ms(self) -> int:
        """Unix time in milliseconds."""
        ...


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class ClusterClock:
    """The brokers' wall clock, as their answers to appends tell it: what processes write down for one another is judged
    by it, because the clocks of their machines may differ by any amount. This machine's own until one was heard.

    Thread-safe. It lags by what the answer took; the least lag of the last minute counts.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heard: tuple[float, float] | None = None
        """What to add to the monotonic clock, in milliseconds, and when that was heard, in seconds."""

    @property
    def is_known(self) -> bool:
        return self._heard is not None

    def heard(self, stamped_ms: int) -> None:
        """A broker has just answered that it stored a record at this time, Unix milliseconds by its own clock."""
        now_s, heard = self._clock.monotonic(), self._heard
        ahead_ms = stamped_ms - now_s * 1000
        if heard is None or ahead_ms > heard[0] or now_s - heard[1] > _HEARD_S:
            self._heard = ahead_ms, now_s

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def now_ms(self) -> int:
        heard = self._heard
        return self._clock.now_ms() if heard is None else int(heard[0] + self._clock.monotonic() * 1000)


def learn_time(clock: Clock, append: Callable[[], object]) -> None:
    """Have a `ClusterClock` know the brokers' time: `append` has one of them store something."""
    if isinstance(clock, ClusterClock) and not clock.is_known:
        append()


class Moment(NamedTuple):
    """Both clocks, because the monotonic one stands still while a machine sleeps."""

    monotonic_s: float
    wall_ms: int

    @classmethod
    def of(cls, clock: Clock) -> Moment:
        return cls(clock.monotonic(), clock.now_ms())

    def seconds_until(self, later: Moment) -> float:
        return max(later.monotonic_s - self.monotonic_s, (later.wall_ms - self.wall_ms) / 1000)
