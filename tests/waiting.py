"""Tests wait in one way: they ask until it is so, have a deadline, and fail with the name of what did not come."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from pulsar_on_kafka.base.deadline import Deadline

PATIENCE_S = 120.0
"""For what must come, however busy the machine."""

T = TypeVar("T")


def patience(seconds: float = PATIENCE_S) -> Deadline:
    """The deadline of a call that must succeed, however busy the machine."""
    return Deadline.after(seconds)


def until(
    condition: Callable[[], T | None],
    what: str | Callable[[], str],
    within_s: float = PATIENCE_S,
    every_s: float = 0.02,
    progress: Callable[[], object] | None = None,
) -> T:
    """Ask again and again until the answer is true, and give it.

    Args:
        what: the name of what is waited for ("the owner to know every consumer"), or a function that is asked for it
            when it did not come: it can say what there is instead.
        every_s: seconds between two questions.
        progress: what changes while it is on its way, where there is much to come: each change gives it `within_s`
            seconds anew.

    Raises AssertionError: `within_s` seconds were not enough.
    """
    deadline, pause = Deadline.after(within_s), threading.Event()
    so_far = None if progress is None else progress()
    while not (answer := condition()):
        if progress is not None and (now := progress()) != so_far:
            deadline, so_far = Deadline.after(within_s), now
        if deadline.passed():
            raise AssertionError(f"did not come within {within_s:g} s: {what if isinstance(what, str) else what()}")
        pause.wait(every_s)
    return answer


def never(condition: Callable[[], object], what: str, for_s: float = 0.5) -> None:
    """Ask 50 times a second for `for_s` seconds, and fail with `what` came when the answer is true."""
    deadline, pause = Deadline.after(for_s), threading.Event()
    while not deadline.passed():
        if condition():
            raise AssertionError(f"must not come, and came: {what}")
        pause.wait(0.02)
