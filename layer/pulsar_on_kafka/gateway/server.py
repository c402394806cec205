"""A gateway listens, with one event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import ConnectFailed, DeadlineExceeded, InvalidOption
from pulsar_on_kafka.base.http_server import ServerTls
from pulsar_on_kafka.base.listener import Listener, bound
from pulsar_on_kafka.base.scheduler import Scheduler
from pulsar_on_kafka.base.worker import aside
from pulsar_on_kafka.broker.metadata.topic_watch import POLICIES_S, TopicWatch
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.client.connection.session import FollowsPolicies, update_policies
from pulsar_on_kafka.gateway.connection import Connection, Connections
from pulsar_on_kafka.gateway.fleet.bundles import bundle_of
from pulsar_on_kafka.gateway.fleet.membership import FleetMembership, fleets_group
from pulsar_on_kafka.gateway.handlers.client_moves import TLS
from pulsar_on_kafka.gateway.handlers.exclusive_queue import WaitingProducers
from pulsar_on_kafka.gateway.handlers.rate_meter import INTERVAL_S
from pulsar_on_kafka.gateway.handlers.session import GatewayContext
from pulsar_on_kafka.gateway.handlers.topic_layouts import LayoutSession, report_layouts
from pulsar_on_kafka.gateway.handlers.topic_watchers import TopicWatchers
from pulsar_on_kafka.gateway.handlers.transactions import GatewayTransactions
from pulsar_on_kafka.gateway.handlers.wire_consumer import WireConsumer
from pulsar_on_kafka.gateway.handlers.wire_producer import USE
from pulsar_on_kafka.gateway.login.access import OPEN_ACCESS, GatewayAccess
from pulsar_on_kafka.gateway.login.authorization import Authorization
from pulsar_on_kafka.gateway.login.client_login import CONNECT_S
from pulsar_on_kafka.gateway.protocol.fair_pool import FairPool
from pulsar_on_kafka.gateway.protocol.request_queue import operation_deadline
from pulsar_on_kafka.gateway.streams.stream_controller import StreamController
from pulsar_on_kafka.gateway.streams.subscription_coordinator import GRACE_S
from pulsar_on_kafka.gateway.tenants.former_ids import FormerIds
from pulsar_on_kafka.gateway.tenants.served_tenants import ServedTenants, TenantFollower
from pulsar_on_kafka.gateway.watches.topic_ends import report_ends
from pulsar_on_kafka.kafka.settings import MAX_MESSAGE_BYTES

_log: Final = logging.getLogger(__name__)

DEFAULT_PORT: Final = 6650
"""Pulsar's."""
MAX_CONNECTIONS: Final = 10_000
_BACKLOG: Final = 1_024
_HAND_OVER_S: Final = 10.0
"""The time in which other gateways take over from a gateway that stops: a Kafka session and a rebalance."""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """Options of a gateway.

    Args:
        host: the address to listen on, with `port` (0: a free one).
        advertised: the host that clients connect to; '': `host`.
        tls: with a certificate, connections are encrypted.
        trusted: a PEM file of authorities that sign certificates of clients; '': clients have no certificates.
        fleet: gateways of one fleet share the topics, so that clients must reach all of them. Each fleet serves all
            topics.
        http_port: the port of `rest.RestServer`.
        max_message_bytes: clients send larger messages in chunks, or fail them. Source: Pulsar's `maxMessageSize`.
        session_grace_s: a V5 stream consumer whose connection is lost keeps its partitions for this time.
        rates_interval_s: rates in statistics are those of the last interval of this length.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    advertised: str = ""
    tls: ServerTls = field(default_factory=ServerTls)
    fleet: str = ""
    trusted: str = ""
    access: GatewayAccess = OPEN_ACCESS
    http_port: int = 0
    session_grace_s: float = GRACE_S
    rates_interval_s: float = INTERVAL_S
    max_message_bytes: int = MAX_MESSAGE_BYTES

    def context(self) -> ssl.SSLContext | None:
        """Raises InvalidOption: files are no certificates, or `trusted` is there without a certificate."""
        made = self.tls.context()
        if self.trusted:
            if made is None:
                raise InvalidOption(f"{self.trusted} has authorities of clients, and there is no certificate to answer")
            try:
                made.load_verify_locations(self.trusted)
            except (OSError, ssl.SSLError) as failure:
                raise InvalidOption(f"{self.trusted} is no PEM file of authorities: {failure}") from failure
            made.verify_mode = ssl.CERT_OPTIONAL  # a client without a certificate gets an error of the protocol
        return made


class Gateway:
    """Serves Pulsar clients on the topics of a node's cluster. Begins with its construction. Thread-safe.

    Memory: what each `Connection` says, for at most `MAX_CONNECTIONS`.
    """

    def __init__(self, node: Node, settings: GatewaySettings, follower: TenantFollower | None = None) -> None:
        """`follower`: the gateway serves the tenants of its cluster; without it, all tenants. The gateway closes it.

        Raises InvalidOption: the address cannot be listened on, or the certificate not be read.
        InvalidSubscriptionName: the fleet's name is no name. LookupFailed: the map of tenants cannot be read."""
        self._node = node
        self._settings = settings
        self._tls = settings.context()
        self.tenants = ServedTenants(node, follower)
        fleets_group(node.settings.instance, settings.fleet)
        self._loop = asyncio.new_event_loop()
        try:
            self._sockets = bound(settings.host, settings.port, _BACKLOG)
        except OSError as failure:
            self._loop.close()
            raise InvalidOption(f"{settings.host}:{settings.port} cannot be listened on: {failure}") from failure
        self.port: int = self._sockets[0].getsockname()[1]
        self._pool = FairPool("pok-gateway-work")
        self._sharing = FleetMembership(node, self._loop, self.address(), settings.fleet, self._follow)
        self._scheduler = Scheduler("pok-gateway-watch")
        self._topic_scheduler = Scheduler("pok-gateway-topics")
        """Apart: the lists of another cluster's topics may take long."""
        policies = TopicWatch[FollowsPolicies](
            self._scheduler, POLICIES_S, lambda watched: update_policies(node, watched, operation_deadline)
        )
        ends = TopicWatch[WireConsumer](
            self._scheduler, POLICIES_S, lambda watched: report_ends(node, watched, operation_deadline)
        )
        layouts = TopicWatch[LayoutSession](
            self._scheduler, POLICIES_S, lambda watched: report_layouts(node, watched, operation_deadline)
        )
        self.authorization: Authorization | None = None
        if settings.access.authorization:
            self.authorization = Authorization(node, settings.access, self._check_rights)
        self._streams = StreamController(
            node, self._loop, self._soon, self._pool, self._sharing, self._scheduler, settings.session_grace_s
        )
        self.context = GatewayContext(
            node,
            self._loop,
            self._pool,
            self._sharing,
            self.tenants,
            self.address(),
            settings.access,
            GatewayTransactions(node, settings.access, self._pool),
            policies,
            ends,
            layouts,
            self._streams,
            TopicWatchers(self.tenants, self._topic_scheduler),
            WaitingProducers(self._loop.call_later),
            FormerIds(self.tenants),
            self.authorization,
            settings.max_message_bytes,
        )
        self.connections = Connections()
        self._listeners = [
            Listener(
                self._loop,
                each,
                lambda: Connection(self.context, self.connections),
                self._tls,
                CONNECT_S,
                self._is_full,
            )
            for each in self._sockets
        ]
        self._loop.call_later(settings.rates_interval_s, self._note_rates)
        node.clock.now_ms()  # the loop itself requests no time: see `_note_rates`
        self.tenants.start(lambda: self.context.soon(self._follow_tenants))
        self._thread = aside("pok-gateway", self._run)

    def _note_rates(self) -> None:
        self._loop.call_later(self._settings.rates_interval_s, self._note_rates)
        for connection in self.connections.all():
            connection.note_rates()
        if not self._node.clock.is_known:
            aside("pok-gateway-clock", self._node.clock.now_ms)

    def _soon(self, call: Callable[[], None]) -> None:
        self.context.soon(call)

    def _follow(self) -> None:
        if self._sharing.is_disconnected():
            # Clients resend their pending messages to other gateways: librdkafka must not write them later.
            self._node.give_up_producers(USE, ConnectFailed("this gateway is disconnected from Kafka"))
        self._streams.follow()
        for connection in self.connections.all():
            connection.follow()

    def _follow_tenants(self) -> None:
        self._streams.follow_tenants(self.tenants)
        for connection in self.connections.all():
            connection.follow_tenants()
        self.tenants.wake()

    def _check_rights(self, namespaces: AbstractSet[str]) -> None:
        """Permissions in these namespaces have changed. Any thread."""

        def check() -> None:
            for connection in self.connections.all():
                connection.check_rights(namespaces)

        self.context.soon(check)

    def _is_full(self) -> bool:
        if len(self.connections) < MAX_CONNECTIONS:
            return False
        _log.warning("a connection is closed at once: %d connections are open, the maximum", MAX_CONNECTIONS)
        return True

    def address(self) -> str:
        """The URL of this gateway for clients."""
        scheme = "pulsar" if self._tls is None else TLS
        return f"{scheme}://{self._settings.advertised or self._settings.host}:{self.port}"

    def serving(self, topic: str, deadline: Deadline) -> str | None:
        """The URL of the gateway that serves a topic; None when no gateway does now. Not for the event loop.

        Raises:
            InvalidTopicName. DeadlineExceeded: the gateway is too busy to say, or has ended.
        """
        found: Future[str | None] = Future()
        self._loop.call_soon_threadsafe(self._sharing.find, bundle_of(topic), found.set_result)
        try:
            return found.result(deadline.remaining_s())
        except FutureTimeout:
            raise DeadlineExceeded(f"the gateway does not know in time which gateway serves {topic}") from None

    def topics(self, deadline: Deadline) -> AbstractSet[str]:
        """The topics and partitions of this gateway's clients. Not for the event loop. Raises DeadlineExceeded."""
        found: Future[set[str]] = Future()
        self._loop.call_soon_threadsafe(
            lambda: found.set_result({each for one in self.connections.all() for each in one.topics()})
        )
        try:
            return found.result(deadline.remaining_s())
        except FutureTimeout:
            raise DeadlineExceeded("the gateway does not list its topics in time") from None

    def unload(self, topics: AbstractSet[str], deadline: Deadline) -> None:
        """Have the clients of this gateway open their producers and consumers of these topics anew. Returns when all
        clients know. Not for the event loop. Raises DeadlineExceeded."""
        closing: Future[list[Future[None]]] = Future()

        def unload() -> None:
            closing.set_result([each for one in self.connections.all() for each in one.unload(topics)])

        self._loop.call_soon_threadsafe(unload)
        try:
            for each in closing.result(deadline.remaining_s()):
                each.result(deadline.remaining_s())
        except FutureTimeout:
            raise DeadlineExceeded(f"clients of {', '.join(sorted(topics)[:3])} do not know yet") from None

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def close(self, deadline: Deadline) -> None:
        """Move the clients to other gateways of the fleet, if there are any. Then close listeners and connections, and
        leave each subscription after a save of its acknowledgements."""
        if not self._thread.is_alive():
            return
        if self._sharing.leave(deadline.at_most(_HAND_OVER_S)):
            with suppress(FutureTimeout):
                asyncio.run_coroutine_threadsafe(self._moved(), self._loop).result(deadline.remaining_s())
        ended = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        try:
            ended.result(deadline.remaining_s())
        except FutureTimeout:
            _log.warning("connections of clients that do not read their last replies are aborted")
            self._loop.call_soon_threadsafe(self._abort)
            ended.result()
        finally:
            self._scheduler.close()
            self._topic_scheduler.close()
            if self.authorization is not None:
                self.authorization.close()
            self.tenants.close()
            self._sharing.close(deadline)
            self._settle(deadline)
            self._pool.shutdown()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(deadline.remaining_s())

    def _settle(self, deadline: Deadline) -> None:
        """Return when producers and consumers whose opening had begun are closed."""
        while not deadline.passed() and self._pool.wait_until_idle(deadline.remaining_s()):
            seen = asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self._loop)
            with suppress(FutureTimeout):
                seen.result(deadline.remaining_s())  # the loop has run the callbacks of all work
            if self._pool.wait_until_idle(0.0):
                return
        _log.warning("the gateway stops before everything that its clients had opened is closed")

    async def _moved(self) -> None:
        """Return when every client knows its new gateway."""
        self._follow()
        moves = [move for connection in self.connections.all() for move in connection.moves]
        if moves:
            await asyncio.wait(moves)

    async def _end(self) -> None:
        for listener in self._listeners:
            listener.close()
        await self._sharing.end()
        connections = self.connections.all()
        for connection in connections:
            connection.end("the gateway stops")
        for connection in connections:
            await connection.ended.wait()

    def _abort(self) -> None:
        for connection in self.connections.all():
            connection.abort()
