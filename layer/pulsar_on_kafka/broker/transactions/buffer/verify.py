"""Rebuild a transaction buffer from the markers in the log, and compare it with what is on record. Pure.

Markers make the log self-contained: `__transaction_buffer_snapshot` can be rebuilt from the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from pyroaring import BitMap64

from pulsar_on_kafka.broker.transactions.buffer.entries import BufferEntries, TxnEntryStatus
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition, MetRecord
from pulsar_on_kafka_mapping.ids.txn_id import TxnId


class BufferFinding(Enum):
    """Differences between buffer and log; `is_harmless` while a transaction is just being ended."""

    TWO_OUTCOMES = "the log has both a commit and an abort marker"
    COMMITTED_BUT_ABORTED = "committed in the log, aborted in the buffer"
    ABORTED_BUT_READABLE = "aborted in the log, no entry in the buffer"
    NO_OUTCOME = "the log has no marker, and the buffer no entry: its records are readable"
    STILL_OPEN = "the log has its marker, the buffer still has it as open"
    BOUND_TOO_HIGH = "records lie below the bound of its entry"
    OFFSETS_MISSING = "records of it are not in its sealed entry"
    OFFSETS_TOO_MANY = "its entry names offsets that are not records of it"
    LATE_NOT_VOID = "records came after its commit marker and are not on record as void"
    VOID_NOT_LATE = "records are on record as void that did not come late"

    @property
    def is_harmless(self) -> bool:
        return self is BufferFinding.STILL_OPEN


@dataclass(frozen=True, slots=True)
class BufferDifference:
    """`offsets` are the records that it concerns."""

    finding: BufferFinding
    txn: TxnId
    offsets: BitMap64 = field(default_factory=BitMap64)

    def __str__(self) -> str:
        some = ", ".join(map(str, self.offsets[:10])) + (", ..." if len(self.offsets) > 10 else "")
        return f"transaction {self.txn}: {self.finding.value} [{some}]"


@dataclass(slots=True)
class Rebuilt:
    """A transaction by the log: offsets of its records before its (first) marker, and of those after it."""

    offsets: BitMap64 = field(default_factory=BitMap64)
    late: BitMap64 = field(default_factory=BitMap64)
    outcomes: set[bool] = field(default_factory=set)


def rebuild(met: Iterable[MetRecord], before: dict[TxnId, Rebuilt] | None = None) -> dict[TxnId, Rebuilt]:
    """Rebuilds the buffer from `met`, all transactional records and markers of a partition in order. `before` is the
    result for the log before them and is changed. Memory: bitmaps of their offsets."""
    found: dict[TxnId, Rebuilt] = {} if before is None else before
    for one in met:
        rebuilt = found.setdefault(one.txn, Rebuilt())
        if one.ended is not None:
            rebuilt.outcomes.add(one.ended)
        elif rebuilt.outcomes:
            rebuilt.late.update(one.offsets())
        else:
            rebuilt.offsets.update(one.offsets())
    return found


def compare(
    where: DataPartition, log: Mapping[TxnId, Rebuilt], log_start: int, entries: BufferEntries
) -> list[BufferDifference]:
    """Differences between `entries` and the log, rebuilt from `log_start` to an end that was taken before the end of
    `entries`.

    Offsets below `log_start` cannot be compared.
    """
    found: list[BufferDifference] = []
    for txn, rebuilt in log.items():
        found += _of_transaction(where, txn, rebuilt, log_start, entries)
    for txn in entries.transactions(where):
        if txn not in log:
            found += _of_transaction(where, txn, Rebuilt(), log_start, entries)
    return found


def _of_transaction(
    where: DataPartition, txn: TxnId, log: Rebuilt, log_start: int, entries: BufferEntries
) -> list[BufferDifference]:
    void = _from(entries.void(where, txn), log_start)
    if not log.outcomes:  # the marker that they came after is gone from the log
        log = Rebuilt(log.offsets - void, log.offsets & void)
    found: dict[BufferFinding, BitMap64] = {}
    outcome = _outcome_differs(log, entries.status(where, txn))
    if outcome is not None:
        found[outcome] = log.offsets | log.late
    found[BufferFinding.BOUND_TOO_HIGH] = _below_bound(where, txn, log, entries)
    entry = entries.aborted(where, txn)
    if entry is not None:
        if entry.sealed:
            found[BufferFinding.OFFSETS_MISSING] = (log.offsets | log.late) - entry.offsets
        found[BufferFinding.OFFSETS_TOO_MANY] = _from(entry.offsets, log_start) - log.offsets - log.late
    if True in log.outcomes:
        found[BufferFinding.LATE_NOT_VOID] = log.late - void
    found[BufferFinding.VOID_NOT_LATE] = void - log.late
    return [
        BufferDifference(finding, txn, offsets) for finding, offsets in found.items() if offsets or finding is outcome
    ]


def _outcome_differs(log: Rebuilt, status: TxnEntryStatus) -> BufferFinding | None:
    if len(log.outcomes) > 1:
        return BufferFinding.TWO_OUTCOMES
    if log.outcomes and status is TxnEntryStatus.OPEN:
        return BufferFinding.STILL_OPEN
    if True in log.outcomes and status is TxnEntryStatus.ABORTED:
        return BufferFinding.COMMITTED_BUT_ABORTED
    if True not in log.outcomes and log.offsets and status is TxnEntryStatus.COMMITTED:
        return BufferFinding.ABORTED_BUT_READABLE if log.outcomes else BufferFinding.NO_OUTCOME
    return None


def _below_bound(where: DataPartition, txn: TxnId, log: Rebuilt, entries: BufferEntries) -> BitMap64:
    entry = entries.aborted(where, txn)
    bound = entries.open_bounds(where).get(txn) if entry is None else entry.lower_bound
    below = log.offsets.copy()
    if bound is not None:
        below.remove_range(bound, 2**64 - 1)
        return below
    return BitMap64()


def _from(offsets: BitMap64, start: int) -> BitMap64:
    kept = offsets.copy()
    if start:
        kept.remove_range(0, start)
    return kept
