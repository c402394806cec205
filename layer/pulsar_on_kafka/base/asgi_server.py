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
from pulsar_on_kafka.base.http_server import ServerTls
from pulsar_on_kafka.base.listener import Listener
from pulsar_on_kafka.base.worker import aside

ASKER_S: Final = 10.0
"""The time-out for a client's request."""
_MAX_CONNECTIONS: Final = 200
"""The limit of connections; others get 503."""
_MAX_OPEN: Final = 2 * _MAX_CONNECTIONS
"""The number of open connections from which on a new one is closed at once."""
_ENDING_S: Final = 2
_IDLE_S: Final = 30


class _Server(uvicorn.Server):
    """A server that reports when it serves, or has failed to start."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.decided = threading.Event()
        self._listeners: list[Listener] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])  # it listens by means of its own below

        def protocol() -> asyncio.Protocol:
            made: asyncio.Protocol = config.http_protocol_class(  # type: ignore[call-arg]
                config=config, server_state=state, app_state=self.lifespan.state
            )
            return made

        config, state, loop = self.config, self.server_state, asyncio.get_running_loop()

        def is_full() -> bool:
            return len(state.connections) >= _MAX_OPEN

        for each in sockets or ():
            self._listeners.append(Listener(loop, each, protocol, config.ssl, ASKER_S, is_full))
        self.decided.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for each in self._listeners:
            each.close()
        await super().shutdown(sockets)


class HttpProtocol(H11Protocol):
    """A connection whose client has ten seconds for each request's head and body: uvicorn itself waits for ever. With
    one connection more than there may be, the one that has waited longest for a request is closed."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer: asyncio.TimerHandle | None = None
        self.waits_since_s = self.loop.time()
        self._watch()
        if len(self.connections) >= _MAX_CONNECTIONS:
            waiting = [each for each in self.connections if isinstance(each, HttpProtocol) and each.waits]
            others = [each for each in waiting if each is not self]
            if others:
                min(others, key=lambda each: each.waits_since_s).transport.close()

    @property
    def waits(self) -> bool:
        """Its client has not sent all of a request."""
        request: Any = self.cycle
        return request is None or request.response_complete or request.more_body

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        self.waits_since_s = self.loop.time()
        super().on_response_complete()

    def _watch(self) -> None:
        if not self.waits:
            self._stop_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(ASKER_S, self._close_if_waiting)

    def _close_if_waiting(self) -> None:
        if self.waits:
            self.transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def connection_lost(self, failure: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(failure)


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a server; `option` is the command-line option of the port."""

    host: str
    port: int
    option: str


class AsgiServer:
    """A server that listens from its constructor until `close`. Memory: 200 connections at most, others get 503, and
    see `Listener`."""

    def __init__(self, name: str, address: Address, app: Any, tls: ServerTls, **more: Any) -> None:
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
            limit_concurrency=_MAX_CONNECTIONS,
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
