"""A stretch of a log that has not changed is measured once, for those who ask for its size again and again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.ledgers.following import Measured
from pulsar_on_kafka.ledgers.owner import Stretch

_log: Final = logging.getLogger(__name__)

Measure: TypeAlias = Callable[[Sequence[Stretch], Deadline], Sequence[Measured | LayerError]]


class Sizes:
    """For one thread. Memory: an entry for each stretch that was asked for the last time."""

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self._known: dict[Stretch, Measured] = {}

    def of(self, stretches: Iterable[Stretch], deadline: Deadline) -> dict[Stretch, Measured]:
        """Those that cannot be measured now are missing, and the log says why."""
        wanted = list(stretches)
        unknown = [stretch for stretch in wanted if stretch not in self._known]
        fresh: dict[Stretch, Measured] = {}
        for stretch, found in zip(unknown, self._measure(unknown, deadline) if unknown else (), strict=True):
            if isinstance(found, LayerError):
                _log.warning("%s-%d could not be measured now: %s", stretch.kafka_topic, stretch.partition, found)
            else:
                fresh[stretch] = found
        known = {**self._known, **fresh}
        self._known = {stretch: known[stretch] for stretch in wanted if stretch in known}
        return self._known
