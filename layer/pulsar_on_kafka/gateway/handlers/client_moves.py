"""Moves a client's producers and consumers to the gateway that serves their topics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from pulsar_on_kafka.gateway.protocol.replies import ANY_REQUEST, Replies
from pulsar_on_kafka.gateway.protocol.request_queue import RequestQueue
from pulsar_on_kafka_mapping.wire.commands import Type

_log: Final = logging.getLogger(__name__)
TLS: Final = "pulsar+ssl"


def address_field(name: str, url: str, tls_suffix: str = "Tls") -> dict[str, str]:
    """The field of a command for an address, or the field beside it for an address with TLS."""
    return {f"{name}{tls_suffix}" if url.startswith(TLS) else name: url}


class ClientMoves:
    """For the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, requests: RequestQueue, replies: Replies, client: str) -> None:
        """`client` is the name of the connection in logs."""
        self._loop = loop
        self._requests = requests
        self._replies = replies
        self._client = client
        self.under_way: set[asyncio.Task[None]] = set()

    def begin(
        self,
        what: str,
        close: Callable[[], object],
        topic: str,
        url: str,
        on_done: Callable[[], None],
        kind: Type,
        **handle_id: int,
    ) -> None:
        """Close a producer or consumer, then send the client `url`. `what` names it in the log."""

        async def move() -> None:
            await asyncio.wrap_future(self._requests.close_aside(close, topic=topic))
            _log.info("connection=%s %.300r moves to %s", self._client, what, url)
            on_done()
            address = address_field("assignedBrokerServiceUrl", url)
            self._replies.send(kind, request_id=ANY_REQUEST, **handle_id, **address)

        moving = self._loop.create_task(move())
        self.under_way.add(moving)
        moving.add_done_callback(self.under_way.discard)
