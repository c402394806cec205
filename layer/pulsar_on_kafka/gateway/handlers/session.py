"""The gateway's services and the session of a client, which the handlers of a connection get."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from pulsar_on_kafka.broker.metadata.topic_watch import TopicWatch
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.client.connection.session import FollowsPolicies
from pulsar_on_kafka.gateway.fleet.membership import FleetMembership
from pulsar_on_kafka.gateway.handlers.client_moves import ClientMoves
from pulsar_on_kafka.gateway.handlers.entry_encoder import OutgoingEntries
from pulsar_on_kafka.gateway.handlers.exclusive_queue import WaitingProducers
from pulsar_on_kafka.gateway.handlers.rate_meter import Meter
from pulsar_on_kafka.gateway.handlers.topic_layouts import LayoutSession
from pulsar_on_kafka.gateway.handlers.topic_owners import TopicOwners
from pulsar_on_kafka.gateway.handlers.topic_watchers import TopicWatchers
from pulsar_on_kafka.gateway.handlers.transactions import GatewayTransactions, RoleTransactions
from pulsar_on_kafka.gateway.handlers.wire_consumer import WireConsumer
from pulsar_on_kafka.gateway.login.access import GatewayAccess
from pulsar_on_kafka.gateway.login.authorization import Authorization
from pulsar_on_kafka.gateway.login.client_login import ClientLogin
from pulsar_on_kafka.gateway.login.client_rights import ClientRights
from pulsar_on_kafka.gateway.protocol.fair_pool import FairPool
from pulsar_on_kafka.gateway.protocol.frame_reader import FrameReader
from pulsar_on_kafka.gateway.protocol.frame_writer import FrameWriter
from pulsar_on_kafka.gateway.protocol.replies import Replies
from pulsar_on_kafka.gateway.protocol.request_queue import RequestQueue
from pulsar_on_kafka.gateway.streams.stream_controller import StreamController
from pulsar_on_kafka.gateway.tenants.former_ids import FormerIds
from pulsar_on_kafka.gateway.tenants.served_tenants import ServedTenants
from pulsar_on_kafka.kafka.settings import MAX_MESSAGE_BYTES
from pulsar_on_kafka_mapping.wire.commands import ServerError

_log: Final = logging.getLogger(__name__)

MAX_OPEN: Final = 10_000
"""Producers of one connection, and consumers."""


@dataclass(frozen=True, slots=True)
class GatewayContext:
    """Services that the connections of a gateway share."""

    node: Node
    loop: asyncio.AbstractEventLoop
    pool: FairPool
    sharing: FleetMembership
    tenants: ServedTenants
    address: str
    """The URL that clients connect to."""
    access: GatewayAccess
    transactions: GatewayTransactions
    policies: TopicWatch[FollowsPolicies]
    """Informs producers about the policies of their topics."""
    ends: TopicWatch[WireConsumer]
    """Reports the ends of terminated topics to consumers."""
    layouts: TopicWatch[LayoutSession]
    """Reports new layouts of topics to V5 clients."""
    streams: StreamController
    """Assigns segments to V5 consumers."""
    watchers: TopicWatchers
    waiting: WaitingProducers
    former_ids: FormerIds
    authorization: Authorization | None = None
    """None: each role may produce and consume everything."""
    max_message_bytes: int = MAX_MESSAGE_BYTES
    """The limit in CONNECTED, above which clients chunk messages."""
    entries: OutgoingEntries = field(default_factory=OutgoingEntries)

    def soon(self, call: Callable[[], None]) -> None:
        """Have the loop call a function. Any thread."""
        try:
            self.loop.call_soon_threadsafe(call)
        except RuntimeError:
            _log.debug("a callback came after the end of the gateway's loop")


@dataclass(slots=True)
class ClientSession:
    """One client, as the handlers of its connection use it. For the event loop."""

    name: str
    """Host and port."""
    context: GatewayContext
    reader: FrameReader
    writer: FrameWriter
    replies: Replies
    requests: RequestQueue
    login: ClientLogin
    rights: ClientRights
    owners: TopicOwners
    moves: ClientMoves
    version: str = ""
    """Kind and version of the client, by its own words."""

    def meter(self) -> Meter:
        clock = self.context.node.clock
        return Meter(self.name, clock.known_now_ms, clock.monotonic(), self.version)

    @property
    def transactions(self) -> RoleTransactions:
        return RoleTransactions(self.context.transactions, self.login.role)

    def refuse_opening(self, what: str, request_id: int, code: ServerError, reason: str) -> None:
        """Reply with an error to a request to open `what`."""
        _log.info("connection=%s %.300r is not opened: %.600r", self.name, what, reason)
        self.replies.error(request_id, code, reason)
