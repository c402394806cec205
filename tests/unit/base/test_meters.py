"""The meters behind the metrics."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_on_kafka.base.meters import BOUNDS_S, Latencies, Meters, SendCounts, TopicMeter


@given(st.lists(st.floats(0, 100)))
def test_a_histogram_counts_every_duration_once(durations: list[float]) -> None:
    latencies = Latencies()
    for duration in durations:
        latencies.add(duration)
    buckets = dict(latencies.cumulative())
    assert buckets["+Inf"] == len(durations)
    for bound in BOUNDS_S:
        assert buckets[str(bound)] == sum(duration <= bound for duration in durations)
    assert latencies.sum_s == pytest.approx(sum(durations))


class _Producer:
    def __init__(self, counts: SendCounts) -> None:
        self.counts = counts

    def send_counts(self) -> SendCounts:
        return self.counts


def test_a_topic_keeps_what_closed_producers_counted() -> None:
    meter = TopicMeter()
    one, two = _Producer(SendCounts(5, 1, 2)), _Producer(SendCounts(7, 0, 3))
    meter.opened(one)
    meter.opened(two)
    assert meter.counts() == (SendCounts(12, 1, 5), 2)
    meter.closed(one)
    meter.closed(one)
    assert meter.counts() == (SendCounts(12, 1, 3), 1)


def test_a_subscription_counts_on_after_its_members_changed() -> None:
    meters = Meters()
    meters.subscription("t", "s").acknowledged += 3
    assert meters.subscription("t", "s").acknowledged == 3
    assert [key for key, _ in meters.subscriptions()] == [("t", "s")]
