"""A token bucket in simulated time."""

from __future__ import annotations

import random

import pytest

from pulsar_on_kafka.broker.metadata.rates.token_bucket import TokenBucket
from tests.seeds import for_each_seed


def test_a_full_bucket_gives_its_rate_at_once_and_then_a_token_for_each_part_of_the_period() -> None:
    bucket = TokenBucket(10, 2.0, now_s=100.0)
    assert bucket.available(100.0) == 10
    bucket.consume(10, 100.0)
    assert bucket.available(100.0) == 0
    assert bucket.wait_s(100.0) == pytest.approx(0.2)
    assert bucket.available(100.2) == 1
    assert bucket.wait_s(100.2) == 0.0
    assert bucket.available(1_000.0) == 10


def test_a_debt_is_paid_first() -> None:
    bucket = TokenBucket(2, 1.0, now_s=0.0)
    bucket.consume(12, 0.0)
    assert bucket.wait_s(0.0) == pytest.approx(5.5)
    assert bucket.available(5.4) == 0
    assert bucket.available(5.5) == 1


def test_a_rate_below_one_token_in_a_period_gives_one_after_several_periods() -> None:
    bucket = TokenBucket(0.25, 1.0, now_s=0.0)
    assert bucket.available(2.9) == 0
    assert bucket.available(3.0) == 1
    assert bucket.available(100.0) == 1
    bucket.consume(1, 100.0)
    assert bucket.wait_s(100.0) == pytest.approx(4.0)


def test_a_clock_that_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(1, 1.0, now_s=10.0)
    bucket.consume(1, 10.0)
    assert bucket.available(9.0) == 0
    assert bucket.wait_s(10.5) == pytest.approx(0.5)


def test_what_others_took_counts_against_what_overflowed_first() -> None:
    bucket = TokenBucket(10, 1.0, now_s=0.0)
    assert bucket.available(100.0) == 10  # 1,000 tokens overflowed
    bucket.consume_earlier(990, 100.0)
    assert bucket.available(100.0) == 10
    bucket.consume_earlier(4, 100.0)
    assert bucket.available(100.0) == 6
    bucket.consume_earlier(-3, 100.0)
    assert bucket.available(100.0) == 9
    bucket.consume_earlier(1_000, 100.0, max_debt=20)
    assert bucket.wait_s(100.0) == pytest.approx(2.1)


def test_the_debt_of_a_single_message_is_not_limited_by_that_of_others() -> None:
    bucket = TokenBucket(10, 1.0, now_s=0.0)
    bucket.consume(110, 0.0)
    bucket.consume_earlier(50, 0.0, max_debt=20)
    assert bucket.wait_s(0.0) == pytest.approx(10.1)


def test_a_lower_rate_takes_tokens_away_and_a_higher_one_fills_faster() -> None:
    bucket = TokenBucket(10, 1.0, now_s=0.0)
    bucket.set_rate(2, 0.0)
    assert bucket.available(0.0) == 2
    bucket.consume(2, 0.0)
    bucket.set_rate(100, 0.0)
    assert bucket.available(0.05) == 5


@for_each_seed(range(50))
def test_over_any_time_no_more_than_the_rate_and_one_burst_are_taken(seed: int) -> None:
    rng = random.Random(seed)
    rate, period_s, now_s, taken = rng.randint(1, 50), rng.choice([0.5, 1.0, 60.0]), 0.0, 0
    bucket = TokenBucket(rate, period_s, now_s)
    for _ in range(500):
        now_s += rng.choice([0.0, rng.random() * period_s / 10])
        count = min(bucket.available(now_s), rng.randint(0, 5))
        bucket.consume(count, now_s)
        taken += count
        assert taken <= rate + rate * now_s / period_s + 1e-6
