"""A small HTTP server around a WSGI application: a thread for each request."""

from __future__ import annotations

import hmac
import json
import socket
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka.base.worker import aside

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
_ASKER_S: Final = 10.0
"""How long whoever asks may take to say what."""


@dataclass(frozen=True, slots=True)
class Tls:
    """How a server encrypts its connections.

    Args:
        certificate, key: PEM files; '' for plain text. The key may be in the certificate's file.
    """

    certificate: str = ""
    key: str = ""

    def context(self) -> ssl.SSLContext | None:
        """Raises InvalidOption: the files are no certificate and its key."""
        if not self.certificate:
            return None
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            made.load_cert_chain(self.certificate, self.key or None)
        except (OSError, ssl.SSLError) as failure:
            raise InvalidOption(
                f"{self.certificate} (key: {self.key or 'in it'}) is no PEM file: {failure}"
            ) from failure
        return made


@dataclass(frozen=True, slots=True)
class Guard(Tls):
    """The guard of an HTTP server requires a token of those who ask, and encrypts the connections.

    Args:
        token: whoever asks has to say `Authorization: Bearer <token>`; '' lets everybody ask.
        open_paths: these everybody may ask.
    """

    token: str = field(default="", repr=False)
    open_paths: frozenset[str] = frozenset()

    def around(self, app: Application) -> Application:
        if not self.token:
            return app
        wanted = f"Bearer {self.token}".encode()

        def guarded(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            said = str(environ.get("HTTP_AUTHORIZATION", "")).encode("utf-8", "replace")
            if environ.get("PATH_INFO", "") in self.open_paths or hmac.compare_digest(said, wanted):
                return app(environ, start_response)
            reason = {"reason": "this service wants its token: Authorization: Bearer ..."}
            return answered("401 Unauthorized", reason, start_response)

        return guarded


def read_token(path: str) -> str:
    """The first line of a file. Raises InvalidOption: there is none."""
    try:
        token = Path(path).read_text(encoding="utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as failure:
        raise InvalidOption(f"the file of the token {path} cannot be read: {failure}") from failure
    if not token:
        raise InvalidOption(f"the file of the token {path} is empty, expected a token in its first line")
    return token


OPEN: Final = Guard()
"""Plain HTTP, for everybody who reaches it."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128


class _IPv6Server(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = _ASKER_S

    def handle(self) -> None:
        try:
            super().handle()
        except (ssl.SSLError, TimeoutError, ConnectionError):
            return  # whoever it was speaks no TLS, or went away

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Nothing: scrapes would fill the log."""


class HttpServer:
    """Listens from when it is made until `close`; who asks has ten seconds to say what."""

    def __init__(self, host: str, port: int, app: Application, guard: Guard = OPEN) -> None:
        """`port` 0: a free one.

        Raises:
            InvalidOption: the port is taken, the address is not one of this machine's, or the certificate is none.
        """
        tls = guard.context()
        kind = _IPv6Server if ":" in host else _Server
        try:
            self._server = make_server(host, port, guard.around(app), kind, _Handler)
        except OSError as taken:
            raise InvalidOption(
                f"{host}:{port} cannot be listened on: {taken.strerror or taken}; name another one with --port (0: a "
                "free one)"
            ) from taken
        if tls is not None:  # who shakes hands slowly holds up its own thread alone
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.port: int = self._server.server_port
        self._thread = aside("pok-http", self._server.serve_forever)

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
