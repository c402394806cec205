"""Moves a client's producers and consumers to the gateway that serves their topics.

Source of TOPIC_MIGRATED: PIP-188. Clients that take it look up at its address from then on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from enum import IntEnum
from typing import Any, Final, NamedTuple

from pulsar_on_kafka.broker.lookup import gateway_urls
from pulsar_on_kafka.broker.lookup.gateway_urls import GatewayUrls
from pulsar_on_kafka.gateway.protocol.replies import ANY_REQUEST, Replies
from pulsar_on_kafka.gateway.protocol.request_queue import RequestQueue
from pulsar_on_kafka.gateway.tenants.served_tenants import ServedTenants
from pulsar_on_kafka_mapping.wire.commands import Type

_log: Final = logging.getLogger(__name__)
TLS: Final = gateway_urls.TLS
_MIGRATED_VERSION: Final = 20
"""Clients of this protocol version and later know TOPIC_MIGRATED."""
_CPP_CLIENT: Final = "Pulsar-CPP"
"""The beginning of what the C++ client calls itself, also beneath Python and Node.js. TOPIC_MIGRATED can block it for
ever (seen with 3.13.0): it locks the connection, then the producer, and a thread that sends locks them in the other
order. A consumer that is being opened locks the connection twice."""


def address_field(name: str, url: str, tls_suffix: str = "Tls") -> dict[str, str]:
    """The field of a command for an address, or the field beside it for an address with TLS."""
    return {f"{name}{tls_suffix}" if url.startswith(TLS) else name: url}


class Resource(IntEnum):
    """The kinds of resources in TOPIC_MIGRATED."""

    PRODUCER = 0
    CONSUMER = 1


class Handle(NamedTuple):
    """A producer or consumer of a client. `name` is for the log."""

    resource: Resource
    number: int
    name: str
    topic: str

    def close_command(self) -> tuple[Type, dict[str, int]]:
        if self.resource is Resource.PRODUCER:
            return Type.CLOSE_PRODUCER, {"producer_id": self.number}
        return Type.CLOSE_CONSUMER, {"consumer_id": self.number}


class ClientMoves:
    """For the event loop. Memory: a task for each producer and consumer that moves."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        tenants: ServedTenants,
        requests: RequestQueue,
        replies: Replies,
        client: str,
    ) -> None:
        """`client` is the name of the connection in logs."""
        self._loop = loop
        self._tenants = tenants
        self._requests = requests
        self._replies = replies
        self._client = client
        self._ended = False
        self._takes_migrations = False
        self.under_way: set[asyncio.Task[None]] = set()
        """Moves to other gateways of the fleet."""
        self._with_tenants: set[asyncio.Task[None]] = set()
        self._waits: set[asyncio.Future[None]] = set()

    def connect(self, client_version: str, protocol_version: int) -> None:
        """The client says what it is."""
        is_cpp = client_version.startswith(_CPP_CLIENT)
        self._takes_migrations = protocol_version >= _MIGRATED_VERSION and not is_cpp

    def begin(self, handle: Handle, close: Callable[[], object], url: str, on_done: Callable[[], None]) -> None:
        """Close a producer or consumer, then send the client `url`, of another gateway of the fleet."""

        async def move() -> None:
            await self._close(handle, close)
            _log.info("connection=%s %.300r moves to %s", self._client, handle.name, url)
            on_done()
            self._send_close(handle, **address_field("assignedBrokerServiceUrl", url))

        self._start(move(), self.under_way)

    def begin_with_tenant(self, handle: Handle, close: Callable[[], object], on_done: Callable[[], None]) -> None:
        """Close a producer or consumer of a tenant that leaves this cluster. The client learns of it when a cluster has
        the tenant, and opens the producer or consumer anew there."""

        async def move() -> None:
            await self._close(handle, close)
            while (serving := self._tenants.of_topic(handle.topic)).is_switching and not self._ended:
                waits = self._tenants.wait_for_change()
                self._waits.add(waits)
                await waits
                self._waits.discard(waits)
            where = serving.reason or "it is served here again"
            _log.info("connection=%s %.300r is to be opened anew: %s", self._client, handle.name, where)
            on_done()
            self._send_migrated(handle, serving.urls)
            self._send_close(handle)

        self._start(move(), self._with_tenants)

    def end(self) -> None:
        """The connection has ended: no move waits any longer."""
        self._ended = True
        for waits in self._waits:
            if not waits.done():
                waits.set_result(None)

    def _start(self, move: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> None:
        moving = self._loop.create_task(move)
        tasks.add(moving)
        moving.add_done_callback(tasks.discard)

    async def _close(self, handle: Handle, close: Callable[[], object]) -> None:
        await asyncio.wrap_future(self._requests.close_aside(close, topic=handle.topic))

    def _send_migrated(self, handle: Handle, urls: GatewayUrls) -> None:
        """Clients that take the command look the topic up at the other cluster's gateway from then on. Others look it
        up at their service URL, whose gateway redirects them."""
        if urls.serves and self._takes_migrations:
            fields = {"brokerServiceUrl": urls.plain, "brokerServiceUrlTls": urls.tls}
            given = {name: url for name, url in fields.items() if url}
            resource = handle.resource.value
            self._replies.send(Type.TOPIC_MIGRATED, resource_id=handle.number, resource_type=resource, **given)

    def _send_close(self, handle: Handle, **address: str) -> None:
        kind, number = handle.close_command()
        self._replies.send(kind, request_id=ANY_REQUEST, **number, **address)
