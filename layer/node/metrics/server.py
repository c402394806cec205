"""One HTTP server per port that answers `GET /metrics` in Prometheus's text form."""

from __future__ import annotations

import threading
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server

from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka.kafka import handles
from pulsar_on_kafka.node.metrics.collector import MetricsCollector


class MetricsServer:
    """Serves this process's metrics on a port of its own while somebody holds it."""

    def __init__(self, port: int) -> None:
        registry = CollectorRegistry()
        registry.register(MetricsCollector())
        self._server, self._thread = _start(port, registry)
        self.port: int = self._server.server_port
        self.users = 0

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


_servers: dict[int, MetricsServer] = {}
_lock = threading.Lock()


def serve(port: int) -> MetricsServer:
    """The server of `port` (0: a free one, which `MetricsServer.port` tells), started when nobody has yet.

    Raises:
        InvalidOption: the port is taken.
    """
    with _lock:
        server = _servers.get(port) if port else None
        if server is None:
            server = MetricsServer(port)
            _servers[server.port] = server
        server.users += 1
        return server


def release(server: MetricsServer) -> None:
    """Give a server back; the last user closes it."""
    with _lock:
        server.users -= 1
        if server.users > 0 or _servers.get(server.port) is not server:
            return
        del _servers[server.port]
    server.close()


def _start(port: int, registry: CollectorRegistry) -> tuple[Any, threading.Thread]:
    try:
        return start_http_server(port, registry=registry)
    except OSError as taken:
        raise InvalidOption(f"metrics_port {port} cannot be listened on: {taken.strerror}") from taken


def _forget_after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _servers.clear()


handles.after_fork_in_child(_forget_after_fork)
