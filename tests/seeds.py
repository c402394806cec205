"""How many random histories and examples are played: some in `make test`, more in `make chaos`, all in `make soak`.

Many short ones are one test: pytest takes longer over a test of its own than most of them last."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import pytest
from hypothesis import settings

SHORT: Final = "short"
"""The profile of hypothesis that `make test` has."""
SHORTENED: Final = 4


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


def first_of(now: int, seeds: Sequence[object]) -> list[object]:
    """For `parametrize`: the first ones as they are, the others for `make chaos`."""
    return [*seeds[:now], *(pytest.param(seed, marks=pytest.mark.long) for seed in seeds[now:])]


def examples(whole: int) -> int:
    """hypothesis' `max_examples` of a test that says how many it needs; a part of them in `make test`."""
    return whole // SHORTENED if settings.get_current_profile_name() == SHORT else whole


def in_three(now: int, seeds: range) -> list[object]:
    """For `parametrize`, of a test that plays many seeds: the first ones, half of the others for `make chaos`, and the
    rest for `make soak`."""
    later = now + (len(seeds) - now) // 2
    return [
        seeds[:now],
        pytest.param(seeds[now:later], marks=pytest.mark.long),
        pytest.param(seeds[later:], marks=[pytest.mark.soak, pytest.mark.timeout(0)]),
    ]
