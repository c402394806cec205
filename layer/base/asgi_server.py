"""An ASGI server answers HTTP in a thread of its own. Needs uvicorn, which the extras `console` and `gateway` bring."""

from __future__ import annotations

import asyncio
import socket
import threading
from dataclasses import dataclass
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka.base.http_server import Tls
from pulsar_on_kafka.base.worker import aside

ASKER_S: Final = 10.0
"""How long whoever asks may take to say what."""
_MOST_CONNECTIONS: Final = 200
"""Others are told to come again."""
_ENDING_S: Final = 2
_IDLE_S: Final = 30


class _Server(uvicorn.Server):
    """Says when it serves, or has given up."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.decided = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.decided.set()


class HttpProtocol(H11Protocol):
    """A connection whose client has ten seconds for its first request's head: uvicorn itself waits for ever."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._first = self.loop.call_later(ASKER_S, self._begun_or_closed)

    def _begun_or_closed(self) -> None:
        request: object = self.cycle
        if request is None:
            self.transport.close()

    def connection_lost(self, failure: Exception | None) -> None:
        self._first.cancel()
        super().connection_lost(failure)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens; `option` is what says the port on the command line."""

    host: str
    port: int
    option: str


class AsgiServer:
    """Listens from when it is made until `close`. Memory: 200 connections at most, others get 503."""

    def __init__(self, name: str, address: Address, app: Any, tls: Tls, **more: Any) -> None:
        """Port 0 is a free one; `name` is the thread's; `more` is for uvicorn.

        Raises InvalidOption: the port is taken, the address is not one of this machine's, or the certificate is none.
        """
        tls.context()  # raises for what is none, in our words
        options = {"http": HttpProtocol, **more}
        config = uvicorn.Config(
            app,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_keep_alive=_IDLE_S,
            timeout_graceful_shutdown=_ENDING_S,
            ssl_certfile=tls.certificate or None,
            ssl_keyfile=tls.key or None,
            **options,
        )
        host = address.host
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._socket = socket.create_server((host, address.port), family=family, backlog=128)
        except OSError as taken:
            raise InvalidOption(
                f"{host}:{address.port} cannot be listened on: {taken.strerror or taken}; name another one with "
                f"{address.option} (0: a free one)"
            ) from taken
        self.port: int = self._socket.getsockname()[1]
        self._server = _Server(config)
        self._thread = aside(name, self._serve)
        self._server.decided.wait()

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        try:
            asyncio.run(self._server.serve([self._socket]))
        finally:
            self._server.decided.set()
