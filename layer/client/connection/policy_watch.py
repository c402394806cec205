"""The policy watch tells producers what the policies of their topics say, and that there is too much backlog."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, Protocol
from weakref import WeakKeyDictionary

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.scheduler import Scheduler
from pulsar_on_kafka.mapping.state.metadata.metadata_records import BacklogExceeded
from pulsar_on_kafka.metadata.topics import Topic
from pulsar_on_kafka.node.node import Node

_log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 1.0
"""A producer follows a changed policy after two looks at the latest."""


class Follows(Protocol):
    def follow_backlog(self, exceeded: BacklogExceeded | None) -> None: ...
    def follow_deduplication(self, wanted: bool, deadline: Deadline) -> None: ...


class PolicyWatch:
    """The watch reads the state topics `topics` and `namespaces`, those of their partitions that hold topics in use.

    Memory: an entry for each producer while the client holds it.
    """

    def __init__(self, scheduler: Scheduler, node: Callable[[], Node], timeout_s: float) -> None:
        self._scheduler = scheduler
        self._node = node
        self._timeout_s = timeout_s
        self._watched: WeakKeyDictionary[Follows, Topic] = WeakKeyDictionary()
        self._lock = threading.Lock()
        self._begun = False

    def watch(self, topic: Topic, user: Follows) -> None:
        with self._lock:
            self._watched[user] = topic
            begun, self._begun = self._begun, True
        if not begun:
            self._scheduler.every(LOOK_EVERY_S, self.look)

    def unwatch(self, user: Follows) -> None:
        with self._lock:
            self._watched.pop(user, None)

    def look(self) -> None:
        """Tell everybody what applies now."""
        with self._lock:
            watched = list(self._watched.items())
        if not watched:
            return
        deadline = Deadline.after(self._timeout_s)
        told = self._node().told_to_producers({topic.name.base for _, topic in watched}, deadline)
        for user, topic in watched:
            wanted = told[topic.name.base]
            try:
                user.follow_backlog(wanted.backlog_exceeded)
                user.follow_deduplication(wanted.deduplication, Deadline.after(self._timeout_s))
            except errors.LayerError as failure:  # tried again with the next look
                _log.warning("topic=%s a producer cannot follow its policies yet: %s", topic.name, failure)
