"""Watchers notify clients with patterns of new and deleted topics."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.base.scheduler import Scheduler
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.gateway.handlers.handles import Handles
from pulsar_on_kafka.gateway.handlers.lookups import PERSISTENT, topics_hash, topics_if_any
from pulsar_on_kafka.gateway.handlers.topic_patterns import TopicPattern
from pulsar_on_kafka.gateway.login.authorization import Operation, Requirement
from pulsar_on_kafka.gateway.login.client_rights import ClientRights
from pulsar_on_kafka.gateway.protocol.replies import Replies
from pulsar_on_kafka.gateway.protocol.request_queue import Commands, RequestQueue
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.wire.command_types import WatchTopicListCloseCommand, WatchTopicListCommand
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type

_log: Final = logging.getLogger(__name__)

MAX_WATCHERS: Final = 100
"""Watchers of one connection."""
_CHECK_INTERVAL_S: Final = 1.0
_LIST_TIMEOUT_S: Final = 10.0

OnChange = Callable[[Sequence[str], Sequence[str], AbstractSet[str]], None]
"""Gets the new names, the deleted names, and all names that match now."""


@dataclass(slots=True)
class _Watcher:
    namespace: str
    pattern: TopicPattern
    seen: AbstractSet[str]
    matching: AbstractSet[str]
    on_change: OnChange


class TopicWatchers:
    """Watchers of one gateway, which lists each watched namespace once a second. Thread-safe.

    Memory: the topic names of each watched namespace, and the matching names of each watcher.
    """

    def __init__(self, node: Node, scheduler: Scheduler) -> None:
        self._node = node
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self._watchers: dict[object, _Watcher] = {}
        self._begun = False

    def open(self, watcher: object, namespace: str, pattern: str, on_change: OnChange) -> AbstractSet[str]:
        """The names that match now. `on_change` is called by another thread for each change until `close`. As in
        Pulsar only persistent topics match.

        Raises:
            MappingError: see `TopicPattern`. StoreErrors.
        """
        made = TopicPattern(pattern)
        names = self._names(namespace)
        matching = {name for name in names if made.matches(TopicName.parse(name))}
        with self._lock:
            self._watchers[watcher] = _Watcher(namespace, made, names, matching, on_change)
            begun, self._begun = self._begun, True
        if not begun:
            self._scheduler.every(_CHECK_INTERVAL_S, self._check)
        return matching

    def close(self, watcher: object) -> None:
        with self._lock:
            self._watchers.pop(watcher, None)

    def _names(self, namespace: str) -> AbstractSet[str]:
        return frozenset(topics_if_any(self._node, namespace, PERSISTENT, Deadline.after(_LIST_TIMEOUT_S)))

    def _check(self) -> None:
        with self._lock:
            watchers = list(self._watchers.values())
        for namespace in {each.namespace for each in watchers}:
            try:
                names = self._names(namespace)
            except LayerError as failure:
                _log.warning("namespace=%s its watchers get no updates now: %s", namespace, failure)
                continue
            for each in watchers:
                if each.namespace == namespace and names != each.seen:
                    self._notify(each, names)

    def _notify(self, watcher: _Watcher, names: AbstractSet[str]) -> None:
        new = {name for name in names - watcher.seen if watcher.pattern.matches(TopicName.parse(name))}
        gone = watcher.matching - names
        watcher.seen = names
        if new or gone:
            watcher.matching = (watcher.matching - gone) | new
            watcher.on_change(sorted(new), sorted(gone), watcher.matching)


@dataclass(eq=False, slots=True)
class _Watch:
    """A watcher of a client: the key of its entry in `TopicWatchers`."""

    namespace: str


class WatchHandler:
    """Handles the watchers of one connection. For the event loop."""

    def __init__(
        self,
        watchers: TopicWatchers,
        replies: Replies,
        requests: RequestQueue,
        rights: ClientRights,
        soon: Callable[[Callable[[], None]], None],
    ) -> None:
        """`soon` has the loop call a function, from any thread."""
        self._watchers = watchers
        self._replies = replies
        self._requests = requests
        self._rights = rights
        self._soon = soon
        self._open = Handles[_Watch]()

    def __len__(self) -> int:
        return len(self._open)

    def watch(self, command: WatchTopicListCommand) -> None:
        watcher_id, request_id = command.watcher_id, command.request_id
        if self._open.is_busy(watcher_id):
            reason = f"watcher {watcher_id} is being opened"
            self._replies.error(request_id, ServerError.SERVICE_NOT_READY, reason)
            return
        self._close(watcher_id)
        if len(self._open) >= MAX_WATCHERS:
            reason = f"a connection has {MAX_WATCHERS} watchers at most"
            self._replies.error(request_id, ServerError.NOT_ALLOWED, reason)
            return
        opening, watcher = self._open.begin(watcher_id), _Watch(command.namespace)
        held: list[Callable[[], None]] = []
        """Updates that precede the reply."""

        def changed(new: Sequence[str], gone: Sequence[str], names: AbstractSet[str]) -> None:
            update = partial(
                self._replies.send,
                Type.WATCH_TOPIC_UPDATE,
                watcher_id=watcher_id,
                new_topics=new,
                deleted_topics=gone,
                topics_hash=topics_hash(names),
            )
            self._soon(lambda: update() if self._open.get(watcher_id) is watcher else held.append(update))

        def opened(names: AbstractSet[str]) -> None:
            if not self._open.opened(opening, watcher):
                self._watchers.close(watcher)
                return
            found = topics_hash(names)
            self._replies.send(
                Type.WATCH_TOPIC_LIST_SUCCESS,
                request_id=request_id,
                watcher_id=watcher_id,
                topic=() if command.topics_hash == found else sorted(names),
                topics_hash=found,
            )
            for update in held:
                update()
            self._check_rights_of(watcher_id, watcher)

        def refused(code: ServerError, reason: str) -> None:
            if self._open.failed(opening):
                self._replies.error(request_id, code, reason)

        def allowed() -> None:
            open_it = partial(self._watchers.open, watcher, command.namespace, command.topics_pattern, changed)
            self._requests.begin(open_it, opened, refused)

        self._rights.require(_operation(command.namespace), allowed, refused)

    def unwatch(self, command: WatchTopicListCloseCommand) -> None:
        self._close(command.watcher_id)
        self._replies.send(Type.SUCCESS, request_id=command.request_id)

    def _close(self, watcher_id: int) -> None:
        watcher = self._open.get(watcher_id)
        if watcher is None:
            self._open.give_up(watcher_id)
        else:
            self._open.remove(watcher_id, watcher)
            self._watchers.close(watcher)

    def check_rights(self, namespaces: AbstractSet[str]) -> None:
        """End the watchers that permissions in these namespaces no longer allow. Their client polls, and is refused."""
        for watcher_id, watcher in self._open.items():
            if watcher.namespace in namespaces:
                self._check_rights_of(watcher_id, watcher)

    def _check_rights_of(self, watcher_id: int, watcher: _Watch) -> None:
        if not self._rights.still_allows(_operation(watcher.namespace)):
            _log.info("a watcher of namespace %s ends: its role may not list the topics any more", watcher.namespace)
            self._close(watcher_id)

    def end(self) -> Callable[[], None]:
        """The connection has ended: no watcher is opened any more. Returns a function that closes the open ones."""
        left = self._open.end()

        def close() -> None:
            for watcher in left:
                self._watchers.close(watcher)

        return close

    COMMANDS: ClassVar[Commands] = {Type.WATCH_TOPIC_LIST: watch, Type.WATCH_TOPIC_LIST_CLOSE: unwatch}


def _operation(namespace: str) -> Operation:
    return Operation(Requirement.GET_TOPICS, namespace, "Client is not authorized to WatchTopicList")
