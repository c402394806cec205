"""Lifetimes: resources of a `with` block, and the end of a program by a signal."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TypeVar

S = TypeVar("S", bound="Startable")


class Startable:
    """A `with` starts it, and stops it at its end."""

    def start(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        """Twice is fine."""
        raise NotImplementedError

    def __enter__(self: S) -> S:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


@contextmanager
def stop_on_signals(*, interruptible: bool) -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set instead of ending the program, so that nothing is left half done.

    `interruptible`: the second signal raises KeyboardInterrupt. Main thread only.
    """
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if interruptible and stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
