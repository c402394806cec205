"""The brokers of one cluster: their addresses, coordinators of groups, leaders of partitions, and connections by lane.

A broker reads a connection's next request when it has answered the one before, so requests that wait (JoinGroup) have
connections of their own.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, TypeVar
from weakref import WeakSet
from zlib import crc32

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.kafka.errors import translate_code
from pulsar_on_kafka.kafka.rights import on_group
from pulsar_on_kafka.kafka.wire.cluster_messages import (
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataResponse,
    PartitionMetadata,
    TopicMetadata,
)
from pulsar_on_kafka.kafka.wire.connection import BrokerConnection
from pulsar_on_kafka.kafka.wire.error_codes import ErrorCode
from pulsar_on_kafka.kafka.wire.fields import WireRequest
from pulsar_on_kafka.kafka.wire.login import KafkaLogin, connect
from pulsar_on_kafka.kafka.wire.loop_work import LoopTasks
from pulsar_on_kafka.kafka.wire.wait_connections import WaitConnections

_T = TypeVar("_T")

COMMIT_CONNECTIONS: Final = 8
"""Connections to a broker for commits. A broker with replicas handles about 300 commits a second on each."""
HEARTBEAT_CONNECTIONS: Final = 8
"""Connections to a broker for heartbeats. A broker on a busy machine handles about 50 a second on each."""
HEARTBEAT_READS_S: Final = 0.05
COMMIT_READS_S: Final = 0.005
"""The interval in which many responses of such a connection are read together."""
GROUPS_A_REQUEST: Final = 200
"""The groups of one FindCoordinator, DescribeGroups or OffsetFetch."""
MAX_REMEMBERED: Final = 100_000
DEFAULT_PORT: Final = 9092
_ADDRESS: Final = re.compile(r"(?:\w+://)?(?P<host>\[[^\]\s]+\]|[^:\s/]+)(?::(?P<port>\d{1,5}))?")
_LOOK_UP_AFTER_S: Final = 0.01
_LOOK_UP_TIMEOUT_S: Final = 10.0
_BACKOFF_MIN_S: Final = 0.05
_BACKOFF_MAX_S: Final = 1.0

MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
"""Errors upon which a group's coordinator is looked up again."""


class ConnectionLane(Enum):
    """The use of a connection. Requests of one lane never wait behind those of another."""

    HEARTBEATS = "heartbeats"
    """One connection for each group, as for commits. Responses are read in intervals."""
    COMMITS = "commits"
    """OffsetCommit, OffsetFetch and LeaveGroup: one connection for each group, shared by groups of the same hash."""
    QUERIES = "queries"


class KafkaBrokers:
    """Used in the thread of its loop only.

    Memory: the coordinators of `MAX_REMEMBERED` groups and the metadata of as many topics, the last ones.
    """

    def __init__(
        self, bootstrap: Sequence[tuple[str, int]], login: KafkaLogin, client_id: str, connect_s: float
    ) -> None:
        """`connect_s` limits the opening of one connection, with its login."""
        self._login = login
        self._client_id = client_id
        self._connect_s = connect_s
        self._bootstrap = [_Broker(address, self._opened) for address in bootstrap]
        self._brokers: dict[int, _Broker] = {}
        self._coordinators: dict[str, int] = {}
        self._look_ups: dict[str, asyncio.Future[int]] = {}
        """Groups whose coordinators are requested next."""
        self._topics: dict[str, TopicMetadata] = {}
        self._tasks = LoopTasks()
        self._is_closed = False

    async def _opened(self, address: tuple[str, int]) -> BrokerConnection:
        if self._is_closed:
            raise errors.ConnectFailed(f"no connection to {address[0]}:{address[1]}: this client is closed")
        return await connect(*address, self._login, self._client_id, self._connect_s)

    # Connections ------------------------------------------------------------------------------------------------------

    def open_connection(self, node_id: int, lane: ConnectionLane, group_id: str = "") -> BrokerConnection | None:
        """The connection for this use if it is open, for callers that must not wait."""
        broker = self._brokers.get(node_id)
        return None if broker is None else broker.shared(lane, group_id).connection

    async def connection(self, node_id: int, lane: ConnectionLane, group_id: str = "") -> BrokerConnection:
        """The connection for this use, opened now if need be.

        Raises:
            ConnectFailed: the broker is unknown or not reached.
            StoreError: see `wire.login.connect`.
        """
        return await self._broker(node_id).shared(lane, group_id).opened()

    def wait_connections(self, node_id: int) -> WaitConnections:
        """The connections for requests that wait at the broker. Raises ConnectFailed: the broker is unknown."""
        return self._broker(node_id).waits

    async def dedicated_connection(self, node_id: int) -> BrokerConnection:
        """A new connection for one caller, who closes it. Raises as `connection`."""
        return await self._broker(node_id).dedicated()

    def _broker(self, node_id: int) -> _Broker:
        broker = self._brokers.get(node_id)
        if broker is None:
            raise errors.ConnectFailed(f"broker {node_id} is not in the cluster's metadata")
        return broker

    def _learn(self, node_id: int, host: str, port: int) -> None:
        known = self._brokers.get(node_id)
        if known is None or known.address != (host, port):
            self._brokers[node_id] = _Broker((host, port), self._opened)
            if known is not None:
                known.close()

    async def send_to_any(self, request: WireRequest[_T], timeout_s: float) -> _T:
        """The response of any broker that answers: known ones first, then those of the bootstrap list.

        Raises:
            NotAuthenticated, NoCredentials, NotSupportedYet: see `wire.login.connect`.
            StoreError: none answers; the error of the last one.
        """
        known = [*self._brokers.values()]
        random.shuffle(known)
        known.sort(key=lambda each: each.shared(ConnectionLane.QUERIES).connection is None)
        # One that is silent must not take the time of the others.
        brokers = list({each.address: each for each in (*self._bootstrap, *reversed(known))}.values())[::-1]
        failure: errors.StoreError = errors.ConnectFailed("no broker is known")
        for broker in brokers:
            try:
                return await self._send_to(broker, request, timeout_s / len(brokers))
            except (errors.NotAuthenticated, errors.NoCredentials):
                raise
            except errors.StoreError as failed:
                failure = failed
        raise failure

    async def _send_to(self, broker: _Broker, request: WireRequest[_T], timeout_s: float) -> _T:
        began_s = asyncio.get_running_loop().time()
        try:
            connection = await asyncio.wait_for(broker.shared(ConnectionLane.QUERIES).opened(), timeout_s)
        except (asyncio.TimeoutError, TimeoutError):
            host, port = broker.address
            raise errors.DeadlineExceeded(f"{host}:{port} is not reached within {timeout_s:.1f} s") from None
        left_s = timeout_s - (asyncio.get_running_loop().time() - began_s)
        return await connection.send(request, self._client_id, left_s)

    # Groups -----------------------------------------------------------------------------------------------------------

    def coordinator(self, group_id: str) -> int | None:
        """The node id of the group's coordinator, if it is known."""
        return self._coordinators.get(group_id)

    def forget_coordinator(self, group_id: str) -> None:
        """Has the coordinator looked up again: it moved, or its broker is not reached, or the group is not used."""
        self._coordinators.pop(group_id, None)

    async def coordinators(self, group_ids: Iterable[str], timeout_s: float) -> Mapping[str, int | errors.LayerError]:
        """The node id of each group's coordinator, or why it is not known. Raises as `send_to_any`."""
        requested = list(dict.fromkeys(group_ids))
        found: dict[str, int | errors.LayerError] = {
            group_id: self._coordinators[group_id] for group_id in requested if group_id in self._coordinators
        }
        missing = [group_id for group_id in requested if group_id not in found]
        for some in in_parts(missing):
            response = await self.send_to_any(FindCoordinatorRequest(tuple(some)), timeout_s)
            for each in response.coordinators:
                if each.error_code:
                    what = f"coordinator of group {each.key}"
                    found[each.key] = translate_code(each.error_code, what, on_group("Describe", each.key))
                    continue
                self._learn(each.node_id, each.host, each.port)
                found[each.key] = each.node_id
                _remember(self._coordinators, each.key, each.node_id)
        for group_id in requested:
            found.setdefault(group_id, errors.StoreError(f"Kafka did not name the coordinator of group {group_id}"))
        return found

    def find_coordinator(self, group_id: str) -> asyncio.Future[int]:
        """The node id of the group's coordinator. Look-ups of several groups at a time become one request.

        The future fails with LayerError. It is shared: a caller that may be cancelled shields it.
        """
        found = self._look_ups.get(group_id)
        if found is None:
            loop = asyncio.get_running_loop()
            found = loop.create_future()
            known = self._coordinators.get(group_id)
            if known is not None:
                found.set_result(known)
                return found
            if not self._look_ups:
                loop.call_later(_LOOK_UP_AFTER_S, lambda: self._tasks.start(self._look_up()))
            self._look_ups[group_id] = found
        return found

    async def _look_up(self) -> None:
        looking_up, self._look_ups = self._look_ups, {}
        for some in in_parts(list(looking_up)):
            found: Mapping[str, int | errors.LayerError] = {}
            failure: errors.LayerError = errors.ConnectFailed("the look-up of coordinators ended")
            try:
                found = await self.coordinators(some, _LOOK_UP_TIMEOUT_S)
            except errors.LayerError as failed:
                failure = failed
            finally:
                for group_id in some:
                    _settle(looking_up[group_id], found.get(group_id, failure))

    async def send_to_coordinator(
        self, group_id: str, lane: ConnectionLane, request: WireRequest[_T], client_id: str, timeout_s: float
    ) -> _T:
        """One attempt at the group's coordinator. After a failure, and where the response's `error_code` says that the
        coordinator moved, the next attempt looks it up again.

        Raises:
            LayerError: see `find_coordinator` and `connection`.
            ConnectionLost, DeadlineExceeded: no response; the request may be executed.
        """
        try:
            node_id = await asyncio.shield(self.find_coordinator(group_id))
            connection = await self.connection(node_id, lane, group_id)
            response = await connection.send(request, client_id, timeout_s)
        except errors.LayerError:
            self.forget_coordinator(group_id)
            raise
        if getattr(response, "error_code", 0) in MOVED:
            self.forget_coordinator(group_id)
        return response

    # Topics -----------------------------------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicMetadata | None:
        """The topic's last known metadata."""
        return self._topics.get(name)

    def leader(self, topic: str, partition: int) -> PartitionMetadata | None:
        """The last known leader of a partition; None if it is unknown, or there was none."""
        known = self._topics.get(topic)
        for each in known.partitions if known is not None else ():
            if each.partition_index == partition:
                return each if each.leader_id >= 0 else None
        return None

    def forget_topic(self, name: str) -> None:
        """Has the metadata requested again: a leader moved, or the topic is not used."""
        self._topics.pop(name, None)

    async def refresh_topics(self, names: Sequence[str], timeout_s: float) -> Mapping[str, TopicMetadata]:
        """Metadata of these topics as a broker has it now, and the addresses of all brokers. Raises as `send_to_any`.

        A topic that does not exist has an error code, and is forgotten.
        """
        response: MetadataResponse = await self.send_to_any(MetadataRequest(names=tuple(names)), timeout_s)
        living = {each.node_id for each in response.brokers}
        for node_id in [each for each in self._brokers if each not in living]:
            self._brokers.pop(node_id).close()
        for broker in response.brokers:
            self._learn(*broker)
        found = {each.name: each for each in response.topics if each.name is not None}
        for name, topic in found.items():
            if topic.error_code:
                self._topics.pop(name, None)
            else:
                _remember(self._topics, name, topic)
        return found

    def close(self) -> None:
        """Closes all connections; requests that wait fail."""
        self._is_closed = True
        for broker in (*self._bootstrap, *self._brokers.values()):
            broker.close()


class _Broker:
    """The connections to one address."""

    def __init__(
        self, address: tuple[str, int], connect_to: Callable[[tuple[str, int]], Awaitable[BrokerConnection]]
    ) -> None:
        self.address = address
        self._dial = _Dial(lambda: connect_to(address))
        self._shared = {
            ConnectionLane.HEARTBEATS: [
                _SharedConnection(self._dial, HEARTBEAT_READS_S) for _ in range(HEARTBEAT_CONNECTIONS)
            ],
            ConnectionLane.COMMITS: [_SharedConnection(self._dial, COMMIT_READS_S) for _ in range(COMMIT_CONNECTIONS)],
            ConnectionLane.QUERIES: [_SharedConnection(self._dial)],
        }
        self.waits = WaitConnections(self._dial)
        self._dedicated: WeakSet[BrokerConnection] = WeakSet()
        self._is_closed = False

    async def dedicated(self) -> BrokerConnection:
        connection = await self._dial()
        if self._is_closed:
            connection.close()
            raise errors.ConnectFailed(f"no connection to {self.address[0]}:{self.address[1]}: the broker moved")
        self._dedicated.add(connection)
        return connection

    def shared(self, lane: ConnectionLane, group_id: str = "") -> _SharedConnection:
        connections = self._shared[lane]
        return connections[crc32(group_id.encode()) % len(connections)]

    def close(self) -> None:
        self._is_closed = True
        for connections in self._shared.values():
            for each in connections:
                each.close()
        for connection in [*self._dedicated]:
            connection.close()
        self.waits.close()


class _Dial:
    """Opens connections to one address, with growing pauses after failures."""

    def __init__(self, connect_now: Callable[[], Awaitable[BrokerConnection]]) -> None:
        self._connect_now = connect_now
        self._pause_s = 0.0
        self._next_s = 0.0

    async def __call__(self) -> BrokerConnection:
        loop = asyncio.get_running_loop()
        left_s = self._next_s - loop.time()
        if left_s > 0:
            await asyncio.sleep(left_s)
        try:
            connection = await self._connect_now()
        except errors.LayerError:
            self._pause_s = min(max(_BACKOFF_MIN_S, 2 * self._pause_s), _BACKOFF_MAX_S)
            self._next_s = loop.time() + self._pause_s * random.uniform(0.8, 1.2)
            raise
        self._pause_s = self._next_s = 0.0
        return connection


class _SharedConnection:
    """One connection that many requests share; it is opened when it is needed."""

    def __init__(self, dial: _Dial, read_interval_s: float = 0.0) -> None:
        self._dial = dial
        self._read_interval_s = read_interval_s
        self._connection: BrokerConnection | None = None
        self._opening: asyncio.Task[BrokerConnection] | None = None

    @property
    def connection(self) -> BrokerConnection | None:
        """The connection, if it is open."""
        connection = self._connection
        return connection if connection is not None and connection.is_open else None

    async def opened(self) -> BrokerConnection:
        if (connection := self.connection) is not None:
            return connection
        opening = self._opening
        if opening is None:
            opening = self._opening = asyncio.get_running_loop().create_task(self._open())
            opening.add_done_callback(_retrieve)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            if opening.cancelled():
                raise errors.ConnectFailed("the connection was closed while it was opened") from None
            raise

    async def _open(self) -> BrokerConnection:
        try:
            self._connection = await self._dial()
            self._connection.read_interval_s = self._read_interval_s
            return self._connection
        finally:
            self._opening = None

    def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
        if self._connection is not None:
            self._connection.close()


def _settle(found: asyncio.Future[int], node_id: int | errors.LayerError) -> None:
    if found.done():
        return
    if isinstance(node_id, int):
        found.set_result(node_id)
    else:
        found.set_exception(node_id)
        found.exception()  # it counts as retrieved: the callers may have left


def _retrieve(opening: asyncio.Task[BrokerConnection]) -> None:
    """Counts a failure as retrieved: the callers may have left."""
    if not opening.cancelled():
        opening.exception()


def _remember(known: dict[str, _T], name: str, value: _T) -> None:
    known.pop(name, None)
    known[name] = value
    if len(known) > MAX_REMEMBERED:
        del known[next(iter(known))]


def in_parts(items: Sequence[_T], size: int = GROUPS_A_REQUEST) -> list[Sequence[_T]]:
    return [items[at : at + size] for at in range(0, len(items), size)]


def addresses(bootstrap: str) -> list[tuple[str, int]]:
    """The addresses of librdkafka's `bootstrap.servers`: host, host:port or protocol://host:port, with commas between.

    Raises:
        InvalidOption: one of them is none of these.
    """
    found = []
    for server in bootstrap.split(","):
        address = _ADDRESS.fullmatch(server.strip())
        port = int(address["port"] or DEFAULT_PORT) if address else 0
        if address is None or not 0 < port <= 0xFFFF:
            raise errors.InvalidOption(f"bootstrap server {server.strip()!r}, expected host:port")
        found.append((address["host"].strip("[]"), port))
    return found
