"""Closing in good order when the process is told to end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Final

from pulsar_on_kafka.base.worker import aside

ENDING: Final = (signal.SIGTERM, signal.SIGINT)


def close_on_signals(close: Callable[[], None]) -> None:
    """At the first SIGTERM or SIGINT `close` runs, in a thread, for the one that is interrupted may hold what it needs;
    then the signal is sent again, to the handler that there was before. A second signal goes to that one at once.

    Raises:
        ValueError: not called in the main thread, which Python wants for signals.
    """
    for number in ENDING:
        former = signal.getsignal(number)
        if former is not signal.SIG_IGN:
            _take(number, close, signal.SIG_DFL if former is None else former)


def _take(number: signal.Signals, close: Callable[[], None], former: signal._HANDLER) -> None:
    def close_and_send_again() -> None:
        try:
            close()
        finally:
            os.kill(os.getpid(), number)

    def told(_number: int, _frame: FrameType | None) -> None:
        signal.signal(number, former)
        aside("pok-close-on-signal", close_and_send_again, daemon=False)

    signal.signal(number, told)
