"""Trimming of the ledger that is written to."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.broker.managed_ledger.model import Ledger
from pulsar_on_kafka.broker.managed_ledger.trimming import MEGABYTE, MINUTE_MS, Retention, Rollover, is_full, open_trim
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.state.metadata.ledger_records import LedgerRecord, LedgerState

LAYOUT = LedgerLayout(7, 50_000)
NOW_MS = 1_000 * MINUTE_MS


def _open(first: int, end: int, megabytes: int, first_publish_ms: int = NOW_MS) -> Ledger:
    record = LedgerRecord(
        "persistent://a/b/c", LedgerState.OPEN, first, end, megabytes * MEGABYTE, 0, first_publish_ms, NOW_MS
    )
    return Ledger(LAYOUT.ledger_id(0, 0), record)


@pytest.mark.parametrize(
    ("ledger", "expected"),
    [
        (_open(0, 1_000, 1), False),
        (_open(0, 1_000, 1, NOW_MS - 240 * MINUTE_MS), True),
        (_open(0, 1_000, 1, 0), False),  # not looked at yet
        (_open(0, 1_000, 2_048), True),
        (_open(0, 50_000, 1), True),
    ],
)
def test_a_ledger_is_full_by_age_size_or_count(ledger: Ledger, expected: bool) -> None:
    assert is_full(ledger, Rollover(), NOW_MS) == expected


@pytest.mark.parametrize(
    ("retention", "first_young", "rollover", "first_recent", "expected"),
    [
        (Retention(), 1_000, Rollover(), 0, 0),  # nothing would be closed
        (Retention(), 1_000, Rollover(), 400, 400),  # by age
        (Retention(), 1_000, Rollover(max_entries=300), 0, 900),  # by count: three of them
        (Retention(), 1_000, Rollover(max_megabytes=25), 0, 750),  # by size: a quarter stays
        (Retention(), 1_000, Rollover(), 1_000, 1_000),
        (Retention(60, -1), 200, Rollover(), 400, 200),  # retention by time keeps the rest
        (Retention(-1, 70), 1_000, Rollover(), 400, 300),  # 70 of 100 MB are kept
        (Retention(60, 70), 200, Rollover(), 400, 300),  # what is beyond one of both goes
        (Retention(-1, 101), 1_000, Rollover(), 400, 0),
        (Retention(-1, -1), 1_000, Rollover(), 1_000, 0),
    ],
)
def test_what_would_be_closed_and_is_not_retained_may_go(
    retention: Retention, first_young: int, rollover: Rollover, first_recent: int, expected: int
) -> None:
    ledger = _open(0, 1_000, 100)
    assert open_trim(ledger, 1_000, retention, first_young, rollover, first_recent) == expected


def test_what_came_since_the_ledger_was_measured_counts_by_age_alone() -> None:
    ledger = _open(100, 1_000, 100)
    assert open_trim(ledger, 1_500, Retention(), 1_500, Rollover(), 1_200) == 1_200
    assert open_trim(ledger, 1_500, Retention(), 1_500, Rollover(max_entries=400), 100) == 900
