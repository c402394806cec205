"""The history of the last hour: samples of each subscription's backlog and rates, and sparklines of them. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import groupby
from math import isnan, nan
from typing import Final

from pulsar_on_kafka.admin.overview.records import Overview, SubscriptionOverview, SubscriptionPlace

INTERVAL_MS: Final = 120_000
"""The time of one sample: the backlog at its end, and the average rates. A console without a browser gathers once a
minute, so that a missing sample is a real gap."""
SAMPLES: Final = 30
"""Samples of one subscription: those of an hour."""
MAX_SUBSCRIPTIONS: Final = 10_000
"""Subscriptions with a history; of more, those with the largest backlogs. Each takes less than 1 kB with names of 200
characters: 10 MB in all."""
HEIGHT: Final = 10


@dataclass(frozen=True, slots=True)
class Sparkline:
    """A curve over `SAMPLES` units of width and `HEIGHT` of height, from 0 to `highest`. Without samples `path` is ''.
    A gap is a time without samples."""

    path: str
    highest: float
    gaps: bool


@dataclass(frozen=True, slots=True)
class SubscriptionHistory:
    """The sparklines of one subscription, up to now."""

    backlog: Sparkline
    published: Sparkline
    acknowledged: Sparkline


class History:
    """The samples of all subscriptions. One thread takes overviews, any thread reads.

    Memory: 360 bytes of samples and the names of `MAX_SUBSCRIPTIONS`, see there.
    """

    def __init__(self) -> None:
        self._interval = -1
        self._taken = 0
        """Overviews of the present interval."""
        self._series: dict[SubscriptionPlace, array[float]] = {}
        """The backlog, the rate of publishing, and that of acknowledgements, each as a ring
        of samples."""

    def take(self, overview: Overview) -> None:
        """Adds an overview. One that is older than the last one changes nothing."""
        interval = overview.gathered_ms // INTERVAL_MS
        if interval < self._interval:
            return
        rows: Iterable[SubscriptionOverview] = overview.subscriptions
        if len(overview.subscriptions) > MAX_SUBSCRIPTIONS:
            rows = nlargest(MAX_SUBSCRIPTIONS, overview.subscriptions, key=lambda each: each.backlog)
        found = {each.place: each for each in rows}
        series = {key: self._series.get(key) or _EMPTY[:] for key in found}
        if interval != self._interval:
            self._taken = 0
            for new in range(max(self._interval + 1, interval - SAMPLES + 1), interval + 1):
                for each in series.values():
                    for start in range(0, len(each), SAMPLES):
                        each[start + new % SAMPLES] = nan
        self._taken += 1
        at = interval % SAMPLES
        for key, row in found.items():
            samples = series[key]
            samples[at] = row.backlog
            for start, rate in ((SAMPLES, row.published_per_s), (2 * SAMPLES, row.acknowledged_per_s)):
                if rate is not None:
                    before = samples[start + at]
                    samples[start + at] = rate if isnan(before) else before + (rate - before) / self._taken
        self._series, self._interval = series, interval

    def of(self, topic: str, subscription: str) -> SubscriptionHistory | None:
        """The history of a subscription; None without samples."""
        samples = self._series.get((topic, subscription))
        if samples is None:
            return None
        first = (self._interval + 1) % SAMPLES
        rings = (samples[start : start + SAMPLES] for start in range(0, len(samples), SAMPLES))
        return SubscriptionHistory(*(sparkline([*ring[first:], *ring[:first]]) for ring in rings))


_EMPTY: Final = array("f", [nan] * (3 * SAMPLES))


def sparkline(samples: Sequence[float]) -> Sparkline:
    """The curve of these samples, NaN for missing ones. A sample without neighbours is a dash."""
    known = [each for each in samples if not isnan(each)]
    highest = max(known, default=0.0)
    pieces = []
    position = 0
    for missing, run in groupby(samples, isnan):
        values = list(run)
        if not missing:
            points = [f"{position + at} {_y(value, highest)}" for at, value in enumerate(values)]
            pieces.append(f"M{'L'.join(points)}" + ("h.6" if len(points) == 1 else ""))
        position += len(values)
    inside = samples[next((at for at, each in enumerate(samples) if not isnan(each)), len(samples)) :]
    return Sparkline("".join(pieces), highest, any(map(isnan, inside)))


def _y(value: float, highest: float) -> str:
    return f"{HEIGHT - HEIGHT * value / highest:.1f}".removesuffix(".0") if highest else str(HEIGHT)
