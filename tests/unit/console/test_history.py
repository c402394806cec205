"""The history of the last hour, sampled from overviews, and its sparklines."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from math import nan

import pytest

from pulsar_on_kafka.admin.overview.records import Overview
from pulsar_on_kafka.console.history import INTERVAL_MS, MAX_SUBSCRIPTIONS, SAMPLES, History, sparkline
from tests.many_subscriptions import NOW_MS, an_overview

START_MS = NOW_MS // INTERVAL_MS * INTERVAL_MS


def at(overview: Overview, intervals: float, backlog: int | None = None, rate: float | None = None) -> Overview:
    """The overview so many intervals later, with this backlog and these rates in the only partition of each row."""
    rows = overview.subscriptions
    if backlog is not None:
        part = replace(rows[0].partitions[0], backlog=backlog, published_per_s=rate, acknowledged_per_s=rate)
        rows = tuple(replace(each, partitions=(part,)) for each in rows)
    return replace(overview, gathered_ms=START_MS + round(intervals * INTERVAL_MS), subscriptions=rows)


@pytest.mark.parametrize(
    ("samples", "path", "gaps"),
    [
        ([], "", False),
        ([nan, nan], "", False),
        ([0, 0], "M0 10L1 10", False),
        ([nan, 5, 10, 0], "M1 5L2 0L3 10", False),
        ([1, nan, nan, 2, 4], "M0 7.5h.6M3 5L4 0", True),
        ([4, nan], "M0 0h.6", True),
    ],
)
def test_a_sparkline_has_a_gap_where_samples_are_missing(samples: list[float], path: str, gaps: bool) -> None:
    found = sparkline(samples)
    assert (found.path, found.gaps) == (path, gaps)
    assert found.highest == max((each for each in samples if each == each), default=0)


def test_a_sample_has_the_last_backlog_and_the_average_rate() -> None:
    overview, history = an_overview(1), History()
    for number, (backlog, rate) in enumerate(((10, None), (30, 2.0), (20, 4.0))):
        history.take(at(overview, number / 10, backlog, rate))
    (row,) = overview.subscriptions
    found = history.of(row.topic, row.subscription)
    assert found is not None
    assert (found.backlog.highest, found.published.path) == (20, f"M{SAMPLES - 1} 0h.6")
    assert 2.0 < found.acknowledged.highest < 4.0


def test_an_hour_is_kept_and_a_pause_is_a_gap() -> None:
    overview, history = an_overview(1), History()
    (row,) = overview.subscriptions
    for number in (*range(SAMPLES + 5), SAMPLES + 8):
        history.take(at(overview, number, 1000 - number, 1.0))
    found = history.of(row.topic, row.subscription)
    assert found is not None
    assert found.backlog.gaps
    assert found.backlog.path.count("M") == 2
    assert found.backlog.path.startswith("M0 0L1 ")
    assert found.backlog.highest == 1000 - 9, "the oldest sample is an hour old"
    history.take(at(overview, 3, 5_000))
    assert history.of(row.topic, row.subscription) == found, "an older overview changes nothing"
    history.take(at(overview, 10 * SAMPLES, 7))
    found = history.of(row.topic, row.subscription)
    assert found is not None
    assert found.backlog.path == f"M{SAMPLES - 1} 0h.6"


def test_a_deleted_subscription_has_no_history() -> None:
    overview, history = an_overview(2), History()
    history.take(at(overview, 0))
    gone, left = overview.subscriptions
    history.take(replace(at(overview, 1), subscriptions=(left,)))
    assert history.of(gone.topic, gone.subscription) is None
    assert history.of(left.topic, left.subscription) is not None


def test_memory_is_bounded() -> None:
    history = History()
    overview = an_overview(2000)
    History().take(overview)  # the rows keep their sums from now on
    tracemalloc.start()
    try:
        history.take(overview)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / 2000 < 1000 - 200, "bytes of one, without its names"
    row = overview.subscriptions[0]
    many = tuple(replace(row, subscription=f"s{number}") for number in range(MAX_SUBSCRIPTIONS + 5))
    history.take(replace(overview, subscriptions=(replace(row, subscription="small", partitions=()), *many)))
    assert history.of(row.topic, "small") is None
    kept = sum(history.of(row.topic, each.subscription) is not None for each in many)
    assert kept == MAX_SUBSCRIPTIONS
