"""Calls that mostly wait for other machines, made side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from pulsar_on_kafka.base.worker import aside

_T = TypeVar("_T")
AT_ONCE: Final = 8


def side_by_side(calls: Iterable[Callable[[], _T]], at_once: int = AT_ONCE) -> list[_T]:
    """What each gives, in their order. Returns when all are done; one alone is made by the caller's thread, others by
    daemon threads, which do not keep a process that ends.

    Raises:
        Exception: what the first of them raised, in their order, when all are done.
    """
    made = list(calls)
    if len(made) < 2:
        return [call() for call in made]
    results: dict[int, _T] = {}
    failures: dict[int, BaseException] = {}
    left = iter(range(len(made)))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                number = next(left, None)
            if number is None:
                return
            try:
                results[number] = made[number]()
            except BaseException as failure:  # the caller's thread raises it
                failures[number] = failure

    threads = [aside(f"pok-side-by-side-{number}", work) for number in range(min(at_once, len(made)))]
    for thread in threads:
        thread.join()
    if failures:
        raise failures[min(failures)]
    return [results[number] for number in range(len(made))]
