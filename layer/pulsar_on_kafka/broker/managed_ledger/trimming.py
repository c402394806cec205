"""Trimming removes ledgers that are neither needed nor retained: Pulsar's rules. Pure.

Source: `ManagedLedgerImpl.internalTrimLedgers` of Pulsar 4.0.7. It removes ledgers from the oldest on, while each lies
below all needs of the log, and is older than the retention time or beyond the retention size. The open ledger and the
last one of the list are never removed: an empty list would not show which ledgers were taken off. Differs from Pulsar
in three points, each on the side of keeping:

* A ledger's age is that of its youngest message, not the time since it was closed, so that a message stays readable for
  the retention time also if its ledger was closed early (and Kafka can return it again at any time).
* Sizes are estimates: retained ledgers count with the lower bound.
* Compacted reading folds the log itself, so a compacted partition is never trimmed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pulsar_on_kafka.broker.managed_ledger.model import Ledger
from pulsar_on_kafka_mapping.state.metadata.ledger_records import LedgerState

MEGABYTE: Final = 1024 * 1024
INFINITE: Final = -1
MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention keeps so much of what every subscription has acknowledged; -1 sets no bound. Pulsar's
    `RetentionPolicies`.

    Both bounds count: what is beyond one of them goes. (0, 0), the default, keeps nothing, (-1, -1) everything.
    Raises ValueError for values below -1, and where one bound alone is 0 (Pulsar refuses that: it would mean nothing).
    """

    time_minutes: int = 0
    size_mb: int = 0

    def __post_init__(self) -> None:
        if self.time_minutes < INFINITE or self.size_mb < INFINITE:
            raise ValueError(f"retention is {self.time_minutes} minutes and {self.size_mb} MB, expected -1 or more")
        if (self.time_minutes == 0) != (self.size_mb == 0):
            raise ValueError(
                f"retention is {self.time_minutes} minutes and {self.size_mb} MB: both have to be 0, or none; "
                "-1 sets no bound"
            )

    def horizon_ms(self, now_ms: int) -> int | None:
        """Messages published before this Unix time are older than the retention time; None when none ever is."""
        return None if self.time_minutes < 0 else now_ms - self.time_minutes * MINUTE_MS


@dataclass(frozen=True, slots=True)
class Rollover:
    """Pulsar closes a ledger at each of these bounds, each at least 1. Source: `managedLedgerMax...` of Pulsar 4.0's
    broker. Differs from Pulsar: what is closed by them is the beginning of a range that stays open
    (`open_trimming.py`), and `managedLedgerMinLedgerRolloverTimeMinutes` is not looked at."""

    max_minutes: int = 240
    max_megabytes: int = 2048
    max_entries: int = 50_000


@dataclass(frozen=True, slots=True)
class Needs:
    """The needs of a partition's log, each as the first offset that is needed.

    Attributes:
        cursors: of durable subscriptions, those that copy to other clusters among them: mark-delete + 1.
        transactions: lower bounds of open transactions: none of their records lies below.
        unsealed: lower bounds of aborted transactions whose records are not all known.
        sequences: the offset from which the next holder of a producer's name reads the stored sequence ids.
        compacted: compacted reads fold what is in the log.
    """

    cursors: Sequence[int] = ()
    transactions: Sequence[int] = ()
    unsealed: Sequence[int] = ()
    sequences: Sequence[int] = ()
    compacted: bool = False

    def first_needed(self) -> int | None:
        """The first needed offset; None without needs: without subscriptions only retention keeps messages."""
        if self.compacted:
            return 0
        needed: Iterable[int] = (
            *self.cursors,
            *self.transactions,
            *self.unsealed,
            *self.sequences,
        )
        return min(needed, default=None)


def trimmable(ledgers: Sequence[Ledger], retention: Retention, needs: Needs, first_young: int) -> list[Ledger]:
    """The closed ledgers that may go now: the first ones of the list, those that are DELETING already left out.

    Args:
        ledgers: a partition's list, in order.
        first_young: offset of the first message that is not older than the retention time (published at or after
            `Retention.horizon_ms`); the log's end when all are older. Not looked at when the time has no bound.
    """
    listed = [ledger for ledger in ledgers if ledger.state is not LedgerState.DELETING]
    first_needed = needs.first_needed()
    kept_bytes = sum(_min_bytes(ledger) for ledger in listed)
    going: list[Ledger] = []
    for ledger in listed[:-1]:
        if ledger.state is not LedgerState.CLOSED or (first_needed is not None and ledger.end > first_needed):
            break
        kept_bytes -= _min_bytes(ledger)
        too_old = retention.time_minutes >= 0 and ledger.end <= first_young
        too_much = retention.size_mb >= 0 and kept_bytes >= retention.size_mb * MEGABYTE
        if not (too_old or too_much):
            break
        going.append(ledger)
    return going


def is_full(ledger: Ledger, rollover: Rollover, now_ms: int) -> bool:
    """Whether Pulsar would have closed an open ledger with these messages; False where they were not measured yet."""
    record = ledger.record
    return (
        0 < record.first_publish_ms <= now_ms - rollover.max_minutes * MINUTE_MS
        or _min_bytes(ledger) >= rollover.max_megabytes * MEGABYTE
        or record.entries >= rollover.max_entries
    )


def open_trim(
    ledger: Ledger, log_end: int, retention: Retention, first_young: int, rollover: Rollover, first_recent: int
) -> int:
    """The offset, exclusive, up to which the open ledger may be trimmed, if it is not needed; nothing is trimmed where
    that is its first offset, or less.

    Args:
        first_young: see `trimmable`.
        first_recent: offset of the first message that is younger than `rollover` lets a ledger become; the log's end
            when none is.
    """
    entries = ledger.record.entries
    by_count = ledger.first + entries // rollover.max_entries * rollover.max_entries
    closed = max(first_recent, by_count, _before_last(ledger, rollover.max_megabytes))
    kept = max(
        first_young if retention.time_minutes >= 0 else 0,
        _before_last(ledger, retention.size_mb) if retention.size_mb >= 0 else 0,
    )
    return min(closed, kept, log_end)


def _before_last(ledger: Ledger, megabytes: int) -> int:
    """The offset behind which there are at least so many megabytes; the ledger's first one where there are not."""
    least, requested = _min_bytes(ledger), megabytes * MEGABYTE
    if requested == 0:
        return ledger.end
    return ledger.first if least < requested else ledger.end - -(-ledger.record.entries * requested // least)


def _min_bytes(ledger: Ledger) -> int:
    return max(0, ledger.record.bytes - ledger.record.bytes_error)
