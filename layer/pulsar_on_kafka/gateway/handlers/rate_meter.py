"""Counts the messages of one producer or consumer of a client, with one addition for each batch."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Final

from pulsar_on_kafka_mapping.state.traffic import Traffic

INTERVAL_S: Final = 60.0
"""Source: Pulsar's `statsUpdateFrequencyInSecs`."""


class Meter:
    """Each count is increased by one thread. Rates are those of the last interval that the gateway noted, as those of
    Pulsar's `Rate`. Memory: four counts, present and noted."""

    __slots__ = (
        "_noted",
        "_noted_s",
        "_rates",
        "acknowledged",
        "address",
        "bytes",
        "client",
        "messages",
        "redelivered",
        "since_ms",
    )

    def __init__(self, address: str, since_ms: int, now_s: float, client: str = "") -> None:
        """`client`: its kind and version, by its own words."""
        self.address = address
        self.client = client
        self.since_ms = since_ms
        self.messages = 0
        self.bytes = 0
        self.redelivered = 0
        self.acknowledged = 0
        self._noted = self._counts()
        self._noted_s = now_s
        self._rates = (0.0, 0.0, 0.0, 0.0)

    def _counts(self) -> tuple[int, int, int, int]:
        return self.messages, self.bytes, self.redelivered, self.acknowledged

    def note(self, now_s: float) -> None:
        """Note the end of an interval. One of no length is ignored."""
        counts, before, took_s = self._counts(), self._noted, now_s - self._noted_s
        if took_s > 0:
            messages, size, again, acked = (
                round((now - was) / took_s, 3) for now, was in zip(counts, before, strict=True)
            )
            self._rates = messages, size, again, acked
            self._noted, self._noted_s = counts, now_s

    def traffic(self, *, blocked: bool = False) -> Traffic:
        return Traffic(self.messages, self.bytes, *self._rates, self.since_ms, self.address, blocked, self.client)


def time_text(unix_ms: int) -> str:
    """The time in ISO 8601, as Pulsar formats it."""
    return datetime.fromtimestamp(unix_ms / 1000, timezone.utc).isoformat(timespec="milliseconds")
