"""Sessions of Pulsar 5's V5 clients, which look up the layout of a topic and get each later one.

A segment is a partition of the topic. Pulsar's clients open an ordinary producer or consumer for each segment. Source:
the traces of V5 clients with a broker of Pulsar 5.0.1.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final, NamedTuple

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.topic_watch import TopicWatch
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.node.role_rights import Operation, Requirement, on_topic
from pulsar_on_kafka.gateway.fleet.bundles import bundle_of
from pulsar_on_kafka.gateway.handlers.client_moves import address_field
from pulsar_on_kafka.gateway.handlers.handles import Handles
from pulsar_on_kafka.gateway.handlers.topic_owners import TopicOwners
from pulsar_on_kafka.gateway.login.client_rights import ClientRights
from pulsar_on_kafka.gateway.protocol.replies import Replies
from pulsar_on_kafka.gateway.protocol.request_queue import Commands, RequestQueue, operation_deadline
from pulsar_on_kafka.gateway.streams.layout_lookup import find_layout
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.routing.topic_layouts import TopicLayout, layout_epoch, topic_layout
from pulsar_on_kafka_mapping.state.metadata.metadata_records import LifeState
from pulsar_on_kafka_mapping.wire.command_types import ScalableTopicCloseCommand, ScalableTopicLookupCommand
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type, command
from pulsar_on_kafka_mapping.wire.frames import frame
from pulsar_on_kafka_mapping.wire.scalable_messages import TLS_SUFFIX, SegmentState

_log: Final = logging.getLogger(__name__)

MAX_SESSIONS: Final = 10_000
"""Layout sessions of one connection; one more is refused (TooManyRequests)."""


@dataclass(eq=False)
class LayoutSession:
    """One session of a client. `epoch` is that of the last layout that was passed to `changed`, or of the first; it is
    -1 if that layout could not be sent. `sent` is that of the last layout that was sent."""

    topic: TopicName
    epoch: int
    changed: Callable[[PlacedLayout], None]
    sent: int = -1


class PlacedLayout(NamedTuple):
    """A layout with the bundle of its topic, then those of its segments."""

    layout: TopicLayout
    bundles: Sequence[int]


def placed_layout(layout: TopicLayout) -> PlacedLayout:
    """Not for the event loop: a topic may have thousands of partitions."""
    names = (layout.topic, *(each.topic for each in layout.segments))
    return PlacedLayout(layout, [bundle_of(str(name)) for name in names])


def report_layouts(
    node: Node, watched: Sequence[tuple[LayoutSession, Topic]], deadline: Callable[[], Deadline]
) -> None:
    """One look at the topics of these sessions, for a `TopicWatch`. Reads the state topic `topics`, so the growth of a
    bound Kafka topic is reported when its client looks the layout up again. `deadline` gives a new one for each call to
    the cluster."""
    records = node.topics.records.of({session.topic for session, _ in watched}, deadline())
    changed: dict[TopicName, PlacedLayout] = {}
    for session, _ in watched:
        record = records[session.topic]
        if record is None or record.state is not LifeState.ACTIVE:
            continue
        if layout_epoch(session.topic, record.partitions, record.incarnation) <= session.epoch:
            continue
        placed = changed.get(session.topic)
        if placed is None:
            placed = changed[session.topic] = placed_layout(
                topic_layout(session.topic, record.partitions, record.incarnation)
            )
        session.epoch = placed.layout.epoch
        session.changed(placed)


class LayoutHandler:
    """Handles the layout sessions of one connection. For the event loop.

    Memory: `MAX_SESSIONS` names of topics.
    """

    def __init__(
        self,
        node: Node,
        watch: TopicWatch[LayoutSession],
        replies: Replies,
        requests: RequestQueue,
        rights: ClientRights,
        owners: TopicOwners,
        soon: Callable[[Callable[[], None]], None],
    ) -> None:
        """`soon` has the loop call a function, from any thread."""
        self._node = node
        self._watch = watch
        self._replies = replies
        self._requests = requests
        self._rights = rights
        self._owners = owners
        self._soon = soon
        self._open = Handles[LayoutSession]()

    def __len__(self) -> int:
        return len(self._open)

    def look_up(self, command: ScalableTopicLookupCommand) -> None:
        session_id = command.session_id
        if self._open.is_busy(session_id):
            self._refuse(session_id, ServerError.SERVICE_NOT_READY, f"layout session {session_id} is being opened")
            return
        self._close(session_id)
        if len(self._open) >= MAX_SESSIONS:
            reason = f"a connection has {MAX_SESSIONS} layout sessions at most"
            self._refuse(session_id, ServerError.TOO_MANY_REQUESTS, reason)
            return
        opening = self._open.begin(session_id)

        def refused(code: ServerError, reason: str) -> None:
            if self._open.failed(opening):
                self._refuse(session_id, code, reason)

        def look() -> tuple[Topic, PlacedLayout]:
            found = find_layout(self._node, command.topic, operation_deadline(), create=command.create_if_missing)
            return found.topic, placed_layout(found.layout)

        def found(each: tuple[Topic, PlacedLayout]) -> None:
            topic, placed = each
            session = LayoutSession(placed.layout.topic, placed.layout.epoch, lambda _: None)
            session.changed = lambda newer: self._soon(partial(self._send, session_id, session, newer))
            if not self._open.opened(opening, session):
                return
            self._watch.watch(topic, session)
            self._send(session_id, session, placed)
            self._check_rights_of(session_id, session)

        def allowed() -> None:
            if self._owners.refuses(command.topic, refused):
                return
            self._requests.begin(look, found, refused, topic=command.topic)

        self._rights.require_on(Requirement.LOOKUP, command.topic, _WORDS, allowed, refused)

    def close(self, command: ScalableTopicCloseCommand) -> None:
        self._close(command.session_id)

    def _refuse(self, session_id: int, code: ServerError, reason: str) -> None:
        self._replies.send(Type.SCALABLE_TOPIC_UPDATE, session_id=session_id, error=code, message=reason)

    def _send(self, session_id: int, session: LayoutSession, placed: PlacedLayout) -> None:
        """Send a layout unless a newer one was sent. A thread encodes it: it may have thousands of segments."""

        def send(frame: bytes) -> None:
            if self._open.get(session_id) is session and placed.layout.epoch >= session.sent:
                session.sent = placed.layout.epoch
                self._replies.send_frame(frame)

        def refused(code: ServerError, reason: str) -> None:
            """Too many requests: the next look at the topic sends the layout."""
            _log.info("topic=%s a layout is sent later: %s", session.topic, reason)
            session.epoch = -1

        def found(urls: Mapping[int, str]) -> None:
            self._requests.begin(partial(encoded_update, session_id, placed, urls), send, refused)

        self._owners.find_each(set(placed.bundles), found)

    def _close(self, session_id: int) -> None:
        session = self._open.get(session_id)
        if session is None:
            self._open.give_up(session_id)
        else:
            self._open.remove(session_id, session)
            self._watch.unwatch(session)

    def check_rights(self, namespaces: AbstractSet[str]) -> None:
        """End the sessions that permissions in these namespaces no longer allow."""
        for session_id, session in self._open.items():
            if session.topic.namespace_name in namespaces:
                self._check_rights_of(session_id, session)

    def _check_rights_of(self, session_id: int, session: LayoutSession) -> None:
        if not self._rights.still_allows(_operation(session.topic)):
            _log.info("a layout session of topic %s ends: its role may not look it up any more", session.topic)
            self._close(session_id)

    def end(self) -> Callable[[], None]:
        """The connection has ended: no session is opened any more. Returns a function that closes the open ones."""
        left = self._open.end()

        def close() -> None:
            for session in left:
                self._watch.unwatch(session)

        return close

    COMMANDS: ClassVar[Commands] = {Type.SCALABLE_TOPIC_LOOKUP: look_up, Type.SCALABLE_TOPIC_CLOSE: close}


_WORDS: Final = "Client is not authorized to Lookup"


def _operation(topic: TopicName) -> Operation:
    return on_topic(Requirement.LOOKUP, topic, _WORDS)


def encoded_update(session_id: int, placed: PlacedLayout, urls: Mapping[int, str]) -> bytes:
    """The frame of a layout, with all fields that V5 clients require. `urls` has the gateway of each bundle, '' for an
    unknown one."""
    layout = placed.layout
    controller, *brokers = [urls[bundle] for bundle in placed.bundles]
    dag = {
        "epoch": layout.epoch,
        "segments": [
            {
                "segment_id": each.segment_id,
                "hash_start": each.hash_start,
                "hash_end": each.hash_end,
                "state": SegmentState.ACTIVE,
                "created_at_epoch": 0,
                "created_at_ms": 0,
                "legacy_topic_name": str(each.topic),
            }
            for each in layout.segments
        ],
        "segment_brokers": [
            {"segment_id": each.segment_id, "broker_url": "", **address_field("broker_url", url, TLS_SUFFIX)}
            for each, url in zip(layout.segments, brokers, strict=True)
            if url
        ],
        **(address_field("controller_broker_url", controller, TLS_SUFFIX) if controller else {}),
    }
    name = layout.resolved_name
    return frame(command(Type.SCALABLE_TOPIC_UPDATE, session_id=session_id, dag=dag, resolved_topic_name=name))
