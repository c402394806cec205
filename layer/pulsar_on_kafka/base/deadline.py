"""One time budget for a whole call, however many waits it is made of."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pulsar_on_kafka.base.errors import DeadlineExceeded

_LONGEST_WAIT_S: Final = 100_000_000.0  # threading refuses time-outs above about 292 years


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point on the monotonic clock, in seconds; `None` never passes."""

    at_s: float | None

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        return cls(time.monotonic() + seconds)

    @classmethod
    def after_ms(cls, milliseconds: float) -> Deadline:
        return cls.after(milliseconds / 1000)

    @classmethod
    def never(cls) -> Deadline:
        return cls(None)

    def remaining_s(self) -> float:
        """Seconds left, never negative; a very large number when there is no deadline."""
        if self.at_s is None:
            return _LONGEST_WAIT_S
        return max(0.0, self.at_s - time.monotonic())

    def at_most(self, seconds: float) -> Deadline:
        """The earlier of this one and that many seconds from now."""
        return self if self.remaining_s() <= seconds else Deadline.after(seconds)

    def passed(self) -> bool:
        return self.at_s is not None and time.monotonic() >= self.at_s

    def check(self, what: str) -> None:
        """Raise `DeadlineExceeded`, naming `what` was waited for, once the deadline has passed."""
        if self.passed():
            raise DeadlineExceeded(f"time ran out while waiting for {what}")


_LOOK_FIRST_S: Final = 0.001
_LOOK_EVERY_S: Final = 0.02


def pause(seconds: float) -> None:
    """Let time pass where there is nothing to be woken by."""
    threading.Event().wait(seconds)


def wait_until(happened: Callable[[], bool], deadline: Deadline) -> bool:
    """Look soon, since much takes milliseconds, then 50 times a second; True once it happened, False when the deadline
    passes first."""
    pause, pause_s = threading.Event(), _LOOK_FIRST_S
    while not happened():
        if deadline.passed():
            return False
        pause.wait(min(pause_s, deadline.remaining_s()))
        pause_s = min(2 * pause_s, _LOOK_EVERY_S)
    return True
