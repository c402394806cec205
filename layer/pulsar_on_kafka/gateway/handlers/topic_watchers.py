"""Watchers notify clients with patterns of new and deleted topics."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, Protocol, TypeVar

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.base.scheduler import Scheduler
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.node.role_rights import Operation, Requirement
from pulsar_on_kafka.exceptions import PulsarException
from pulsar_on_kafka.gateway.handlers.handles import Handles
from pulsar_on_kafka.gateway.handlers.lookups import PERSISTENT, names_of, records_if_any, topics_hash
from pulsar_on_kafka.gateway.handlers.topic_patterns import TopicPattern
from pulsar_on_kafka.gateway.login.client_rights import ClientRights
from pulsar_on_kafka.gateway.protocol.replies import Replies
from pulsar_on_kafka.gateway.protocol.request_queue import Commands, OnError
from pulsar_on_kafka.gateway.tenants.metadata_requests import MetadataRequests
from pulsar_on_kafka.gateway.tenants.served_tenants import ServedTenants
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.metadata.metadata_records import TopicRecord
from pulsar_on_kafka_mapping.wire.command_types import WatchTopicListCloseCommand, WatchTopicListCommand
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type

_log: Final = logging.getLogger(__name__)

MAX_WATCHERS: Final = 100
"""Watchers of one connection."""
_CHECK_INTERVAL_S: Final = 1.0
_LIST_TIMEOUT_S: Final = 10.0

_Item = TypeVar("_Item")

OnChange = Callable[[Sequence[str], Sequence[str], AbstractSet[str]], None]
"""Gets the new names, the deleted names, and all names that match now."""


class TopicSelection(Protocol[_Item]):
    """The topics of a namespace that a watcher gets. Pure."""

    def items(self, records: Sequence[TopicRecord]) -> AbstractSet[_Item]:
        """The parts of these records on which the selection depends."""

    def name(self, item: _Item) -> str | None:
        """The name for the client; None: the item does not match."""


class PatternSelection:
    """Persistent topics that match a pattern. As in Pulsar, a partitioned topic is listed by its partitions."""

    def __init__(self, pattern: str) -> None:
        """Raises MappingError: see `TopicPattern`."""
        self._pattern = TopicPattern(pattern)

    def items(self, records: Sequence[TopicRecord]) -> AbstractSet[str]:
        return frozenset(names_of(records, PERSISTENT))

    def name(self, item: str) -> str | None:
        return item if self._pattern.matches(TopicName.parse(item)) else None


@dataclass(slots=True)
class _Watcher:
    namespace: str
    selection: TopicSelection[Any]
    seen: AbstractSet[Any]
    """The items of the last look."""
    matching: AbstractSet[str]
    on_change: OnChange


class TopicWatchers:
    """Watchers of one gateway, which lists each watched namespace once a second. Thread-safe.

    Memory: the items of each watched namespace, and the matching names of each watcher.
    """

    def __init__(self, tenants: ServedTenants, scheduler: Scheduler) -> None:
        self._tenants = tenants
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self._watchers: dict[object, _Watcher] = {}
        self._begun = False

    def open(
        self, watcher: object, namespace: str, selection: TopicSelection[Any], on_change: OnChange
    ) -> AbstractSet[str]:
        """The names that match now. `on_change` is called by another thread for each change until `close`. Raises
        StoreErrors."""
        items = selection.items(self._records(namespace))
        matching = {name for item in items if (name := selection.name(item)) is not None}
        with self._lock:
            self._watchers[watcher] = _Watcher(namespace, selection, items, matching, on_change)
            begun, self._begun = self._begun, True
        if not begun:
            self._scheduler.every(_CHECK_INTERVAL_S, self._check)
        return matching

    def close(self, watcher: object) -> None:
        with self._lock:
            self._watchers.pop(watcher, None)

    def _records(self, namespace: str) -> Sequence[TopicRecord]:
        node = self._tenants.node_of(namespace.partition("/")[0])
        return records_if_any(node, namespace, Deadline.after(_LIST_TIMEOUT_S))

    def _check(self) -> None:
        with self._lock:
            watchers = list(self._watchers.values())
        for namespace in {each.namespace for each in watchers}:
            try:
                records = self._records(namespace)
            except (LayerError, PulsarException) as failure:
                _log.warning("namespace=%s its watchers get no updates now: %s", namespace, failure)
                continue
            items: dict[type, AbstractSet[Any]] = {}
            for each in watchers:
                if each.namespace == namespace:
                    kind = type(each.selection)
                    if kind not in items:
                        items[kind] = each.selection.items(records)
                    self._notify(each, items[kind])

    def _notify(self, watcher: _Watcher, items: AbstractSet[Any]) -> None:
        if items == watcher.seen:
            return
        selected = watcher.selection.name
        there = {name for item in items - watcher.seen if (name := selected(item)) is not None}
        gone = {name for item in watcher.seen - items if (name := selected(item)) is not None} - there
        new = there - watcher.matching
        watcher.seen = items
        if new or gone:
            watcher.matching = (watcher.matching - gone) | new
            watcher.on_change(sorted(new), sorted(gone), watcher.matching)


@dataclass(eq=False, slots=True)
class _Watch:
    """A watcher of a client: the key of its entry in `TopicWatchers`."""

    operation: Operation


class ClientWatchers:
    """The watchers of one connection. For the event loop. Memory: `MAX_WATCHERS`, see `TopicWatchers`."""

    def __init__(
        self,
        watchers: TopicWatchers,
        metadata: MetadataRequests,
        rights: ClientRights,
        soon: Callable[[Callable[[], None]], None],
    ) -> None:
        """`soon` has the loop call a function, from any thread."""
        self._watchers = watchers
        self._metadata = metadata
        self._rights = rights
        self._soon = soon
        self._open = Handles[_Watch]()

    def __len__(self) -> int:
        return len(self._open)

    def open(
        self,
        watcher_id: int,
        operation: Operation,
        selection: Callable[[], TopicSelection[Any]],
        opened: Callable[[AbstractSet[str]], None],
        changed: OnChange,
        refused: OnError,
    ) -> None:
        """Open a watcher of the operation's namespace, in place of the one with this id. `opened` gets the names that
        match now, then `changed` each change. `selection` may raise MappingError, another thread calls it."""
        if self._open.is_busy(watcher_id):
            refused(ServerError.SERVICE_NOT_READY, f"watcher {watcher_id} is being opened")
            return
        self.close(watcher_id)
        if len(self._open) >= MAX_WATCHERS:
            refused(ServerError.NOT_ALLOWED, f"a connection has {MAX_WATCHERS} watchers at most")
            return
        opening, watcher = self._open.begin(watcher_id), _Watch(operation)
        held: list[Callable[[], None]] = []
        """Updates that precede the reply."""

        def report(new: Sequence[str], gone: Sequence[str], names: AbstractSet[str]) -> None:
            update = partial(changed, new, gone, names)
            self._soon(lambda: update() if self._open.get(watcher_id) is watcher else held.append(update))

        def found(names: AbstractSet[str]) -> None:
            if not self._open.opened(opening, watcher):
                self._watchers.close(watcher)
                return
            opened(names)
            for update in held:
                update()
            self._check_rights_of(watcher_id, watcher)

        def failed(code: ServerError, reason: str) -> None:
            if self._open.failed(opening):
                refused(code, reason)

        def open_it(_: Node) -> AbstractSet[str]:
            return self._watchers.open(watcher, operation.namespace, selection(), report)

        self._metadata.begin(operation.namespace.partition("/")[0], operation, open_it, found, failed)

    def close(self, watcher_id: int) -> None:
        watcher = self._open.get(watcher_id)
        if watcher is None:
            self._open.give_up(watcher_id)
        else:
            self._open.remove(watcher_id, watcher)
            self._watchers.close(watcher)

    def check_rights(self, namespaces: AbstractSet[str]) -> None:
        """End the watchers that permissions in these namespaces no longer allow. Their client polls, and is refused."""
        for watcher_id, watcher in self._open.items():
            if watcher.operation.namespace in namespaces:
                self._check_rights_of(watcher_id, watcher)

    def _check_rights_of(self, watcher_id: int, watcher: _Watch) -> None:
        if not self._rights.still_allows(watcher.operation):
            namespace = watcher.operation.namespace
            _log.info("a watcher of namespace %s ends: its role may not list the topics any more", namespace)
            self.close(watcher_id)

    def end(self) -> Callable[[], None]:
        """The connection has ended: no watcher is opened any more. Returns a function that closes the open ones."""
        left = self._open.end()

        def close() -> None:
            for watcher in left:
                self._watchers.close(watcher)

        return close


class WatchHandler:
    """Handles the watchers of patterns of one connection. For the event loop."""

    def __init__(self, watchers: ClientWatchers, replies: Replies) -> None:
        self._watchers = watchers
        self._replies = replies

    def watch(self, command: WatchTopicListCommand) -> None:
        watcher_id, request_id = command.watcher_id, command.request_id

        def opened(names: AbstractSet[str]) -> None:
            found = topics_hash(names)
            self._replies.send(
                Type.WATCH_TOPIC_LIST_SUCCESS,
                request_id=request_id,
                watcher_id=watcher_id,
                topic=() if command.topics_hash == found else sorted(names),
                topics_hash=found,
            )

        def changed(new: Sequence[str], gone: Sequence[str], names: AbstractSet[str]) -> None:
            self._replies.send(
                Type.WATCH_TOPIC_UPDATE,
                watcher_id=watcher_id,
                new_topics=new,
                deleted_topics=gone,
                topics_hash=topics_hash(names),
            )

        self._watchers.open(
            watcher_id,
            Operation(Requirement.GET_TOPICS, command.namespace, "Client is not authorized to WatchTopicList"),
            lambda: PatternSelection(command.topics_pattern),
            opened,
            changed,
            partial(self._replies.error, request_id),
        )

    def unwatch(self, command: WatchTopicListCloseCommand) -> None:
        self._watchers.close(command.watcher_id)
        self._replies.send(Type.SUCCESS, request_id=command.request_id)

    COMMANDS: ClassVar[Commands] = {Type.WATCH_TOPIC_LIST: watch, Type.WATCH_TOPIC_LIST_CLOSE: unwatch}
