"""Connections to one broker for requests that wait there: JoinGroup and SyncGroup.

A broker reads a connection's next request after the response to the one before, so each of these requests is alone on
its connection. Their number is limited, and members of two processes may wait for each other in many groups. So a
request that has waited long gives way: its connection is closed if others queue. Kafka keeps its member. A broker
keeps the closed connection until it answers, or for `connections.max.idle.ms` after a later copy of the request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, Protocol

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.kafka.wire.connection import BrokerConnection

MAX_WAIT_CONNECTIONS: Final = 512
"""Connections to a broker for requests that wait there; further requests queue here."""
CONNECTIONS_STEP: Final = 64
"""The number of connections that the queue opens at once. It opens as many more while the broker does not answer."""
IDLE_S: Final = 10.0
"""The time without use after which such a connection is closed."""
GIVE_WAY_S: Final = 3.5
"""The time for which a request keeps its connection while others queue. Kafka's default delay of a group's first
rebalance is 3 s."""
LOOK_S: Final = 0.25
"""The interval in which the queue is looked at."""


class WaitingRequest(Protocol):
    """One request, sent when it has a connection. Each method returns at once."""

    names_member: bool
    """The request names a member id, which expires, or for which others wait: it goes before requests without one.

    It may give way: the broker has the same response for a later copy.
    """

    def send(self, connection: BrokerConnection) -> asyncio.Future[Any] | None:
        """Sends the request; None if it is not needed any more, or was refused."""

    def postponed(self) -> None:
        """The request gives way. Its future fails next."""

    def not_sent(self, failure: errors.LayerError) -> None:
        """No connection can be opened."""


class _UnderWay(NamedTuple):
    request: WaitingRequest
    sent_s: float


class WaitConnections:
    """Used in the thread of its loop only. Memory: `MAX_WAIT_CONNECTIONS` connections, and the requests that queue."""

    def __init__(self, connect: Callable[[], Awaitable[BrokerConnection]]) -> None:
        self._connect = connect
        self._urgent: deque[WaitingRequest] = deque()
        self._others: deque[WaitingRequest] = deque()
        self._idle: deque[tuple[BrokerConnection, float]] = deque()
        """Connections with the time of their last use, the latest at the end."""
        self._max_connections = CONNECTIONS_STEP
        self._busy: dict[BrokerConnection, _UnderWay] = {}
        """In the order of sending."""
        self._opening: set[asyncio.Task[None]] = set()
        self._is_due = False
        """The queue is looked at in the next turn of the loop."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def count(self) -> int:
        """Connections that are open or are being opened."""
        return len(self._idle) + len(self._busy) + len(self._opening)

    @property
    def queued(self) -> int:
        return len(self._urgent) + len(self._others)

    def send(self, request: WaitingRequest) -> None:
        """Sends the request when it has a connection. Its own methods report the outcome."""
        (self._urgent if request.names_member else self._others).append(request)
        self._serve_soon()

    def _serve_soon(self) -> None:
        """One turn later: a connection whose response led to this request is free then."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        self._is_due = False
        if self._is_closed:
            self._refuse(errors.ConnectFailed("the connections to this broker are closed"))
            return
        while self.queued and self._idle:
            connection, _ = self._idle.pop()
            if connection.is_open:
                self._send(connection, (self._urgent or self._others).popleft())
        for _ in range(min(self.queued - len(self._opening), self._max_connections - self.count)):
            opening = asyncio.get_running_loop().create_task(self._open())
            self._opening.add(opening)
            opening.add_done_callback(self._opened)
        self._watch()

    def _send(self, connection: BrokerConnection, request: WaitingRequest) -> None:
        response = request.send(connection)
        now_s = asyncio.get_running_loop().time()
        if response is None:
            self._idle.append((connection, now_s))
        else:
            self._busy[connection] = _UnderWay(request, now_s)
            response.add_done_callback(lambda _: self._answered(connection))

    def _answered(self, connection: BrokerConnection) -> None:
        del self._busy[connection]
        if connection.in_flight:  # the caller cancelled the response
            connection.close()
        elif connection.is_open:
            self._idle.append((connection, asyncio.get_running_loop().time()))
        self._serve_soon()

    async def _open(self) -> None:
        connection = await self._connect()
        if self._is_closed:
            connection.close()
        self._idle.append((connection, asyncio.get_running_loop().time()))

    def _opened(self, opening: asyncio.Task[None]) -> None:
        self._opening.discard(opening)
        failure = None if opening.cancelled() else opening.exception()
        if isinstance(failure, errors.LayerError):
            self._refuse(failure)
        elif failure is not None:
            raise failure
        self._serve_soon()

    def _refuse(self, failure: errors.LayerError) -> None:
        """The broker is not reached: its callers look for another one."""
        while self.queued:
            (self._urgent or self._others).popleft().not_sent(failure)

    # Time ---------------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        if self._timer is None and (self.queued or self._idle):
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._timer = None
        now_s = asyncio.get_running_loop().time()
        while self._idle and self._idle[0][1] <= now_s - IDLE_S:
            self._idle.popleft()[0].close()
        if not self.queued:
            self._max_connections = CONNECTIONS_STEP
        elif self._max_connections < MAX_WAIT_CONNECTIONS:
            self._max_connections = min(MAX_WAIT_CONNECTIONS, self.count + CONNECTIONS_STEP)
        else:
            for connection, (request, sent_s) in list(self._busy.items())[: max(0, self.queued - len(self._opening))]:
                if sent_s <= now_s - GIVE_WAY_S and request.names_member:
                    request.postponed()
                    connection.close()
        self._serve_soon()

    def close(self) -> None:
        """Closes all connections; requests that queue are refused."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for opening in self._opening:
            opening.cancel()
        for connection in [*self._busy, *(each for each, _ in self._idle)]:
            connection.close()
        self._idle.clear()
        self._serve_soon()
