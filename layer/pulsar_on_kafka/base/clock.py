"""Time as an argument, so that tests can move it.

A time that another process, another machine or a broker wrote is compared with a `ClusterClock` alone: clocks of
machines differ by any amount. `tests/unit/test_import_rules.py` names the modules that read a machine's clock.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from pulsar_on_kafka.base.errors import LayerError

_log = logging.getLogger(__name__)

_HEARD_S: Final = 60.0
_STEP_S: Final = 10.0
"""Difference between the progress of the machine's two clocks that shows that the machine slept, or was set."""
_ASK_RETRY_INTERVAL_S: Final = 10.0


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


class Moment(NamedTuple):
    """Both clocks of a machine, because the monotonic one stands still while the machine sleeps."""

    monotonic_s: float
    wall_ms: int

    @classmethod
    def of(cls, clock: Clock) -> Moment:
        machine = clock.machine if isinstance(clock, ClusterClock) else clock
        return cls(machine.monotonic(), machine.now_ms())

    def seconds_until(self, later: Moment) -> float:
        return max(later.monotonic_s - self.monotonic_s, (later.wall_ms - self.wall_ms) / 1000)


class _Heard(NamedTuple):
    """A broker's time: the difference to the monotonic clock, in milliseconds, and the time of the reply."""

    ahead_ms: float
    at: Moment


class ClusterClock:
    """The brokers' wall clock, the reference for every time that another process or a broker wrote.

    Replies to appends contain the brokers' time. Before the first reply, and after the machine slept or its clock was
    set, `now_ms` requests a reply by `request`. Without one, the last reply counts, or before the first one this
    machine's clock.

    Thread-safe. The clock lags by the latency of the reply; the least lag of the last minute counts.
    """

    def __init__(self, machine: Clock, request: Callable[[], object] = lambda: None) -> None:
        """`request` lets a broker store a record, so that `heard` is called; it may raise LayerError, and takes some
        seconds at most."""
        self.machine = machine
        self._request = request
        self._observed: _Heard | None = None
        self._requesting = threading.RLock()
        self._request_next_s = float("-inf")

    @property
    def is_known(self) -> bool:
        """Whether a broker has replied, and neither of the machine's clocks has stepped since."""
        return self._current() is not None

    def observe(self, stamped_ms: int) -> None:
        """A broker has just answered that it stored a record at this time, Unix milliseconds by its own clock."""
        now, received = Moment.of(self.machine), self._current()
        ahead_ms = stamped_ms - now.monotonic_s * 1000
        if received is None or ahead_ms > received.ahead_ms or now.monotonic_s - received.at.monotonic_s > _HEARD_S:
            self._observed = _Heard(ahead_ms, now)

    def monotonic(self) -> float:
        return self.machine.monotonic()

    def monotonic_ms(self) -> int:
        return int(self.machine.monotonic() * 1000)

    def now_ms(self) -> int:
        received = self._current()
        if received is None:
            self._learn()
            return self.known_now_ms()
        return int(received.ahead_ms + self.machine.monotonic() * 1000)

    def known_now_ms(self) -> int:
        """The brokers' time without a request, for threads that must not wait. The last answer counts, or before the
        first one this machine's clock."""
        received = self._observed
        return self.machine.now_ms() if received is None else int(received.ahead_ms + self.machine.monotonic() * 1000)

    def _current(self) -> _Heard | None:
        received = self._observed
        if received is None:
            return None
        passed_s = self.machine.monotonic() - received.at.monotonic_s
        stepped = abs((self.machine.now_ms() - received.at.wall_ms) / 1000 - passed_s) > _STEP_S
        return None if stepped else received

    def _learn(self) -> None:
        """Requests the time in one thread, while others wait for the reply; calls inside of `request` use the machine's
        clock."""
        with self._requesting:
            if self._current() is not None or self.machine.monotonic() < self._request_next_s:
                return
            self._request_next_s = float("inf")  # `request` itself must not request the time
            try:
                self._request()
            except LayerError as failure:
                _log.warning("no broker reported the time, this machine's clock counts: %s", failure)
            finally:
                failed = self._current() is None
                self._request_next_s = self.machine.monotonic() + _ASK_RETRY_INTERVAL_S if failed else float("-inf")
