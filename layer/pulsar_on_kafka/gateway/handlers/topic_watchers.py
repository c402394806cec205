"""Clients with patterns are told of topics that come and go."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.base.scheduler import Scheduler
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.gateway.handlers.lookups import PERSISTENT, topics_if_any
from pulsar_on_kafka.gateway.handlers.topic_patterns import TopicPattern
from pulsar_on_kafka_mapping.names.topic_name import TopicName

_log: Final = logging.getLogger(__name__)

_LOOK_S: Final = 1.0
_ANSWER_S: Final = 10.0

Told = Callable[[Sequence[str], Sequence[str], AbstractSet[str]], None]
"""Gets the names that are new, those that are gone, and all that match now."""


@dataclass(slots=True)
class _Watcher:
    namespace: str
    pattern: TopicPattern
    seen: AbstractSet[str]
    matching: AbstractSet[str]
    told: Told


class TopicWatchers:
    """Those of one gateway. Thread-safe. While there are any it looks once a second, at each namespace once.

    Memory: the names of the topics of each namespace that is watched, and those that match for each watcher.
    """

    def __init__(self, node: Node, scheduler: Scheduler) -> None:
        self._node = node
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self._watchers: dict[object, _Watcher] = {}
        self._begun = False

    def open(self, watcher: object, namespace: str, pattern: str, told: Told) -> AbstractSet[str]:
        """What matches now; `told` is called, by another thread, when that changes, until `close` of the same
        `watcher`. As in Pulsar persistent topics alone.

        Raises:
            MappingError: see `TopicPattern`. StoreErrors.
        """
        made = TopicPattern(pattern)
        names = self._names(namespace)
        matching = {name for name in names if made.matches(TopicName.parse(name))}
        with self._lock:
            self._watchers[watcher] = _Watcher(namespace, made, names, matching, told)
            begun, self._begun = self._begun, True
        if not begun:
            self._scheduler.every(_LOOK_S, self._look)
        return matching

    def close(self, watcher: object) -> None:
        with self._lock:
            self._watchers.pop(watcher, None)

    def _names(self, namespace: str) -> AbstractSet[str]:
        return frozenset(topics_if_any(self._node, namespace, PERSISTENT, Deadline.after(_ANSWER_S)))

    def _look(self) -> None:
        with self._lock:
            watchers = list(self._watchers.values())
        for namespace in {each.namespace for each in watchers}:
            try:
                names = self._names(namespace)
            except LayerError as failure:
                _log.warning("namespace=%s its watchers are not told now: %s", namespace, failure)
                continue
            for each in watchers:
                if each.namespace == namespace and names != each.seen:
                    self._tell(each, names)

    def _tell(self, watcher: _Watcher, names: AbstractSet[str]) -> None:
        new = {name for name in names - watcher.seen if watcher.pattern.matches(TopicName.parse(name))}
        gone = watcher.matching - names
        watcher.seen = names
        if new or gone:
            watcher.matching = (watcher.matching - gone) | new
            watcher.told(sorted(new), sorted(gone), watcher.matching)
