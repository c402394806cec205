"""Watches of V5 clients, which get the topics of a namespace by their properties, and each change.

A V5 client consumes from a namespace as from each of its topics. Differs from Pulsar, whose watches only have scalable
topics: all persistent topics are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import ClassVar

from pulsar_on_kafka.broker.node.role_rights import Operation, Requirement
from pulsar_on_kafka.gateway.handlers.lookups import topics_hash
from pulsar_on_kafka.gateway.handlers.topic_watchers import ClientWatchers
from pulsar_on_kafka.gateway.protocol.replies import Replies
from pulsar_on_kafka.gateway.protocol.request_queue import Commands
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.routing.topic_layouts import scalable_name
from pulsar_on_kafka_mapping.state.metadata.metadata_records import TopicRecord
from pulsar_on_kafka_mapping.wire.command_types import WatchScalableTopicsCloseCommand, WatchScalableTopicsCommand
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type

_Item = tuple[str, frozenset[tuple[str, str]]]
"""The name of a topic, and its properties."""


class PropertySelection:
    """Persistent topics that have all of these properties, by their names in the domain `topic`."""

    def __init__(self, required: AbstractSet[tuple[str, str]]) -> None:
        self._required = required

    def items(self, records: Sequence[TopicRecord]) -> AbstractSet[_Item]:
        return frozenset((each.name, frozenset(each.properties.items())) for each in records)

    def name(self, item: _Item) -> str | None:
        text, properties = item
        name = TopicName.parse(text)
        return scalable_name(name) if name.is_persistent and self._required <= properties else None


class NamespaceWatchHandler:
    """Handles the namespace watches of one connection. For the event loop."""

    def __init__(self, watchers: ClientWatchers, replies: Replies) -> None:
        self._watchers = watchers
        self._replies = replies

    def watch(self, command: WatchScalableTopicsCommand) -> None:
        kind, watch_id = Type.WATCH_SCALABLE_TOPICS_UPDATE, command.watch_id

        def opened(names: AbstractSet[str]) -> None:
            """A client that has these names already gets no snapshot."""
            if not command.HasField("current_hash") or command.current_hash != topics_hash(names):
                self._replies.send(kind, watch_id=watch_id, snapshot={"topics": sorted(names)})

        def changed(new: Sequence[str], gone: Sequence[str], _: AbstractSet[str]) -> None:
            self._replies.send(kind, watch_id=watch_id, diff={"added": new, "removed": gone})

        def refused(code: ServerError, reason: str) -> None:
            self._replies.send(kind, watch_id=watch_id, error=code, message=reason)

        required = frozenset((each.key, each.value) for each in command.property_filters)
        words = "Client is not authorized to WatchScalableTopics"
        operation = Operation(Requirement.GET_TOPICS, command.namespace, words)
        self._watchers.open(watch_id, operation, lambda: PropertySelection(required), opened, changed, refused)

    def unwatch(self, command: WatchScalableTopicsCloseCommand) -> None:
        """Close a watch. A V5 client also sends this for a watch that was refused."""
        self._watchers.close(command.watch_id)

    COMMANDS: ClassVar[Commands] = {
        Type.WATCH_SCALABLE_TOPICS: watch,
        Type.WATCH_SCALABLE_TOPICS_CLOSE: unwatch,
    }
