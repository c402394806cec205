"""Numbers that another thread is asked for."""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import TypeVar

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError

_T = TypeVar("_T")


def answer(asked: Future[_T], deadline: Deadline) -> _T | None:
    """None when it did not come in time, or its thread has ended."""
    with suppress(FutureTimeoutError, LayerError):
        return asked.result(max(0.01, deadline.remaining_s()))
    return None
