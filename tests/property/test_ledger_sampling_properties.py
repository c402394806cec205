"""Estimates of sizes, beside the sizes themselves."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

from pulsar_on_kafka.broker.managed_ledger.kafka_topics import RUN_OFFSETS, RUNS, Sampled, estimate, runs


def _sizes(rng: random.Random, entries: int) -> list[int]:
    """Sizes of records in topics: all alike, spread, mixed from two kinds, or in long phases."""
    small, large = rng.randrange(1, 500), rng.randrange(500, 100_000)
    draw: Callable[[int], int] = rng.choice(
        [
            lambda _: small,
            lambda _: rng.randrange(small, large),
            lambda _: large if rng.random() < 0.1 else small,
            lambda at: small if at * 4 // entries % 2 else large,
            lambda _: int(rng.lognormvariate(5, 1)),
        ]
    )
    return [draw(at) for at in range(entries)]


def test_runs_are_few_and_cover_both_ends() -> None:
    rng = random.Random(1)
    for _ in range(500):
        start = rng.randrange(10**9)
        end = start + rng.choice([0, 1, 511, 512, 513, 700, 50_000, rng.randrange(10**6)])
        found = runs(start, end)
        assert found == runs(start, end)
        assert sum(last - first for first, last in found) <= RUNS * RUN_OFFSETS
        assert all(before[1] <= after[0] for before, after in pairwise(found))
        if end > start:
            assert (found[0][0], found[-1][1]) == (start, end)


def test_small_stretches_are_measured_exactly() -> None:
    for entries in (1, 2, 100, RUNS * RUN_OFFSETS):
        sizes = _sizes(random.Random(entries), entries)
        found = estimate(5, 5 + entries, [Sampled(5 + at, size, 100 + at) for at, size in enumerate(sizes)])
        assert found == (sum(sizes), 0, 100, 99 + entries)
    assert estimate(5, 5, []) == (0, 0, 0, 0)


def test_the_error_is_true_in_nineteen_of_twenty_cases() -> None:
    rng = random.Random(9)
    held = 0
    for _ in range(400):
        entries = rng.choice([600, 5_000, 20_000])
        sizes = _sizes(rng, entries)
        start = rng.randrange(1000) * 1000
        sampled = [
            Sampled(at, sizes[at - start], at)
            for first, end in runs(start, start + entries)
            for at in range(first, end)
        ]
        found = estimate(start, start + entries, sampled)
        held += abs(found.bytes - sum(sizes)) <= found.error + 1
        assert (found.first_publish_ms, found.last_publish_ms) == (start, start + entries - 1)
    assert held >= 0.92 * 400, held


def test_gaps_count_as_nothing() -> None:
    every_second = [Sampled(at, 100, 1) for first, end in runs(0, 50_000) for at in range(first, end, 2)]
    found = estimate(0, 50_000, every_second)
    assert abs(found.bytes - 2_500_000) < 60_000
