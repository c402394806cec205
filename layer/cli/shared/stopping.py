"""Ctrl-C as a wish instead of an exception, so that nothing is left half done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def told_to_stop() -> Iterator[threading.Event]:
    """An event that the first SIGINT or SIGTERM sets; the second raises KeyboardInterrupt. Main thread only."""
    stop = threading.Event()

    def hear(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
