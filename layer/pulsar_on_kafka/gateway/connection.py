"""One client connection: it hands commands to their handlers in order, and closes what they opened when it ends.

A connection works in the event loop, which nothing here blocks: other threads use Kafka (`RequestQueue`). Source:
Pulsar's ServerCnx, 4.0.7.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from typing import Any, ClassVar, Final, cast

from pulsar_on_kafka.gateway.handlers.client_moves import ClientMoves
from pulsar_on_kafka.gateway.handlers.consumers import ConsumerHandler
from pulsar_on_kafka.gateway.handlers.lookups import LookupHandler
from pulsar_on_kafka.gateway.handlers.producers import ProducerHandler
from pulsar_on_kafka.gateway.handlers.schemas import SchemaHandler
from pulsar_on_kafka.gateway.handlers.session import ClientSession, GatewayContext
from pulsar_on_kafka.gateway.handlers.topic_layouts import LayoutHandler
from pulsar_on_kafka.gateway.handlers.topic_owners import TopicOwners
from pulsar_on_kafka.gateway.handlers.topic_watchers import ClientWatchers, WatchHandler
from pulsar_on_kafka.gateway.handlers.transactions import TransactionHandler
from pulsar_on_kafka.gateway.login.client_login import CONNECT_S, SERVER_VERSION, ClientLogin
from pulsar_on_kafka.gateway.login.client_rights import ClientRights
from pulsar_on_kafka.gateway.protocol import keep_alive
from pulsar_on_kafka.gateway.protocol.frame_reader import FrameReader
from pulsar_on_kafka.gateway.protocol.frame_writer import FrameWriter
from pulsar_on_kafka.gateway.protocol.keep_alive import KeepAlive, Verdict
from pulsar_on_kafka.gateway.protocol.replies import Replies
from pulsar_on_kafka.gateway.protocol.request_queue import Commands, RequestQueue
from pulsar_on_kafka.gateway.tenants.metadata_requests import MetadataRequests
from pulsar_on_kafka.gateway.watches.coordinator_watches import CoordinatorWatchHandler
from pulsar_on_kafka.gateway.watches.namespace_watches import NamespaceWatchHandler
from pulsar_on_kafka.gateway.watches.stream_consumers import StreamConsumerHandler
from pulsar_on_kafka_mapping.wire.command_types import AuthResponseCommand, Command, ConnectCommand
from pulsar_on_kafka_mapping.wire.commands import PROTOCOL_VERSION, MalformedCommand, ServerError, Type, parsed
from pulsar_on_kafka_mapping.wire.entries import ENTRY_PADDING_BYTES
from pulsar_on_kafka_mapping.wire.frames import Frame
from pulsar_on_kafka_mapping.wire.repeated_sends import plain_send

_log: Final = logging.getLogger(__name__)

MAX_UNCONNECTED: Final = 1_000
"""Connections of a gateway without a login: one more closes the oldest of them."""
_MAX_CLIENT_VERSION_CHARS: Final = 100
"""Characters of a client's version in the statistics of its producers and consumers."""
_LAST_REPLIES_S: Final = 10.0
"""A client has to read its last replies within this time after its connection was closed."""


class Connections:
    """The connections of one gateway. For the event loop."""

    def __init__(self) -> None:
        self._all: set[Connection] = set()
        self._without_login: dict[Connection, None] = {}
        """The oldest first."""

    def __len__(self) -> int:
        return len(self._all)

    @property
    def without_login(self) -> int:
        return len(self._without_login)

    def all(self) -> list[Connection]:
        return list(self._all)

    def add(self, connection: Connection) -> None:
        self._all.add(connection)
        self._without_login[connection] = None
        if len(self._without_login) > MAX_UNCONNECTED:
            oldest = next(iter(self._without_login))
            oldest.end(f"{MAX_UNCONNECTED} younger connections have not sent CONNECT")

    def expects_no_login(self, connection: Connection) -> None:
        """The connection has logged in, or is being closed."""
        self._without_login.pop(connection, None)

    def remove(self, connection: Connection) -> None:
        self._all.discard(connection)
        self._without_login.pop(connection, None)


class Connection(asyncio.Protocol):
    """Memory: what `FlowControl`, `FrameWriter`, `RequestQueue` and the handlers say."""

    transport: asyncio.Transport
    reader: FrameReader
    writer: FrameWriter
    _replies: Replies
    _login: ClientLogin
    _session: ClientSession
    _timer: asyncio.TimerHandle
    """The timer of the login, then of the keep-alive."""

    def __init__(self, context: GatewayContext, connections: Connections) -> None:
        self._context = context
        self._connections = connections
        self.ended = asyncio.Event()
        self._keep_alive = KeepAlive()

    # The socket ---------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        context, loop = self._context, self._context.loop
        self.transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self._name = f"{peer[0]}:{peer[1]}" if peer else "?"
        self.writer = writer = FrameWriter(loop, self.transport, self._continue_writing)
        self.reader = reader = FrameReader(
            loop, context.soon, self.transport, lambda: writer.congested, self._handle, self.end
        )
        self._replies = replies = Replies(writer)
        self._login = login = ClientLogin(
            context.access, self._now_s, loop.call_later, transport.get_extra_info("peercert"), replies, self.end
        )
        self.requests = requests = RequestQueue(context.pool, context.soon, lambda: not writer.congested)
        rights = ClientRights(context.authorization, login, requests)
        owners = TopicOwners(context.sharing, context.tenants, context.address, requests, reader.flow)
        metadata = MetadataRequests(context.tenants, rights, requests)
        self._moves = ClientMoves(loop, context.tenants, requests, replies, self._name)
        self._session = session = ClientSession(
            self._name, context, reader, writer, replies, requests, login, rights, owners, self._moves
        )
        self.producers = ProducerHandler(session)
        self.consumers = ConsumerHandler(session)
        self.watchers = ClientWatchers(context.watchers, metadata, rights, context.soon)
        self.watches = ClientWatchers(context.watchers, metadata, rights, context.soon)
        self.layouts = LayoutHandler(context.node, context.layouts, replies, requests, rights, owners, context.soon)
        self._coordinators = CoordinatorWatchHandler(context.transactions, replies, requests, owners)
        self.streams = StreamConsumerHandler(session, self.end)
        self._handlers = (
            self,
            self.producers,
            self.consumers,
            self.streams,
            WatchHandler(self.watchers, replies),
            NamespaceWatchHandler(self.watches, replies),
            self.layouts,
            self._coordinators,
            LookupHandler(context.tenants, replies, metadata, rights, owners),
            SchemaHandler(context.node, replies, requests, metadata, rights),
            TransactionHandler(context.transactions, replies, requests, login, rights, self._name),
        )
        self._timer = loop.call_later(CONNECT_S, self._require_login)
        self._connections.add(self)

    def _now_s(self) -> float:
        return self._context.node.clock.known_now_ms() / 1000

    def data_received(self, data: bytes) -> None:
        if self.reader.receive(data):
            self._keep_alive.has_received = True

    def pause_writing(self) -> None:
        self.writer.pause()
        self.transport.pause_reading()  # or the replies would become more

    def resume_writing(self) -> None:
        self.writer.resume()

    def _continue_writing(self) -> None:
        self.consumers.wake_members()
        self.requests.begin_waiting()
        self.reader.read_if_possible()

    def connection_lost(self, failure: Exception | None) -> None:
        self.reader.flow.close()
        self._timer.cancel()
        self._login.close()
        self._connections.remove(self)
        closes = [
            handler.end()
            for handler in (
                self.watchers, self.watches, self.layouts, self.streams, self.producers, self.consumers,
            )
        ]  # fmt: skip
        self._coordinators.end()
        self.requests.end()
        self._moves.end()
        self.ended.set()
        for close in closes:
            close()

    def end(self, reason: str) -> None:
        """Close the connection after the replies that were sent before. Later frames are dropped."""
        _log.info("connection=%s is closed: %s", self._name, reason)
        self.reader.flow.close()
        self._connections.expects_no_login(self)
        if not self.transport.is_closing():
            self.writer.write()
            self.transport.close()
            self._context.loop.call_later(_LAST_REPLIES_S, self.abort)

    def abort(self) -> None:
        """Close the connection at once, also if the client has replies to read."""
        self.transport.abort()

    def _check_keep_alive(self) -> None:
        flow = self.reader.flow
        if flow.is_closed:
            return
        waiting, taken = self.writer.progress()
        verdict = self._keep_alive.judge(is_read=not (flow.is_full or flow.is_busy), waiting=waiting, taken=taken)
        if verdict is Verdict.PING:
            self._replies.send(Type.PING)
        elif verdict is not Verdict.CONTINUE:
            self.end(verdict.value)
            return
        self._timer = self._context.loop.call_later(keep_alive.INTERVAL_S, self._check_keep_alive)

    # Commands -----------------------------------------------------------------------------------------------------

    def _handle(self, each: Frame) -> None:
        logged_in = self._login.current is not None
        if logged_in and (plain := plain_send(each.command)) and self.producers.send_repeated(*plain, each.entry):
            return
        kind, command = parsed(each.command)
        if not logged_in and kind is not Type.CONNECT:
            raise MalformedCommand(f"the first command is {kind.name}, expected CONNECT")
        if kind is Type.SEND:
            self.producers.send(command, each)
            return
        found = _METHODS.get(kind)
        if found is None:
            self._refuse(kind, command)
        else:
            handler, method = found
            method(self._handlers[handler], command)

    def _refuse(self, kind: Type, command: Any) -> None:
        request_id = getattr(command, "request_id", None)
        if request_id is None:
            raise MalformedCommand(f"clients do not send {kind.name}")
        self._replies.error(request_id, ServerError.NOT_ALLOWED, f"{kind.name}: not served by this gateway")

    def _connect(self, command: ConnectCommand) -> None:
        self._session.version = command.client_version[:_MAX_CLIENT_VERSION_CHARS]
        if not self._login.connect(command):
            return
        self._connections.expects_no_login(self)
        self.reader.accept_large_frames(self._context.max_message_bytes + ENTRY_PADDING_BYTES)
        self._timer.cancel()
        self._timer = self._context.loop.call_later(keep_alive.INTERVAL_S, self._check_keep_alive)
        role, version = self._login.role, min(command.protocol_version, PROTOCOL_VERSION)
        self._moves.connect(command.client_version, version)
        _log.debug("connection=%s role=%s client=%s version=%d", self._name, role, command.client_version, version)
        self._replies.send(
            Type.CONNECTED,
            server_version=SERVER_VERSION,
            protocol_version=version,
            max_message_size=self._context.max_message_bytes,
            feature_flags={
                "supports_topic_watchers": True,
                "supports_get_partitioned_metadata_without_auto_creation": True,
                "supports_scalable_topics": True,
                "supports_tc_metadata_discovery": True,
            },
        )

    def _require_login(self) -> None:
        if self._login.current is None:
            self.end(f"no CONNECT in {CONNECT_S:g} s")

    def _renew_login(self, command: AuthResponseCommand) -> None:
        self._login.renew(command)

    def _ping(self, command: Command) -> None:
        self._replies.send(Type.PONG)

    def _pong(self, command: Command) -> None:
        """Any frame proves that the client is alive."""

    # The gateway --------------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Move the client's producers and consumers of topics that another gateway serves."""
        self.producers.follow()
        self.consumers.follow()
        self._coordinators.follow()
        if self._login.current is not None and self._context.sharing.is_disconnected():  # also without any of these
            self.end("this gateway is disconnected from Kafka, and others serve its topics")

    def follow_tenants(self) -> None:
        """Move the client's producers and consumers of tenants that this cluster does not serve any more."""
        self.producers.follow_tenants()
        self.consumers.follow_tenants()

    @property
    def moves(self) -> AbstractSet[asyncio.Task[None]]:
        """Producers and consumers that are being closed, for their client to open them at another gateway."""
        return self._moves.under_way

    def unload(self, topics: AbstractSet[str]) -> list[Future[None]]:
        """Have the client open its producers and consumers of these topics anew. Each future is settled when the client
        knows."""
        if self.reader.flow.is_closed:
            return []
        return [*self.producers.unload(topics), *self.consumers.unload(topics)]

    def topics(self) -> set[str]:
        """The topics and partitions of the client's producers and consumers."""
        producers = {producer.topic for _, producer in self.producers.handles.items()}
        return producers | {consumer.endpoint.topic for _, consumer in self.consumers.handles.items()}

    def check_rights(self, namespaces: AbstractSet[str]) -> None:
        """Permissions in these namespaces have changed: close what they no longer allow."""
        self.producers.check_rights(namespaces)
        self.consumers.check_rights(namespaces)
        self.streams.check_rights(namespaces)
        self.watchers.check_rights(namespaces)
        self.watches.check_rights(namespaces)
        self.layouts.check_rights(namespaces)

    def note_rates(self) -> None:
        """Note the rates of the interval that has just ended."""
        now_s = self._context.node.clock.monotonic()
        self.producers.note_rates(now_s)
        self.consumers.note_rates(now_s)

    COMMANDS: ClassVar[Commands] = {
        Type.CONNECT: _connect,
        Type.AUTH_RESPONSE: _renew_login,
        Type.PING: _ping,
        Type.PONG: _pong,
    }


_TABLES: Final = (
    Connection.COMMANDS,
    ProducerHandler.COMMANDS,
    ConsumerHandler.COMMANDS,
    StreamConsumerHandler.COMMANDS,
    WatchHandler.COMMANDS,
    NamespaceWatchHandler.COMMANDS,
    LayoutHandler.COMMANDS,
    CoordinatorWatchHandler.COMMANDS,
    LookupHandler.COMMANDS,
    SchemaHandler.COMMANDS,
    TransactionHandler.COMMANDS,
)
"""In the order of `Connection._handlers`."""
_METHODS: Final = {kind: (place, method) for place, table in enumerate(_TABLES) for kind, method in table.items()}
"""The method that handles each command, and the place of its object in `Connection._handlers`."""
