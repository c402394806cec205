"""A stand-in for a Kafka broker on a port of this machine: it answers the wire client as a test says, also wrongly."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from pulsar_on_kafka.kafka.wire.cluster_messages import ApiVersionsRequest
from pulsar_on_kafka.kafka.wire.fields import Api, int32
from tests.wire_requests import REQUESTS

EVERY_API: Final = b"\0\0" + bytes([128, 1, *b"".join(struct.pack(">hhhb", key, 0, 99, 0) for key in range(127))])
EVERY_API_RESPONSE: Final = EVERY_API + int32(0) + b"\0"
_FLEXIBLE: Final = {each.API.key for each, _ in REQUESTS if each.API.is_flexible} - {ApiVersionsRequest.API.key}
"""Requests whose responses have tagged fields in their header."""
FINE: Final = b"\0\0\0\0\0\0"
"""The response to a Heartbeat that succeeded."""


@dataclass(frozen=True)
class Received:
    api_key: int
    version: int
    correlation_id: int
    client_id: str
    body: bytes
    connection: int
    """The number of the connection, from 0 on."""


Answer = Callable[[Received], bytes | None]
"""The body of a response; None for silence. `raw` gives other bytes."""


class Raw(bytes):
    """Bytes that are sent as they are, instead of a response."""


class StandInBroker:
    """Serves in the running loop. `answers` are by api key; ApiVersions has one by itself."""

    def __init__(self, answers: Mapping[int, Answer], tls: ssl.SSLContext | None = None) -> None:
        self._answers: dict[int, Answer] = {ApiVersionsRequest.API.key: lambda _: EVERY_API_RESPONSE, **answers}
        self._tls = tls
        self.received: list[Received] = []
        self.connections = 0
        self.port = 0
        self._open: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> StandInBroker:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.disconnect()

    def of(self, api: Api) -> list[Received]:
        return [each for each in self.received if each.api_key == api.key]

    def disconnect(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number, self.connections = self.connections, self.connections + 1
        self._open.add(writer)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                received = _received(await reader.readexactly(size), number)
                self.received.append(received)
                response = self._answers[received.api_key](received)
                if isinstance(response, Raw):
                    writer.write(response)
                elif response is not None:
                    tags = b"\0" if received.api_key in _FLEXIBLE else b""
                    body = int32(received.correlation_id) + tags + response
                    writer.write(int32(len(body)) + body)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, OSError):
            pass  # the other side, or the test, is over
        finally:
            self._open.discard(writer)
            writer.close()


def _received(frame: bytes, connection: int) -> Received:
    api_key, version, correlation_id, length = struct.unpack_from(">hhih", frame)
    return Received(
        api_key, version, correlation_id, frame[10 : 10 + length].decode(), frame[10 + length :], connection
    )
