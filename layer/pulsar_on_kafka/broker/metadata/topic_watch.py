"""Watches the records of topics that a process uses, for changes that their users follow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar
from weakref import WeakKeyDictionary

from pulsar_on_kafka.base.scheduler import Scheduler
from pulsar_on_kafka.broker.metadata.topics import Topic

_User = TypeVar("_User")

POLICIES_S: Final = 1.0
"""A user follows a changed policy after two looks at the latest."""
_REST_FACTOR: Final = 20
"""The rest after a call, in the processor time that it took."""


class TopicWatch(Generic[_User]):
    """Calls its users every `every_s` seconds, from the first one on. Thread-safe.

    With thousands of users it calls them less often: the calls take a twentieth of a processor at most.
    Memory: an entry for each user of a topic while the client holds it.
    """

    def __init__(
        self, scheduler: Scheduler, every_s: float, report: Callable[[list[tuple[_User, Topic]]], None]
    ) -> None:
        self._scheduler = scheduler
        self._every_s = every_s
        self._update = report
        self._watched: WeakKeyDictionary[_User, Topic] = WeakKeyDictionary()
        self._lock = threading.Lock()
        self._begun = False
        self._next_s = 0.0

    def watch(self, topic: Topic, user: _User) -> None:
        with self._lock:
            self._watched[user] = topic
            begun, self._begun = self._begun, True
        if not begun:
            self._scheduler.every(self._every_s, self._look)

    def unwatch(self, user: _User) -> None:
        with self._lock:
            self._watched.pop(user, None)

    def _look(self) -> None:
        if time.monotonic() < self._next_s:
            return
        began_s = time.thread_time()
        with self._lock:
            watched = list(self._watched.items())
        if watched:
            self._update(watched)
            self._next_s = time.monotonic() + _REST_FACTOR * (time.thread_time() - began_s)
