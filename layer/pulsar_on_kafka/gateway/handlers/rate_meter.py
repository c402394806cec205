"""Counts the messages of one producer or consumer of a client, with one addition for each batch."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Final

from pulsar_on_kafka_mapping.state.traffic import Traffic

INTERVAL_S: Final = 60.0
"""Source: Pulsar's `statsUpdateFrequencyInSecs`."""


class Meter:
    """Each count is increased by one thread. Rates are those of the last interval that the gateway noted, as those of
    Pulsar's `Rate`. Memory: four counts, present and noted, and three times."""

    __slots__ = (
        "_last_acked_ms",
        "_last_delivered_ms",
        "_last_flow_ms",
        "_noted",
        "_noted_s",
        "_now_ms",
        "_rates",
        "acknowledged",
        "address",
        "bytes",
        "client",
        "messages",
        "redelivered",
        "since_ms",
    )

    def __init__(self, address: str, now_ms: Callable[[], int], now_s: float, client: str = "") -> None:
        """`now_ms` returns the Unix time. `client`: its kind and version, by its own words."""
        self.address = address
        self.client = client
        self._now_ms = now_ms
        self.since_ms = now_ms()
        self._last_delivered_ms = self._last_acked_ms = self._last_flow_ms = 0
        self.messages = 0
        self.bytes = 0
        self.redelivered = 0
        self.acknowledged = 0
        self._noted = self._counts()
        self._noted_s = now_s
        self._rates = (0.0, 0.0, 0.0, 0.0)

    def _counts(self) -> tuple[int, int, int, int]:
        return self.messages, self.bytes, self.redelivered, self.acknowledged

    def deliver(self, messages: int, size: int) -> None:
        """Count messages that are sent to a consumer."""
        self.messages += messages
        self.bytes += size
        self._last_delivered_ms = self._now_ms()

    def acknowledge(self, messages: int) -> None:
        self.acknowledged += messages
        self._last_acked_ms = self._now_ms()

    def grant(self) -> None:
        """Note that the consumer's client granted permits."""
        self._last_flow_ms = self._now_ms()

    def note(self, now_s: float) -> None:
        """Note the end of an interval. One of no length is ignored."""
        counts, before, took_s = self._counts(), self._noted, now_s - self._noted_s
        if took_s > 0:
            messages, size, again, acked = (
                round((now - was) / took_s, 3) for now, was in zip(counts, before, strict=True)
            )
            self._rates = messages, size, again, acked
            self._noted, self._noted_s = counts, now_s

    def traffic(self, partition: int, *, blocked: bool = False) -> Traffic:
        return Traffic(
            self.messages, self.bytes, *self._rates, self.since_ms, self.address, blocked, self.client,
            self._last_delivered_ms, self._last_acked_ms, self._last_flow_ms, partition,
        )  # fmt: skip


def time_text(unix_ms: int) -> str:
    """The time in ISO 8601, as Pulsar formats it."""
    return datetime.fromtimestamp(unix_ms / 1000, timezone.utc).isoformat(timespec="milliseconds")
