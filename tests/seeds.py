"""Numbers of random histories and examples: some in `make test`, more histories in `make chaos`, all in `make soak`.

Many short ones are one test: pytest takes longer over a test of its own than most of them last."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import pytest
from hypothesis import settings

SHORT: Final = "short"
"""The profile of hypothesis that `make test` has."""
SHORTENED: Final = 4
_CHAOS_SHARE: Final = 4
"""Of the random histories that `make test` leaves out, `make chaos` plays one in four and `make soak` the others."""


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


def first_of(now: int, cases: Sequence[object], later: int | None = None) -> list[object]:
    """Parameters for `parametrize`: the first cases as they are, `later` of the others for `make chaos`, and the rest
    for `make soak`. Without `later`, `make chaos` has all the others, or a part of a range of seeds."""
    end = _end_of_chaos(now, cases) if isinstance(cases, range) else len(cases)
    end = end if later is None else now + later
    return [
        *cases[:now],
        *(pytest.param(case, marks=pytest.mark.long) for case in cases[now:end]),
        *(pytest.param(case, marks=_SOAK) for case in cases[end:]),
    ]


def in_three(now: int, seeds: range) -> list[object]:
    """Parameters for `parametrize`, each of many seeds: those of `make test`, of `make chaos` and of `make soak`."""
    end = _end_of_chaos(now, seeds)
    return [seeds[:now], pytest.param(seeds[now:end], marks=pytest.mark.long), pytest.param(seeds[end:], marks=_SOAK)]


_SOAK: Final = (pytest.mark.soak, pytest.mark.timeout(0))


def _end_of_chaos(now: int, seeds: Sequence[object]) -> int:
    return now + -(-(len(seeds) - now) // _CHAOS_SHARE)


def examples(whole: int) -> int:
    """Return hypothesis' `max_examples` of a test that needs `whole` examples; `make test` draws a part of them."""
    return whole // SHORTENED if settings.get_current_profile_name() == SHORT else whole
