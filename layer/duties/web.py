"""What a service answers over HTTP: `GET /metrics`, `/health/live` and `/health/ready`."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from layer.duties.health import Health, ServiceHealth
from layer.errors import InvalidOption

LIVE: Final = "/health/live"
READY: Final = "/health/ready"
_METRICS: Final = "/metrics"
_ASKER_S: Final = 10.0
"""How long whoever asks may take to say what."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False


class _IPv6Server(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = _ASKER_S

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Nothing: scrapes would fill the log."""


class ServiceServer:
    """Listens from when it is made until `close`; a thread for each request, which has ten seconds to be said."""

    def __init__(self, host: str, port: int, registry: CollectorRegistry, health: ServiceHealth) -> None:
        """`port` 0: a free one.

        Raises:
            InvalidOption: the port is taken, or the address is not one of this machine's.
        """
        kind = _IPv6Server if ":" in host else _Server
        try:
            self._server = make_server(host, port, _app(registry, health), kind, _Handler)
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


def _app(registry: CollectorRegistry, health: ServiceHealth) -> Callable[..., Iterable[bytes]]:
    metrics = make_wsgi_app(registry)

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = str(environ.get("PATH_INFO", ""))
        if path == _METRICS:
            answer: Iterable[bytes] = metrics(environ, start_response)
            return answer
        if path == LIVE:
            return _answered(health.live(), start_response)
        if path == READY:
            return _answered(health.ready(), start_response)
        start_response("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"There are {_METRICS}, {LIVE} and {READY}.\n".encode()]

    return app


def _answered(health: Health, start_response: Callable[..., Any]) -> Iterable[bytes]:
    body = json.dumps(health.as_json(), indent=1).encode() + b"\n"
    start_response(
        "200 OK" if health.good else "503 Service Unavailable",
        [("Content-Type", "application/json"), ("Content-Length", str(len(body))), ("Cache-Control", "no-store")],
    )
    return [body]
