"""Every librdkafka handle of this process, so that a forked child never frees one.

A child that inherits a live handle aborts when it frees it or exits normally (its threads did not survive the fork).
One more reference on each, taken in the child right after the fork, keeps them from ever being freed there.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

_LIVE: Final[dict[int, object]] = {}
_AFTER_FORK: Final[list[Callable[[], None]]] = []
_lock = threading.Lock()


def track(handle: object) -> None:
    """Remember a live Producer, Consumer or AdminClient until `release`."""
    with _lock:
        _LIVE[id(handle)] = handle


def release(handle: object) -> None:
    """Forget a handle that was closed. Unknown handles (inherited over a fork) are left alone."""
    with _lock:
        _LIVE.pop(id(handle), None)


def is_ours(handle: object) -> bool:
    """False for a handle that belongs to the parent of a forked child."""
    return id(handle) in _LIVE


def met_cluster(handle: Producer | AdminClient) -> str:
    """The id of the cluster whose broker has answered the handle; '' when none has. Asks nothing."""
    try:
        return str(handle.cluster_id(timeout=0))
    except KafkaException:
        return ""


def after_fork_in_child(action: Callable[[], None]) -> None:
    """Run `action` in every forked child, after the inherited handles were pinned."""
    _AFTER_FORK.append(action)


def _pin_inherited_handles() -> None:
    global _lock
    _lock = threading.Lock()  # the parent's may have been held by a thread that does not exist here
    for handle in _LIVE.values():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))
    _LIVE.clear()
    for action in _AFTER_FORK:
        action()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pin_inherited_handles)
