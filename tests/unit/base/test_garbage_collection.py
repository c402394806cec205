"""A tuned garbage collector skips what exists, still frees reference cycles, and leaves other settings alone."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterator

import pytest

from pulsar_on_kafka.base.garbage_collection import THRESHOLDS, tune_collector


class _Cycle:
    """Refers to itself, so that only the collector frees it."""

    alive = 0

    def __init__(self) -> None:
        self.itself = self
        _Cycle.alive += 1

    def __del__(self) -> None:
        _Cycle.alive -= 1


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Each test begins with Python's own settings; other objects of the run stay frozen."""
    former = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    _Cycle.alive = 0
    yield
    gc.enable()
    gc.set_threshold(*former)
    gc.collect()


def test_what_exists_is_skipped_and_collections_are_rarer() -> None:
    kept = [[number] for number in range(1_000)]
    frozen = gc.get_freeze_count()
    tune_collector()
    assert gc.get_threshold() == THRESHOLDS
    assert gc.get_freeze_count() >= frozen + len(kept)


def test_garbage_is_freed_before_the_rest_is_frozen() -> None:
    gc.disable()
    for _ in range(100):
        _Cycle()
    gc.enable()
    tune_collector()
    assert _Cycle.alive == 0


def test_young_cycles_are_bounded_by_the_threshold() -> None:
    tune_collector()
    most = 0
    for _ in range(20 * THRESHOLDS[0]):
        _Cycle()
        most = max(most, _Cycle.alive)
    assert most <= THRESHOLDS[0] * 1.01, "since Python 3.12 a collection waits for the next safe point"


def test_cycles_that_lived_for_some_time_are_freed() -> None:
    """Cycles become garbage in an older generation, as those of connections do."""
    tune_collector()
    young, middle, old = THRESHOLDS
    recent: deque[_Cycle] = deque(maxlen=2 * young)
    most = 0
    for _ in range(4 * young * middle * old):
        recent.append(_Cycle())
        most = max(most, _Cycle.alive)
    assert most <= 2 * young * middle * old


@pytest.mark.parametrize("threshold", [(0, 10, 10), THRESHOLDS, (50_000, 2, 2)])
def test_other_settings_are_left_alone(threshold: tuple[int, int, int]) -> None:
    gc.set_threshold(*threshold)
    frozen = gc.get_freeze_count()
    tune_collector()
    assert gc.get_threshold() == threshold
    assert gc.get_freeze_count() <= frozen, "another thread may free what is frozen"


def test_a_disabled_collector_is_left_alone() -> None:
    gc.disable()
    frozen = gc.get_freeze_count()
    tune_collector()
    assert (gc.get_threshold(), gc.get_freeze_count()) == ((700, 10, 10), frozen)
