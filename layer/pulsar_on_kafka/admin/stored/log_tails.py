"""Log tails: the entries that no maintenance has measured yet, measured for callers that want sizes now."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from math import hypot
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.managed_ledger.inspection import LedgerInfo
from pulsar_on_kafka.broker.managed_ledger.kafka_topics import Sampled, estimate, runs, sample_of
from pulsar_on_kafka.broker.managed_ledger.ledger_list_update import NOTHING, Measured
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.kafka.reading.fetcher import Fetcher

MAX_TAILS: Final = 10_000
"""Ledgers whose last measurement is remembered."""


class LogTails:
    """Measures the unmeasured ends of ledgers by samples, as maintenance does, and only what came since the last call.
    Thread-safe. Memory: some numbers for each of `MAX_TAILS` ledgers; the least recently used ones leave first."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, int], tuple[int, Measured]] = OrderedDict()
        """The end and the result of the last measurement, by ledger and its beginning."""
        self._lock = threading.Lock()

    def measured(self, topic: Topic, ledger: LedgerInfo, fetcher: Fetcher, deadline: Deadline) -> LedgerInfo:
        """The ledger, with the size of all its entries. Raises StoreError: Kafka did not reply."""
        start, end = ledger.measured_to, ledger.end_offset
        if start >= end:
            return ledger
        found = self._tail(topic, (ledger.ledger_id, start), ledger.partition, end, fetcher, deadline)
        return replace(
            ledger,
            size=ledger.size + found.bytes,
            size_error=round(hypot(ledger.size_error, found.error)),
            measured_to=end,
            first_publish_ms=ledger.first_publish_ms or found.first_publish_ms,
            last_publish_ms=max(ledger.last_publish_ms, found.last_publish_ms),
        )

    def _tail(
        self, topic: Topic, key: tuple[int, int], partition: int, end: int, fetcher: Fetcher, deadline: Deadline
    ) -> Measured:
        with self._lock:
            measured_to, known = self._known.get(key, (key[1], NOTHING))
        if measured_to >= end:
            return known
        sampled: list[Sampled] = []
        for first, upto in runs(measured_to, end):
            for batch in fetcher.read(topic.kafka_topic, partition, first, upto, deadline):
                sampled.extend(map(sample_of, batch))
        found = _sum((known, estimate(measured_to, end, sampled)))
        with self._lock:
            self._known[key] = end, found
            self._known.move_to_end(key)
            if len(self._known) > MAX_TAILS:
                self._known.popitem(last=False)
        return found


def _sum(parts: Sequence[Measured]) -> Measured:
    """Stretches that were measured apart, in their order."""
    return Measured(
        sum(each.bytes for each in parts),
        round(hypot(*(each.error for each in parts))),
        next((each.first_publish_ms for each in parts if each.first_publish_ms), 0),
        max(each.last_publish_ms for each in parts),
    )


def bytes_from(ledgers: Sequence[LedgerInfo], offset: int) -> int:
    """The approximate bytes of a partition's entries at and behind an offset: of the ledger of the offset, its share of
    entries. Source: Pulsar's ManagedLedgerImpl.getEstimatedBacklogSize."""
    total = 0.0
    for ledger in ledgers:
        if ledger.entries and ledger.end_offset > offset:
            total += ledger.size * min(1.0, (ledger.end_offset - offset) / ledger.entries)
    return round(total)
