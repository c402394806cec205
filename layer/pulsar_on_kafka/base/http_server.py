"""A small HTTP server around a WSGI application: a thread for each connection, of which there are so many at most."""

from __future__ import annotations

import hmac
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka.base.worker import aside

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
_ASKER_S: Final = 10.0
"""A client has to send its request's head within this time, TLS handshake included."""
MAX_WAITING: Final = 100
"""Connections that have not sent a request's head; with one more the oldest is closed."""
MAX_ANSWERED: Final = 100
"""Connections whose request is being answered; one more is closed."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    """TLS settings of a server.

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
class HttpGuard(ServerTls):
    """The guard of an HTTP server requires a token from clients, and encrypts the connections.

    Args:
        token: requests need `Authorization: Bearer <token>`; '' admits all.
        open_paths: these need no token.
    """

    token: str = field(default="", repr=False)
    open_paths: frozenset[str] = frozenset()

    def around(self, app: Application) -> Application:
        if not self.token:
            return app
        requested = f"Bearer {self.token}".encode()

        def guarded(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            reported = str(environ.get("HTTP_AUTHORIZATION", "")).encode("utf-8", "replace")
            if environ.get("PATH_INFO", "") in self.open_paths or hmac.compare_digest(reported, requested):
                return app(environ, start_response)
            reason = {"reason": "this service requires its token: Authorization: Bearer ..."}
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


def read_tokens(path: str, role: str) -> dict[str, str]:
    """The tokens by name, from a file with a line `NAME TOKEN` for each operator or user (`role`). Empty lines, and
    lines that begin with #, are skipped.

    Raises InvalidOption: the file cannot be read, has no name, or a line is of another form or repeats a name or a
    token.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as failure:
        raise InvalidOption(f"the file of {role}s {path} cannot be read: {failure}") from failure
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2:
            raise InvalidOption(f"line {number} of the file of {role}s {path} has {len(words)} words: NAME TOKEN")
        name, token = words
        if name in found:
            raise InvalidOption(f"line {number} of the file of {role}s {path} names {name} again")
        if token in found.values():
            raise InvalidOption(f"line {number} of the file of {role}s {path} has the token of another {role}")
        found[name] = token
    if not found:
        raise InvalidOption(f"the file of {role}s {path} has no line NAME TOKEN")
    return found


OPEN: Final = HttpGuard()
"""Plain HTTP, for every client that reaches it."""


class _Server(ThreadingMixIn, WSGIServer):
    """Memory: a thread for each of `MAX_WAITING` and `MAX_ANSWERED` connections."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[socket.socket, float] = {}
        """Connections without a complete request head, the oldest first, with the time since when."""
        self._answered: set[socket.socket] = set()
        super().__init__(*arguments, **options)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            oldest = next(iter(self._waiting)) if len(self._waiting) >= MAX_WAITING else None
            if oldest is not None:
                del self._waiting[oldest]
            self._waiting[request] = time.monotonic()
        if oldest is not None:
            _cut(oldest)
        super().process_request(request, client_address)

    def has_come(self, request: socket.socket) -> bool:
        """The head of a connection's request is there; whether it may be answered."""
        with self._lock:
            if self._waiting.pop(request, None) is None or len(self._answered) >= MAX_ANSWERED:
                return False
            self._answered.add(request)
            return True

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._waiting.pop(request, None)
            self._answered.discard(request)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Close, every half second, what has waited too long: a client that sends a byte now and then, too."""
        end_s = time.monotonic() - _ASKER_S
        with self._lock:
            late = [request for request, since_s in self._waiting.items() if since_s < end_s]
            for request in late:
                del self._waiting[request]
        for request in late:
            _cut(request)


def _cut(connection: socket.socket) -> None:
    """Ends a connection; its reading thread notices, and ends."""
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


class _IPv6Server(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = _ASKER_S

    def handle(self) -> None:
        try:
            super().handle()
        except (ssl.SSLError, TimeoutError, ConnectionError):
            return  # the client speaks no TLS, or disconnected

    def parse_request(self) -> bool:
        server: Any = self.server
        return super().parse_request() and server.has_come(self.connection)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Nothing: scrapes would fill the log."""


class HttpServer:
    """Listens from when it is made until `close`. A client has ten seconds for its request's head."""

    def __init__(self, host: str, port: int, app: Application, guard: HttpGuard = OPEN, option: str = "--port") -> None:
        """`port` 0: a free one; `option` is what names it.

        Raises:
            InvalidOption: the port is taken, the address is not one of this machine's, or the certificate is none.
        """
        tls = guard.context()
        kind = _IPv6Server if ":" in host else _Server
        try:
            self._server = make_server(host, port, guard.around(app), kind, _Handler)
        except OSError as taken:
            raise InvalidOption(
                f"{host}:{port} cannot be listened on: {taken.strerror or taken}; name another one with {option} (0: a "
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


def answered(status: str, reported: object, start_response: Callable[..., Any]) -> Iterable[bytes]:
    """The JSON response of `reported`; `status` as `200 OK`."""
    body = json.dumps(reported, indent=1).encode() + b"\n"
    start_response(
        status,
        [("Content-Type", "application/json"), ("Content-Length", str(len(body))), ("Cache-Control", "no-store")],
    )
    return [body]
