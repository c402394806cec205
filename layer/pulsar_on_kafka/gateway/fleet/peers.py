"""The other gateways of a fleet: whether their processes answer, before Kafka hears that one does not.

Clients that are sent to a dead one come back later and later. So a lookup that leads to a gateway that answered once,
and does not now, waits until Kafka's group has given its bundles to another one.
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
"""How long an answer is good for."""
_HELLO: Final = frame(command(Type.CONNECT, client_version="pok-gateway", protocol_version=PROTOCOL_VERSION))


@dataclass(slots=True)
class _Peer:
    answered: bool = False
    """Ever: one that this process cannot reach is not judged."""
    answers: bool = False
    at_s: float = 0.0
    asking: bool = False


class FleetPeers:
    """For the event loop. Memory: a few numbers for each gateway of the fleet."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, heard: Callable[[], None]) -> None:
        """`heard` is called when one that was asked has answered, or has not."""
        self._loop = loop
        self._clock = clock
        self._heard = heard
        self._peers: dict[str, _Peer] = {}
        self._asking: set[asyncio.Task[None]] = set()
        self._ended = False

    def are(self, urls: Collection[str]) -> None:
        """Those whom the group has now. New ones are asked for the first time."""
        for gone in self._peers.keys() - set(urls):
            del self._peers[gone]
        for url in set(urls) - self._peers.keys():
            self._peers[url] = _Peer()
            self._ask(url)

    def is_there(self, url: str) -> bool:
        """Unless it answered once and does not now. Where that has to be asked, False, and `heard` is called later."""
        peer = self._peers.get(url)
        if peer is None or not peer.answered:
            return True
        if self._clock.monotonic() - peer.at_s <= FRESH_S:
            return peer.answers
        self._ask(url)
        return False

    async def end(self) -> None:
        """Ask nobody any more."""
        self._ended = True
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)

    def _ask(self, url: str) -> None:
        peer = self._peers[url]
        if peer.asking or self._ended:
            return
        peer.asking = True

        async def ask() -> None:
            peer.answers = await _answers(url)
            peer.answered = peer.answered or peer.answers
            peer.at_s, peer.asking = self._clock.monotonic(), False
            self._heard()

        task = self._loop.create_task(ask())
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)


async def _answers(url: str) -> bool:
    """Whether somebody says anything to a CONNECT, were it that another login is wanted, or hangs up."""
    where = urlsplit(url)
    try:
        opening = asyncio.open_connection(where.hostname, where.port, ssl=_tls() if "ssl" in where.scheme else None)
        reader, writer = await asyncio.wait_for(opening, ANSWER_S)
        try:
            writer.write(_HELLO)
            await asyncio.wait_for(reader.read(1), ANSWER_S)
        finally:
            writer.close()
    except ssl.SSLError:  # it wants a certificate, say
        return True
    except (OSError, asyncio.TimeoutError):
        return False
    return True


def _tls() -> ssl.SSLContext:
    """Whoever answers is told nothing, so it is not asked who it is."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    return made
