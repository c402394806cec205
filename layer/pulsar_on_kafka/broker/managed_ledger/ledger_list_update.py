"""A partition's list of ledgers follows the start and the end of Kafka's log. Pure.

A ledger is a fixed range of offsets, so the list follows from two numbers; what is measured (bytes, publish times) is
measured once for each stretch of the log: when a ledger has its first entries, has grown by a fifth of its size, has
not been looked at for a quarter of an hour, when its beginning went, and when it is closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import hypot
from typing import Final, NamedTuple

from pulsar_on_kafka.broker.managed_ledger.model import Ledger, LedgerPlace
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.state.metadata.ledger_records import LedgerRecord, LedgerState

GROWN_BY_SHARE: Final = 5
"""An open ledger is looked at again when it has grown by one part of so many of its size."""


class LogRange(NamedTuple):
    """The offsets that Kafka has of a partition: [start, end)."""

    start: int
    end: int


class Measured(NamedTuple):
    """Some stretch of a log. `bytes` is wrong by at most `error` in 19 of 20 cases; the times are Unix time, 0 for a
    stretch without records."""

    bytes: int
    error: int
    first_publish_ms: int
    last_publish_ms: int


NOTHING: Final = Measured(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class LedgerListChange:
    """A ledger that is to be written anew, once [`measure_from`, `record.end`) has been measured.

    `record` has what was measured before of the rest of it.
    """

    ledger_id: int
    record: LedgerRecord
    measure_from: int

    def written(self, measured: Measured) -> LedgerRecord:
        """The record to write. Errors of stretches that were measured apart add up as independent ones do."""
        was = self.record
        return replace(
            was,
            bytes=was.bytes + measured.bytes,
            bytes_error=round(hypot(was.bytes_error, measured.error)),
            first_publish_ms=was.first_publish_ms or measured.first_publish_ms,
            last_publish_ms=max(was.last_publish_ms, measured.last_publish_ms),
        )


def changes(
    listed: Sequence[Ledger], place: LedgerPlace, layout: LedgerLayout, log: LogRange, *, look_again: bool = False
) -> list[LedgerListChange]:
    """Changes that bring the list in line with Kafka; in the order of the log.

    Args:
        listed: the partition's list, in order.
        layout: that of the topic's incarnation in `place`.
        look_again: open ledgers that have grown at all are measured, not only those that have grown enough.

    Ledgers below the first one on the list are not put on it again: they were taken off it. A list that was empty
    begins at the log's start. So a partial write must write the first changes of each partition.
    """
    found: list[LedgerListChange] = []
    open_index = log.end // layout.entries_per_ledger
    for ledger in listed:
        found.extend(_change(ledger, layout, log, open_index, look_again=look_again))
    there = {ledger.ledger_index for ledger in listed}
    first_left = log.start // layout.entries_per_ledger
    for index in range(max(first_left, min(there, default=0)), open_index + 1):
        if index in there:
            continue
        record = _new(place.topic, layout, log, index, open_index)
        found.append(LedgerListChange(layout.ledger_id(place.partition, index), record, record.first))
    return found


def removal(ledger: Ledger) -> LedgerListChange:
    return LedgerListChange(ledger.id, replace(ledger.record, state=LedgerState.REMOVED), ledger.end)


def _new(topic: str, layout: LedgerLayout, log: LogRange, index: int, open_index: int) -> LedgerRecord:
    start, end = layout.ledger_range(index)
    state = LedgerState.OPEN if index == open_index else LedgerState.CLOSED
    first = max(start, log.start)
    return LedgerRecord(topic, state, first, max(first, min(end, log.end)))


def _change(
    ledger: Ledger, layout: LedgerLayout, log: LogRange, open_index: int, *, look_again: bool
) -> list[LedgerListChange]:
    record, index = ledger.record, ledger.ledger_index
    range_end = layout.ledger_range(index)[1]
    if index > open_index or (range_end <= log.start and index < open_index):
        return [removal(ledger)]  # beyond the log's end, or all of it is gone
    if index == open_index:
        return _open(ledger, layout, log, look_again=look_again)
    kept, measured_to = _without_lost_beginning(record, log)
    if record.state is LedgerState.OPEN:
        return [LedgerListChange(ledger.id, replace(kept, state=LedgerState.CLOSED, end=range_end), measured_to)]
    if kept is record:
        return []
    return [LedgerListChange(ledger.id, replace(kept, end=range_end), measured_to)]


def _open(ledger: Ledger, layout: LedgerLayout, log: LogRange, *, look_again: bool) -> list[LedgerListChange]:
    record = ledger.record
    if record.state is not LedgerState.OPEN or record.end > log.end:  # the partition lost its end: all is new
        fresh = _new(record.topic, layout, log, ledger.ledger_index, ledger.ledger_index)
        return [LedgerListChange(ledger.id, replace(fresh, properties=record.properties), fresh.first)]
    kept, measured_to = _without_lost_beginning(record, log)
    grown = log.end - record.end
    enough = grown * GROWN_BY_SHARE >= layout.entries_per_ledger or (grown > 0 and (record.entries == 0 or look_again))
    if kept is record and not enough:
        return []
    return [LedgerListChange(ledger.id, replace(kept, end=log.end), measured_to)]


def _without_lost_beginning(record: LedgerRecord, log: LogRange) -> tuple[LedgerRecord, int]:
    """The record with what still is true of it, and up to where that was measured. Where Kafka deleted the beginning of
    a ledger, nothing that was measured is."""
    if record.first >= log.start:
        return record, record.end
    fresh = LedgerRecord(
        record.topic, record.state, log.start, max(record.end, log.start), properties=record.properties
    )
    return fresh, log.start
