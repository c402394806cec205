"""A topic watch looks every so often what became of the topics in use, and tells producers and readers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from pulsar_on_kafka.base.scheduler import Scheduler
from pulsar_on_kafka.metadata.topics import Topic

_User = TypeVar("_User")


class TopicWatch(Generic[_User]):
    """The watch has its users told every `every_s` seconds, from the first one on. Thread-safe.

    Memory: an entry for each user of a topic while the client holds it.
    """

    def __init__(self, scheduler: Scheduler, every_s: float, tell: Callable[[list[tuple[_User, Topic]]], None]) -> None:
        self._scheduler = scheduler
        self._every_s = every_s
        self._tell = tell
        self._watched: WeakKeyDictionary[_User, Topic] = WeakKeyDictionary()
        self._lock = threading.Lock()
        self._begun = False

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
        with self._lock:
            watched = list(self._watched.items())
        if watched:
            self._tell(watched)
