"""Slices keep the work of one connection in the event loop short: between two of them other connections are served."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

SLICE_S: Final = 0.02
"""How long one connection may work in the loop at a time, besides its last step."""


class LoopSlice:
    """The present slice of one connection. The clock is the monotonic one."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._end_s = 0.0

    def begin(self) -> None:
        self._end_s = self._now_s() + SLICE_S

    @property
    def is_over(self) -> bool:
        return self._now_s() > self._end_s


def steps(works: Iterable[Callable[[], object]]) -> Iterator[None]:
    """Do the works one after the other, with a pause after each."""
    for work in works:
        work()
        yield
