"""Backlog quotas: when they are exceeded, and what eviction does."""

from __future__ import annotations

import random

import pytest

from pulsar_on_kafka.broker.managed_ledger.quotas import (
    BacklogQuota,
    QuotaAction,
    Quotas,
    evicted_by_size,
    evicted_by_time,
)


@pytest.mark.parametrize(
    ("limit", "backlog", "exceeded"), [(-1, 10**12, False), (0, 0, True), (100, 99, False), (100, 100, True)]
)
def test_limit_by_size(limit: int, backlog: int, exceeded: bool) -> None:
    assert BacklogQuota(limit_bytes=limit).size_exceeded(backlog) is exceeded


@pytest.mark.parametrize(
    ("limit_s", "age_ms", "exceeded"),
    [(-1, 10**9, False), (0, 10**9, False), (10, 10_000, False), (10, 10_001, True), (10, None, False)],
)
def test_limit_by_time(limit_s: int, age_ms: int | None, exceeded: bool) -> None:
    oldest = None if age_ms is None else 10**10 - age_ms
    assert BacklogQuota(limit_time_s=limit_s).time_exceeded(oldest, 10**10) is exceeded


def test_a_limit_is_inherited_with_its_action() -> None:
    namespace = {"backlog_quota_limit_size": 100, "backlog_quota_limit_size_action": "producer_exception"}
    inherited = Quotas.of({}, namespace)
    assert inherited.exceeded(3, 100, None, 0) == (
        QuotaAction.PRODUCER_EXCEPTION, False, "the slowest subscription has 100 bytes of partition 3 left"
    )  # fmt: skip
    own = Quotas.of({"backlog_quota_limit_size": 200}, namespace)
    assert own.exceeded(0, 100, None, 0) is None
    assert own.by_size.action is QuotaAction.PRODUCER_REQUEST_HOLD
    assert not Quotas.of({}, {}).limited


def test_the_limit_by_size_comes_first() -> None:
    both = Quotas.of(
        {
            "backlog_quota_limit_size": 100,
            "backlog_quota_limit_time": 10,
            "backlog_quota_limit_time_action": "consumer_backlog_eviction",
        }
    )
    seen = [
        both.exceeded(0, size, oldest, 20_001) for size, oldest in ((100, 0), (99, 10_000), (99, 10_001), (0, None))
    ]
    assert [found and (found.action.value, found.by_time) for found in seen] == [
        ("producer_request_hold", False), ("consumer_backlog_eviction", True), None, None
    ]  # fmt: skip


def test_eviction_by_size_leaves_nine_tenths_and_moves_nobody_back() -> None:
    rng = random.Random(3)
    for _ in range(2000):
        end = rng.randrange(1, 500)
        cursors = {f"s{n}": rng.randrange(end + 1) for n in range(rng.randrange(1, 4))}
        limit = rng.randrange(1, 60_000)
        moved = evicted_by_size(cursors, end, lambda offset: (end - offset) * 100, limit)  # noqa: B023
        assert all(cursors[name] < offset <= end for name, offset in moved.items())
        after = {**cursors, **moved}
        backlog = (end - min(after.values())) * 100
        if len(cursors) == 1:  # with several, Pulsar ends when one stays the slowest
            assert backlog <= max(0.9 * limit, 0.0) + 100
        if all((end - offset) * 100 <= 0.9 * limit for offset in cursors.values()):
            assert moved == {}


def test_eviction_takes_from_the_slowest_first() -> None:
    assert evicted_by_size({"slow": 0, "fast": 900}, 1000, lambda offset: 1000 - offset, 500) == {"slow": 550}


def test_eviction_by_time_sets_everybody_to_the_first_young_message() -> None:
    assert evicted_by_time({"a": 3, "b": 9, "c": 7}, 7) == {"a": 7}
