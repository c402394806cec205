"""Many short random histories in one test: pytest takes longer over a test of its own than most of them last."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pytest


def for_each_seed(seeds: Iterable[int]) -> Callable[[Callable[[int], None]], Callable[[], None]]:
    """Make a test that is played once for each seed; its failure names the seed."""

    def one_test(play: Callable[[int], None]) -> Callable[[], None]:
        def test() -> None:
            for seed in seeds:
                try:
                    play(seed)
                except Exception as failure:
                    raise AssertionError(f"seed {seed}: {failure}") from failure

        # Not functools.wraps: pytest would look for a fixture called seed.
        test.__name__, test.__doc__, test.__module__ = play.__name__, play.__doc__, play.__module__
        return test

    return one_test


def first_of(now: int, seeds: Sequence[int]) -> list[object]:
    """For `parametrize`: the first ones as they are, the others for `make chaos`."""
    return [*seeds[:now], *(pytest.param(seed, marks=pytest.mark.long) for seed in seeds[now:])]
