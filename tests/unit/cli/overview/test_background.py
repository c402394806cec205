"""What `pok top` knows while a pass is under way, or fails."""

from __future__ import annotations

import threading

import pytest

from pulsar_on_kafka.cli.overview.background import BackgroundCall, LatestOverview
from tests.overviews import NOW_MS, overview
from tests.waiting import until


def test_one_call_at_a_time_whose_result_is_taken_once() -> None:
    call: BackgroundCall[int] = BackgroundCall("pok-test")
    go = threading.Event()
    assert call.taken() is None
    call.begin(lambda: len("first") if go.wait(60) else 0)
    call.begin(lambda: 99)
    assert call.under_way
    go.set()
    result = until(call.taken, "the result")
    assert (result.result(), call.under_way, call.taken()) == (5, False, None)


def test_a_failure_is_a_result() -> None:
    call: BackgroundCall[float] = BackgroundCall("pok-test")
    call.begin(lambda: 1 / 0)
    result = until(call.taken, "the failure")
    with pytest.raises(ZeroDivisionError):
        result.result()


def test_the_age_grows_and_the_first_failure_dates_the_absence() -> None:
    latest = LatestOverview(overview())
    assert latest.lines(NOW_MS + 3_000) == ["as of 2027-01-15T08:00:00.000Z, 3s ago"]
    latest = latest.failed("no broker listens", NOW_MS + 2_000).failed("no route", NOW_MS + 14_000)
    assert latest.lines(NOW_MS + 65_000) == [
        "as of 2027-01-15T08:00:00.000Z, 1m5s ago",
        "Kafka does not answer since 2027-01-15T08:00:02.000Z, for 1m3s: no route",
    ]
