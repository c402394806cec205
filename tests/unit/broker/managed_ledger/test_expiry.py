"""TTL, and the end of what nobody uses."""

from __future__ import annotations

import random

import pytest

from pulsar_on_kafka.broker.managed_ledger.expiry import (
    InactiveTopicDeleteMode,
    SubscriptionUse,
    TopicUse,
    acknowledged_by_ttl,
    expiry_horizon_ms,
    subscription_expired,
    topic_expired,
    unused_since,
)
from pulsar_on_kafka_mapping.state.metadata.metadata_records import Unused

NO_SUBSCRIPTIONS = InactiveTopicDeleteMode.DELETE_WHEN_NO_SUBSCRIPTIONS
CAUGHT_UP = InactiveTopicDeleteMode.DELETE_WHEN_SUBSCRIPTIONS_CAUGHT_UP
NOW = 10_000_000


def test_ttl_acknowledges_exactly_what_has_expired_and_never_goes_back() -> None:
    rng = random.Random(5)
    for _ in range(2000):
        stamps = sorted(NOW - rng.randrange(20_000) for _ in range(rng.randrange(12)))
        next_unacked, ttl_s = rng.randrange(len(stamps) + 1), rng.randrange(20)
        horizon = expiry_horizon_ms(ttl_s, NOW)
        expired = [at for at, stamp in enumerate(stamps) if ttl_s and stamp + ttl_s * 1000 < NOW]
        if horizon is None:
            assert expired == []
            continue
        first_live = next((at for at, stamp in enumerate(stamps) if stamp >= horizon), len(stamps))
        upto = acknowledged_by_ttl(next_unacked, first_live)
        acknowledged = {*range(next_unacked), *range(0 if upto is None else upto + 1)}
        assert acknowledged == {*range(next_unacked), *expired}


@pytest.mark.parametrize(
    ("connected", "replicated", "minutes", "idle_ms", "expired"),
    [
        (False, False, 1, 60_001, True),
        (False, False, 1, 60_000, False),
        (False, False, 0, 10**9, False),
        (True, False, 1, 10**9, False),
        (False, True, 1, 10**9, False),
    ],
)
def test_subscriptions_expire(connected: bool, replicated: bool, minutes: int, idle_ms: int, expired: bool) -> None:
    use = SubscriptionUse(connected, replicated, NOW - idle_ms)
    assert subscription_expired(use, minutes, NOW) is expired


@pytest.mark.parametrize(
    ("use", "mode", "retention_minutes", "expired"),
    [
        (TopicUse(0, 0, 0, False, 5, NOW - 60_000), NO_SUBSCRIPTIONS, 0, True),
        (TopicUse(0, 0, 0, False, 5, NOW - 59_999), NO_SUBSCRIPTIONS, 0, False),
        (TopicUse(0, 0, 1, False, 5, NOW - 60_000), NO_SUBSCRIPTIONS, 0, False),
        (TopicUse(0, 0, 1, False, 5, NOW - 60_000), CAUGHT_UP, 0, True),
        (TopicUse(0, 0, 1, True, 5, NOW - 60_000), CAUGHT_UP, 0, False),
        (TopicUse(1, 0, 0, False, 5, NOW - 60_000), NO_SUBSCRIPTIONS, 0, False),
        (TopicUse(0, 1, 1, False, 5, NOW - 60_000), CAUGHT_UP, 0, False),
        (TopicUse(0, 0, 0, False, 5, NOW - 60_000), NO_SUBSCRIPTIONS, -1, False),
        (TopicUse(0, 0, 0, False, 0, NOW - 60_000), NO_SUBSCRIPTIONS, -1, True),
        (TopicUse(0, 0, 0, False, 5, NOW - 60_000), NO_SUBSCRIPTIONS, 2, False),
        (TopicUse(0, 0, 0, False, 5, NOW - 120_000), NO_SUBSCRIPTIONS, 2, True),
    ],
)
def test_topics_that_nobody_uses(
    use: TopicUse, mode: InactiveTopicDeleteMode, retention_minutes: int, expired: bool
) -> None:
    assert topic_expired(use, mode, 60, retention_minutes, NOW) is expired


def test_what_is_unused_counts_from_its_last_use() -> None:
    rng = random.Random(11)
    for _ in range(500):
        known: dict[str, Unused] = {}
        last_use = {"a": 0, "b": 0}
        marks: dict[str, int] = {"a": 0, "b": 0}
        for now_ms in range(1, 30):
            in_use = {name: rng.random() < 0.1 for name in marks}
            for name in marks:
                if in_use[name] or rng.random() < 0.1:  # used now, or between two looks
                    marks[name] += 1
                    last_use[name] = now_ms
            known = unused_since(known, {name: None if in_use[name] else str(marks[name]) for name in marks}, now_ms)
            for name in marks:
                if in_use[name]:
                    assert name not in known
                else:
                    assert known[name].since_ms >= last_use[name]
                    assert known[name].since_ms <= last_use[name] + 1
