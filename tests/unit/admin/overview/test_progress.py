"""Progress of a cursor, seen in one pass after the other."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.admin.overview.progress import Growth, Progress, RecentRate, SavedProgress, idle_since


def seen(next_unacked: int, acknowledged: int = 0) -> SavedProgress:
    return SavedProgress(next_unacked, acknowledged, 0, 0)


def test_a_rate_needs_two_passes() -> None:
    progress = Progress(seen(10), 500)
    progress.saw(seen(10), 100.0, 1_000)
    assert (progress.per_s, progress.total, progress.moved_ms) == (None, 0, 500)
    progress.saw(seen(12, 4), 102.0, 3_000)
    assert (progress.per_s, progress.total, progress.moved_ms) == (3.0, 6, 3_000)


def test_what_is_acknowledged_above_mark_delete_counts_once() -> None:
    progress = Progress(seen(10, 5), 0)
    progress.saw(seen(10, 5), 0.0, 0)
    progress.saw(seen(16), 1.0, 1_000)
    assert progress.total == 1


def test_a_seek_back_moves_and_counts_for_nothing() -> None:
    progress = Progress(seen(10), 0)
    progress.saw(seen(10), 0.0, 0)
    progress.saw(seen(2), 1.0, 1_000)
    assert (progress.per_s, progress.total, progress.moved_ms) == (0.0, 0, 1_000)


@pytest.mark.parametrize(
    ("backlog", "moved_ms", "oldest_ms", "since_ms"),
    [(0, 5, None, None), (3, 5, 9, 9), (3, 9, 5, 9), (3, 9, None, 9)],
)
def test_stuck_since_there_was_something_to_do_and_nothing_was_done(
    backlog: int, moved_ms: int, oldest_ms: int | None, since_ms: int | None
) -> None:
    assert idle_since(backlog, moved_ms, oldest_ms) == since_ms


def test_a_log_grows() -> None:
    growth = Growth(100)
    growth.saw(100, 1.0)
    assert growth.per_s is None
    growth.saw(150, 11.0)
    assert (growth.per_s, growth.total) == (5.0, 50)
    growth.saw(20, 12.0)
    assert (growth.per_s, growth.total, growth.end) == (0.0, 50, 20)


def test_a_recent_rate_spans_one_to_two_minutes() -> None:
    rate = RecentRate()
    assert [rate.saw(total, now_s) for total, now_s in ((5, 0.0), (50, 29.0))] == [None, None]
    assert rate.saw(305, 30.0) == 10.0
    assert rate.saw(605, 60.0) == 10.0
    assert rate.saw(605, 119.0) == pytest.approx(600 / 119), "since the beginning"
    assert rate.saw(605, 120.0) == 5.0
    assert rate.saw(605, 150.0) == 0.0, "since 60 s"


def test_a_recent_rate_after_a_pause_spans_the_pause() -> None:
    rate = RecentRate()
    rate.saw(0, 0.0)
    assert rate.saw(1_000, 1_000.0) == 1.0
    assert rate.saw(1_060, 1_030.0) == pytest.approx(1_060 / 1_030)
