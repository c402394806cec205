"""Health checks of the other gateways of a fleet, which detect a dead process before its Kafka session expires.

A client that is sent to a dead gateway retries at growing intervals. So a lookup waits while the owning gateway has
stopped answering, until Kafka's group assigns its bundles to another gateway.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka_mapping.wire.commands import PROTOCOL_VERSION, Type, command
from pulsar_on_kafka_mapping.wire.frames import frame

ANSWER_S: Final = 1.0
FRESH_S: Final = 1.0
"""An answer is reused for this time."""
_HELLO: Final = frame(command(Type.CONNECT, client_version="pok-gateway", protocol_version=PROTOCOL_VERSION))


@dataclass(slots=True)
class _Peer:
    answered: bool = False
    """Whether the gateway ever answered. A gateway that this process cannot reach is not judged."""
    answers: bool = False
    at_s: float = 0.0
    requesting: bool = False


class FleetPeers:
    """For the event loop. Memory: a few numbers for each gateway of the fleet."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, on_answer: Callable[[], None]) -> None:
        """`on_answer` is called after each check, also without an answer."""
        self._loop = loop
        self._clock = clock
        self._on_answer = on_answer
        self._peers: dict[str, _Peer] = {}
        self._requesting: set[asyncio.Task[None]] = set()
        self._ended = False

    def are(self, urls: Collection[str]) -> None:
        """The present gateways of the group. New ones are checked at once."""
        for gone in self._peers.keys() - set(urls):
            del self._peers[gone]
        for url in set(urls) - self._peers.keys():
            self._peers[url] = _Peer()
            self._request(url)

    def is_there(self, url: str) -> bool:
        """False: the gateway answered once, and no longer does or has to be checked. `on_answer` is called later."""
        peer = self._peers.get(url)
        if peer is None or not peer.answered:
            return True
        if self._clock.monotonic() - peer.at_s <= FRESH_S:
            return peer.answers
        self._request(url)
        return False

    async def end(self) -> None:
        """Stop the checks."""
        self._ended = True
        for task in self._requesting:
            task.cancel()
        await asyncio.gather(*self._requesting, return_exceptions=True)

    def _request(self, url: str) -> None:
        peer = self._peers[url]
        if peer.requesting or self._ended:
            return
        peer.requesting = True

        async def request() -> None:
            peer.answers = await _answers(url)
            peer.answered = peer.answered or peer.answers
            peer.at_s, peer.requesting = self._clock.monotonic(), False
            self._on_answer()

        task = self._loop.create_task(request())
        self._requesting.add(task)
        task.add_done_callback(self._requesting.discard)


async def _answers(url: str) -> bool:
    """Whether the gateway replies to CONNECT in any way, such as by an error or by closing the connection."""
    where = urlsplit(url)
    try:
        opening = asyncio.open_connection(where.hostname, where.port, ssl=_tls() if "ssl" in where.scheme else None)
        reader, writer = await asyncio.wait_for(opening, ANSWER_S)
        try:
            writer.write(_HELLO)
            await asyncio.wait_for(reader.read(1), ANSWER_S)
        finally:
            writer.close()
    except ssl.SSLError:  # such as a required certificate
        return True
    except (OSError, asyncio.TimeoutError):
        return False
    return True


def _tls() -> ssl.SSLContext:
    """The peer gets no secret, so its certificate is not verified."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    return made
