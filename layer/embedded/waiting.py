"""Wait for something that cannot tell us when it happens: a process's lock, a socket, a child's end."""

from __future__ import annotations

import threading
from collections.abc import Callable

from layer.deadline import Deadline

_LOOK_EVERY_S = 0.02


def wait_until(happened: Callable[[], bool], deadline: Deadline) -> bool:
    """Look 50 times a second; True once it happened, False when the deadline passes first."""
    pause = threading.Event()
    while not happened():
        if deadline.passed():
            return False
        pause.wait(min(_LOOK_EVERY_S, deadline.remaining_s()))
    return True
