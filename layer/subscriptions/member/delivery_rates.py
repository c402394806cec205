"""A consumer's delivery rate is the number of messages a second that it got lately. No I/O, no clock, no threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pulsar_on_kafka.subscriptions.records.endpoint import Endpoint

WINDOW_S: Final = 5.0
"""A rate is over as long as this at least, once it is known for so long, and twice that at most."""


class _Window(NamedTuple):
    begun_s: float
    delivered: int


class DeliveryRates:
    """Memory: two numbers and two moments for each consumer that is open."""

    def __init__(self) -> None:
        self._windows: dict[Endpoint, tuple[_Window, _Window]] = {}
        """The window before, and the one that is open."""

    def note(self, endpoints: Sequence[Endpoint], now_s: float) -> None:
        """Call it every second or so."""
        noted: dict[Endpoint, tuple[_Window, _Window]] = {}
        for endpoint in endpoints:
            now = _Window(now_s, endpoint.delivered)
            before, current = self._windows.get(endpoint, (now, now))
            noted[endpoint] = (current, now) if now_s - current.begun_s >= WINDOW_S else (before, current)
        self._windows = noted

    def of(self, endpoint: Endpoint, now_s: float) -> float:
        """Messages a second; 0 for a consumer that is not known for a moment yet."""
        if endpoint not in self._windows:
            return 0.0
        since = self._windows[endpoint][0]
        took_s = now_s - since.begun_s
        return round((endpoint.delivered - since.delivered) / took_s, 1) if took_s > 0 else 0.0
