"""The statistics log reports every `stats_interval_in_seconds` the recent work of producers, consumers and readers.

Source: pulsar-client-cpp, ProducerStatsImpl and ConsumerStatsImpl, which log a line for each producer and consumer at
INFO level. Differs from Pulsar: the form of the lines; idle ones get none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pulsar_on_kafka.base.scheduler import Scheduler

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StatsLine:
    """One producer, consumer or reader: who it is, what it counted so far, and what it has now."""

    who: str
    counts: Mapping[str, int]
    now: Mapping[str, int]


class StatsLog:
    """The statistics log writes lines every `interval_s` seconds from the first `start` on; 0 seconds is never."""

    def __init__(self, interval_s: int, lines: Callable[[], Iterable[StatsLine]], scheduler: Scheduler) -> None:
        self._interval_s = interval_s
        self._lines = lines
        self._scheduler = scheduler
        self._before: dict[str, Mapping[str, int]] = {}
        self._started = interval_s == 0

    def start(self) -> None:
        """Called with every producer, consumer and reader; only the first one starts something."""
        if not self._started:
            self._started = True
            self._scheduler.every(self._interval_s, self.log_once)

    def log_once(self) -> None:
        """Logs one line for each active object, and each with waiting messages."""
        found = {line.who: line for line in self._lines()}
        for who, line in found.items():
            before = self._before.get(who, {})
            lately = {name: count - before.get(name, 0) for name, count in line.counts.items()}
            if any(lately.values()) or any(line.now.values()):
                parts = [
                    f"{name}={count} ({count / self._interval_s:.1f}/s)" for name, count in lately.items() if count
                ]
                parts += [f"{name}={count}" for name, count in line.now.items()]
                parts += [f"total_{name}={count}" for name, count in line.counts.items()]
                _log.info("%s in %d s: %s", who, self._interval_s, " ".join(parts))
        self._before = {who: line.counts for who, line in found.items()}
