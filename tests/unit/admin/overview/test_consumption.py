"""The words unconsumed, stuck and slow, each with its threshold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pulsar_on_kafka.admin.letters import REDRIVE
from pulsar_on_kafka.admin.overview.consumption import ConsumptionState, catch_up_s
from tests.overviews import NOW_MS, PARTITION, slow, stuck, subscription

INFINITE = float("inf")
UNCONSUMED, STUCK, SLOW = ConsumptionState


@pytest.mark.parametrize(
    ("backlog", "age_s", "acknowledged_per_s", "published_per_s", "duration_s"),
    [
        (6_010, 60, 10.0, 0.0, 601.0),
        (6_000, 60, 10.0, 0.0, None),  # ten minutes, not longer
        (600, 60, 10.0, 9.5, 1_200.0),
        (600, 60, 10.0, 10.0, INFINITE),  # does not shrink
        (600, 60, 10.0, 20.0, INFINITE),
        (599, 60, 10.0, 20.0, None),  # less than a minute of work
        (600, 59, 10.0, 20.0, None),  # nothing waits for a minute
        (600, None, 10.0, 20.0, None),
        (600, 60, 0.0, 20.0, None),  # stands still, and is not slow
        (600, 60, None, 20.0, None),
        (600, 60, 10.0, None, None),
        (0, None, 10.0, 20.0, None),
    ],
)
def test_slow_takes_longer_than_ten_minutes_for_a_backlog_of_a_minute(
    backlog: int,
    age_s: int | None,
    acknowledged_per_s: float | None,
    published_per_s: float | None,
    duration_s: float | None,
) -> None:
    age_ms = None if age_s is None else age_s * 1000
    assert catch_up_s(backlog, age_ms, acknowledged_per_s, published_per_s) == duration_s


def test_a_backlog_without_a_consumer_is_unconsumed_from_the_beginning() -> None:
    assert stuck(seconds=0, processes=()).state is UNCONSUMED
    assert stuck(seconds=9_000, processes=()).state is UNCONSUMED
    assert slow(processes=()).state is UNCONSUMED
    assert subscription(processes=()).state is None


def test_a_consumer_that_acknowledges_nothing_for_a_minute_is_stuck() -> None:
    assert stuck(seconds=59).state is None
    assert stuck(seconds=60).state is STUCK


def test_by_checkpoints_stuck_takes_three_minutes_and_nothing_is_unconsumed() -> None:
    assert stuck(seconds=179, processes=(), processes_known=False).state is None
    assert stuck(seconds=180, processes=(), processes_known=False).state is STUCK


def test_one_partition_that_hangs_is_enough_and_stuck_is_graver_than_slow() -> None:
    moves, hangs = slow().partitions, stuck().partitions
    assert slow(partitions=(*moves, PARTITION)).state is SLOW
    assert slow(partitions=(*moves, *hangs)).state is STUCK


def test_what_was_not_seen_lately_is_judged_as_of_then() -> None:
    [unseen] = stuck(seconds=90).partitions
    assert stuck(partitions=(replace(unseen, seen_ms=NOW_MS - 40_000),)).state is None


def test_a_subscription_names_the_longest_time_of_its_partitions() -> None:
    [one], [other] = slow().partitions, slow(published_per_s=10.0).partitions
    assert slow(partitions=(one, one)).catch_up_s == 6_000.0
    assert slow(partitions=(one, other)).catch_up_s == INFINITE


def test_letters_that_nobody_redrives_need_no_consumer() -> None:
    assert stuck(REDRIVE, processes=()).state is None
    assert stuck(REDRIVE, processes=()).stuck_since_ms is None
