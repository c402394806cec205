"""A small HTTP server around a WSGI application: a thread for each request."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from layer.errors import InvalidOption

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
_ASKER_S: Final = 10.0
"""How long whoever asks may take to say what."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128


class _IPv6Server(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = _ASKER_S

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Nothing: scrapes would fill the log."""


class HttpServer:
    """Listens from when it is made until `close`; who asks has ten seconds to say what."""

    def __init__(self, host: str, port: int, app: Application) -> None:
        """`port` 0: a free one.

        Raises:
            InvalidOption: the port is taken, or the address is not one of this machine's.
        """
        kind = _IPv6Server if ":" in host else _Server
        try:
            self._server = make_server(host, port, app, kind, _Handler)
        except OSError as taken:
            raise InvalidOption(
                f"{host}:{port} cannot be listened on: {taken.strerror or taken}; name another one with --port (0: a "
                "free one)"
            ) from taken
        self.port: int = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name="pok-http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def answered(status: str, said: object, start_response: Callable[..., Any]) -> Iterable[bytes]:
    """`said` as JSON; `status` as `200 OK`."""
    body = json.dumps(said, indent=1).encode() + b"\n"
    start_response(
        status,
        [("Content-Type", "application/json"), ("Content-Length", str(len(body))), ("Cache-Control", "no-store")],
    )
    return [body]
