"""The delayed prefetch reads delayed messages ahead of their time, some at a time, between everything else that the
member does."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.kafka.reading.fetcher import Fetcher
from pulsar_on_kafka.subscriptions.partition.partition import OwnedPartition

_STEP_S: Final = 0.02
_PATIENCE_S: Final = 20.0
_AGAIN_S: Final = 1.0

_log = logging.getLogger(__name__)


class DelayedPrefetch:
    """One partition is read at a time. What could not be read ahead is read when it is due."""

    def __init__(self, kafka_topic: str, fetcher: Fetcher, clock: Clock) -> None:
        self._kafka_topic = kafka_topic
        self._fetcher = fetcher
        self._clock = clock
        self._owned: OwnedPartition | None = None
        self._batches: Iterator[list[Any]] = iter(())
        self._not_before_s: dict[int, float] = {}

    @property
    def under_way(self) -> bool:
        return self._owned is not None

    def step(self, owned: OwnedPartition) -> None:
        """Read for 20 ms or so, if there is something to read ahead."""
        if self._owned is None:
            self._begin(owned)
        if self._owned is owned:
            self._read(owned)

    def forget(self, owned: OwnedPartition) -> None:
        """It was rewound, or is somebody else's."""
        if self._owned is owned:
            self._end(owned)
        owned.delayed_soon.clear()

    def _begin(self, owned: OwnedPartition) -> None:
        number = owned.number
        now_s = self._clock.monotonic()
        if owned.delayed is None or now_s < self._not_before_s.get(number, 0.0):
            return
        self._not_before_s[number] = now_s + _AGAIN_S
        offsets = owned.delayed_soon.choose(owned.delayed, self._clock.now_ms(), owned.chunks.known)
        if offsets:
            self._owned = owned
            self._batches = self._fetcher.read_at(self._kafka_topic, number, offsets, Deadline.after(_PATIENCE_S))

    def _read(self, owned: OwnedPartition) -> None:
        enough_s = self._clock.monotonic() + _STEP_S
        try:
            while self._clock.monotonic() < enough_s:
                batch = next(self._batches, None)
                if batch is None or not owned.delayed_soon.arrived(batch):
                    self._end(owned)
                    return
        except errors.StoreError as failure:  # also what Kafka deleted meanwhile
            _log.info("cursor=%s cannot read delayed messages ahead: %s", owned.identity, failure)
            self._end(owned)

    def _end(self, owned: OwnedPartition) -> None:
        owned.delayed_soon.nothing_wanted()
        self._owned = None
        self._batches = iter(())
