"""Every librdkafka handle of this process: how many there may be, and that a forked child never frees one.

confluent-kafka takes a key of thread-local storage for each handle. A process has 1,024 of these on Linux, shared by
all of its libraries: without one more, whatever needs it fails. So handles are refused earlier, those of programs
before those that administration and housekeeping need.

A child that frees an inherited handle, also when it exits, joins threads that did not survive the fork, or aborts.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, TypeVar

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from pulsar_on_kafka.base import forks
from pulsar_on_kafka.base.errors import TooManyHandles

_T = TypeVar("_T")

_KEYS_OF_OTHERS: Final = 64
"""Keys of thread-local storage that other libraries of the process may take."""
RESERVE: Final = 60
"""Handles that producers, administration and housekeeping get beside as many consumers and readers as may be."""


def _thread_keys() -> int:
    """The number of thread-local storage keys of a process; where the system does not report it, POSIX's minimum."""
    try:
        return os.sysconf("SC_THREAD_KEYS_MAX")
    except (AttributeError, OSError, ValueError):
        return 128


MAX_HANDLES: Final = max(2 * RESERVE, _thread_keys() - _KEYS_OF_OTHERS)
"""Handles of a process."""

_opening = 0
"""Handles that are being made; in a forked child those of its parent as well, whose keys stay taken."""

_LIVE: Final[dict[int, object]] = {}
_lock: Final = forks.process_lock()


def opened(make: Callable[[], _T], *, reserved: bool = False) -> _T:
    """Make a Producer, Consumer or AdminClient, and remember it until `release`. With `reserved` it may be one of the
    last `RESERVE`.

    Raises:
        TooManyHandles: the process has as many as may be; and what `make` raises.
    """
    global _opening
    most = MAX_HANDLES if reserved else MAX_HANDLES - RESERVE
    with _lock:
        there = len(_LIVE) + _opening
        if there >= most:
            raise TooManyHandles(
                f"this process has {there} handles of librdkafka, {most} are allowed (one for each subscription and"
                " reader): close some, or use more processes"
            )
        _opening += 1
    try:
        handle = make()
        with _lock:
            _LIVE[id(handle)] = handle
        return handle
    finally:
        with _lock:
            _opening -= 1


def count() -> int:
    """Handles that are open or being made."""
    return len(_LIVE) + _opening


def release(handle: object) -> None:
    """Forget a handle that was closed. Unknown handles (inherited over a fork) are left alone."""
    with _lock:
        _LIVE.pop(id(handle), None)


def is_ours(handle: object) -> bool:
    """False for a handle that belongs to the parent of a forked child."""
    return id(handle) in _LIVE


def met_cluster(handle: Producer | AdminClient) -> str:
    """The cluster id from a broker's reply to the handle; '' without one. Sends no request."""
    try:
        return str(handle.cluster_id(timeout=0))
    except KafkaException:
        return ""


def _pin_inherited() -> None:
    global _opening
    _opening += len(_LIVE)
    for handle in _LIVE.values():
        forks.pin(handle)
    _LIVE.clear()


forks.after_fork_in_child(_pin_inherited)
