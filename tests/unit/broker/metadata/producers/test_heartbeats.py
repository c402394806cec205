"""Heartbeats rest for as long as they describe producers."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.broker.metadata.producers.heartbeat_rests import HeartbeatRests


@pytest.mark.parametrize("count", [1_000, 10_000])
@pytest.mark.parametrize("every_s", [0.0005, 0.005, 0.05])
def test_many_producers_that_open_cost_each_the_same(count: int, every_s: float) -> None:
    rests, described = HeartbeatRests(), 0
    for opened in range(1, count + 1):
        rests.change("t")
        if rests.due(["t"], opened * every_s):
            rests.sent("t", opened, opened * every_s)
            described += opened
    seconds = count * every_s
    assert described <= 1_000 * seconds + count, "a thousand descriptions a second, whatever is open"


def test_a_change_is_told_after_the_rest_and_once() -> None:
    rests = HeartbeatRests()
    rests.change("t")
    assert rests.due(["t", "other"], 0.0) == {"t"}
    rests.sent("t", 100, 0.0)
    assert rests.next_s(["t"], 7.0) == 7.0
    rests.change("t")
    assert rests.due(["t"], 0.05) == set()
    assert rests.next_s(["t"], 7.0) == pytest.approx(0.1)
    assert rests.due(["t"], 0.11) == {"t"}
    rests.sent("t", 100, 0.11)
    assert rests.due(["t"], 9.0) == set()


def test_a_topic_without_producers_neither_rests_nor_is_due() -> None:
    rests = HeartbeatRests()
    rests.sent("t", 1_000, 0.0)
    rests.change("t")
    rests.forget("t")
    assert rests.due(["t"], 9.0) == set()
    rests.change("t")
    assert rests.due([], 9.0) == set(), "no producer of it is open"
    assert rests.next_s([], 7.0) == 7.0
    assert rests.due(["t"], 0.0) == {"t"}
