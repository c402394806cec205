"""A service answers `GET /metrics`, `/health/live` and `/health/ready` over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from prometheus_client import CollectorRegistry, make_wsgi_app

from pulsar_on_kafka.base.http_server import OPEN, Application, Guard, HttpServer, answered
from pulsar_on_kafka.service.health import Health, ServiceHealth

LIVE: Final = "/health/live"
READY: Final = "/health/ready"
_METRICS: Final = "/metrics"


class ServiceServer(HttpServer):
    """Listens from when it is made until `close`."""

    def __init__(
        self, host: str, port: int, registry: CollectorRegistry, health: ServiceHealth, guard: Guard = OPEN
    ) -> None:
        """A token is wanted for the metrics alone: who starts and stops services asks for their health without one.

        Raises as `HttpServer`.
        """
        super().__init__(host, port, _app(registry, health), replace(guard, open_paths=frozenset((LIVE, READY))))


def _app(registry: CollectorRegistry, health: ServiceHealth) -> Application:
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
    return answered("200 OK" if health.good else "503 Service Unavailable", health.as_json(), start_response)
