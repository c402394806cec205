"""Wait for something that cannot tell us when it happens: another process, a socket, a broker's metadata."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pulsar_on_kafka.base.deadline import Deadline

_LOOK_EVERY_S = 0.02


def pause(seconds: float) -> None:
    """Let time pass where there is nothing to be woken by."""
    threading.Event().wait(seconds)


def wait_until(happened: Callable[[], bool], deadline: Deadline) -> bool:
    """Look 50 times a second; True once it happened, False when the deadline passes first."""
    pause = threading.Event()
    while not happened():
        if deadline.passed():
            return False
        pause.wait(min(_LOOK_EVERY_S, deadline.remaining_s()))
    return True
