"""Tests wait in one way: they ask until it is so, have a deadline, and fail with the name of what did not come."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from pulsar_on_kafka.base.deadline import Deadline

PATIENCE_S = 120.0
"""For what must come, however busy the machine."""
_LOOK_EVERY_S = 0.02
_LONGEST_PAUSE_S = 0.2
"""Where answers are quick."""

T = TypeVar("T")


def patience(seconds: float = PATIENCE_S) -> Deadline:
    """The deadline of a call that must succeed, however busy the machine."""
    return Deadline.after(seconds)


def until(
    condition: Callable[[], T | None],
    what: str | Callable[[], str],
    within_s: float = PATIENCE_S,
    progress: Callable[[], object] | None = None,
) -> T:
    """Ask again and again until the answer is true, and give it.

    Between two questions at least 0.02 s pass, twice the time that the answer took, and a tenth of what was waited so
    far (at most 0.2 s): other tests have the machine meanwhile.

    Args:
        what: the name of what is waited for ("the owner to know every consumer"), or a function that is asked for it
            when it did not come: it can say what there is instead.
        progress: what changes while it is on its way, where there is much to come: each change gives it `within_s`
            seconds anew.

    Raises AssertionError: `within_s` seconds were not enough.
    """
    deadline, pause = Deadline.after(within_s), threading.Event()
    so_far = None if progress is None else progress()
    began_s = asked_s = time.monotonic()
    while not (answer := condition()):
        answered_s = time.monotonic()
        if progress is not None and (now := progress()) != so_far:
            deadline, so_far = Deadline.after(within_s), now
        if deadline.passed():
            raise AssertionError(f"did not come within {within_s:g} s: {what if isinstance(what, str) else what()}")
        pause.wait(max(_LOOK_EVERY_S, 2 * (answered_s - asked_s), min((answered_s - began_s) / 10, _LONGEST_PAUSE_S)))
        asked_s = time.monotonic()
    return answer


def never(condition: Callable[[], object], what: str, for_s: float = 0.5) -> None:
    """Ask 50 times a second for `for_s` seconds, and fail with `what` came when the answer is true."""
    deadline, pause = Deadline.after(for_s), threading.Event()
    while not deadline.passed():
        if condition():
            raise AssertionError(f"must not come, and came: {what}")
        pause.wait(_LOOK_EVERY_S)
