"""Partition discovery tells producers and readers that their partitioned topic has grown. Consumers learn it from their
group."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, Protocol
from weakref import WeakKeyDictionary

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.scheduler import Scheduler
from pulsar_on_kafka.metadata.topics import Topic
from pulsar_on_kafka.node.node import Node

_log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 5.0
"""How long new partitions go unused. The official client looks once a minute."""


class Grows(Protocol):
    def grow(self, partitions: int, deadline: Deadline) -> None: ...


class PartitionDiscovery:
    """Partition discovery asks Kafka for the number of partitions of the topics in use, once for each topic every
    `LOOK_EVERY_S`.

    Memory: an entry for each producer and reader of a partitioned topic while the client holds it.
    """

    def __init__(self, scheduler: Scheduler, node: Callable[[], Node], timeout_s: float) -> None:
        self._scheduler = scheduler
        self._node = node
        self._timeout_s = timeout_s
        self._watched: WeakKeyDictionary[Grows, Topic] = WeakKeyDictionary()
        self._lock = threading.Lock()
        self._begun = False

    def watch(self, topic: Topic, user: Grows) -> None:
        """Have `user` told; non-partitioned topics do not grow."""
        if not topic.partitioned:
            return
        with self._lock:
            self._watched[user] = topic
            begun, self._begun = self._begun, True
        if not begun:
            self._scheduler.every(LOOK_EVERY_S, self.look)

    def look(self) -> None:
        """Tell everybody how many partitions their topic has now."""
        with self._lock:
            watched = list(self._watched.items())
        counts: dict[str, int] = {}
        for user, topic in watched:
            deadline = Deadline.after(self._timeout_s)
            try:
                name = str(topic.name)
                if name not in counts:
                    counts[name] = self._node().topics.partitions_now(topic, deadline)
                user.grow(counts[name], deadline)
            except errors.LayerError as failure:  # its own calls tell the user
                _log.info("topic=%s new partitions not seen: %s", topic.name, failure)
