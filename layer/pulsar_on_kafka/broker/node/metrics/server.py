"""One HTTP server per port that answers `GET /metrics` in Prometheus's text form."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, make_wsgi_app

from pulsar_on_kafka.base import forks
from pulsar_on_kafka.base.http_server import HttpServer
from pulsar_on_kafka.broker.node.metrics.collector import MetricsCollector


class MetricsServer:
    """Serves this process's metrics on a port of its own, until its last user releases it."""

    def __init__(self, port: int) -> None:
        registry = CollectorRegistry()
        registry.register(MetricsCollector())
        self._server = HttpServer("0.0.0.0", port, make_wsgi_app(registry), option="metrics_port")  # noqa: S104
        self.port: int = self._server.port
        self.users = 0

    def close(self) -> None:
        self._server.close()


_servers: dict[int, MetricsServer] = {}
_lock = forks.process_lock()


def serve(port: int) -> MetricsServer:
    """The server of `port` (0: a free one, see `MetricsServer.port`); the first call starts it.

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


forks.after_fork_in_child(_servers.clear)
