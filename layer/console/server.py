"""The console's server answers HTTP in a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Final

import uvicorn

from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka.base.http_server import Guard
from pulsar_on_kafka.base.worker import aside
from pulsar_on_kafka.console.access import Access
from pulsar_on_kafka.console.pages import Pages
from pulsar_on_kafka.console.site import Site

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


class ConsoleServer:
    """Listens from when it is made until `close`."""

    def __init__(self, host: str, port: int, site: Site, guard: Guard) -> None:
        """`port` 0: a free one. `guard` has the token and the certificate.

        Raises InvalidOption: others could reach it and there is no token, the port is taken, the address is not one of
            this machine's, or the certificate is none.
        """
        access = Access.checked(host, guard.token)
        guard.context()  # raises for what is none, in our words
        config = uvicorn.Config(
            Pages(site, access, secure=bool(guard.certificate)).app(),
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_keep_alive=_IDLE_S,
            timeout_graceful_shutdown=_ENDING_S,
            ssl_certfile=guard.certificate or None,
            ssl_keyfile=guard.key or None,
        )
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._socket = socket.create_server((host, port), family=family, backlog=128)
        except OSError as taken:
            raise InvalidOption(
                f"{host}:{port} cannot be listened on: {taken.strerror or taken}; name another one with --console-port "
                "(0: a free one)"
            ) from taken
        self.port: int = self._socket.getsockname()[1]
        self._server = _Server(config)
        self._thread = aside("pok-console-http", self._serve)
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
