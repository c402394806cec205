"""A service's health: whether it lives and does its share. Supervisors and load balancers request it; `GET /metrics`,
`/health/live` and `/health/ready` return it over HTTP."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app

from pulsar_on_kafka.base.clock import Clock, SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.base.http_server import OPEN, Application, HttpGuard, HttpServer, answered
from pulsar_on_kafka.base.role_state import RoleState, why_not_alive, why_not_ready
from pulsar_on_kafka.metrics.overview import CONTENT_TYPE, Page

_ASK_S: Final = 2.0
_COUNTS_FOR_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Health:
    """The `reasons` of a fault; empty without one."""

    reasons: Sequence[str]
    roles: Sequence[RoleState] = ()

    @property
    def good(self) -> bool:
        return not self.reasons

    def as_json(self) -> dict[str, Any]:
        return {
            "status": "ok" if self.good else "unavailable",
            "reasons": list(self.reasons),
            "duties": {state.name: state.as_json() for state in self.roles},
        }


class Brokers(Protocol):
    """The call on `KafkaAdmin` that a broker answers."""

    def cluster_id(self, deadline: Deadline) -> str: ...


class KafkaAnswers:
    """The reason why no broker replies. Thread-safe; a request takes two seconds at most and is sent at most every
    three."""

    def __init__(self, brokers: Brokers, clock: Clock | None = None) -> None:
        self._brokers = brokers
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._requested_s: float | None = None
        self._failure = ""

    def failure(self) -> str:
        """'' when one does."""
        with self._lock:
            if self._requested_s is None or self._clock.monotonic() - self._requested_s >= _COUNTS_FOR_S:
                try:
                    self._brokers.cluster_id(Deadline.after(_ASK_S))
                    self._failure = ""
                except LayerError as failure:
                    self._failure = str(failure)
                self._requested_s = self._clock.monotonic()
            return self._failure


class ServiceHealth:
    """Health of a service, from before it has reached Kafka. Thread-safe."""

    def __init__(self) -> None:
        self._states: Callable[[], Sequence[RoleState]] | None = None
        self._parts: list[Callable[[], RoleState]] = []
        self._kafka: KafkaAnswers | None = None
        self._waits_for = "not connected yet"
        self._stopping = False

    def waits_for(self, failure: str) -> None:
        """Why Kafka was not reached when that was last tried."""
        self._waits_for = failure

    def runs(self, states: Callable[[], Sequence[RoleState]], kafka: KafkaAnswers) -> None:
        """Marks the roles as running."""
        self._states, self._kafka = states, kafka

    def watches(self, part: Callable[[], RoleState]) -> None:
        """Adds a part of the process that has a state besides the roles."""
        self._parts.append(part)

    def stops(self) -> None:
        """Marks the service as leaving its groups: it is no longer ready."""
        self._stopping = True

    def live(self) -> Health:
        """Bad when a restart would help. Sends no request to Kafka."""
        states = self._all_states()
        return Health([] if self._stopping else why_not_alive(states), states)

    def ready(self) -> Health:
        """Bad while it does not do its share."""
        if self._stopping:
            return Health(["it is stopping"])
        if self._states is None or self._kafka is None:
            return Health([f"Kafka: {self._waits_for}"])
        states = self._all_states()
        return Health(why_not_ready(states, self._kafka.failure()), states)

    def _all_states(self) -> list[RoleState]:
        roles = self._states() if self._states is not None else ()
        return [*roles, *(part() for part in self._parts)]


LIVE: Final = "/health/live"
READY: Final = "/health/ready"
_METRICS: Final = "/metrics"


class ServiceServer(HttpServer):
    def __init__(
        self,
        host: str,
        port: int,
        registry: CollectorRegistry,
        health: ServiceHealth,
        guard: HttpGuard = OPEN,
        page: Callable[[], Page] = Page,
    ) -> None:
        """`page`: the text behind the metrics of `registry`.

        Only the metrics require a token: supervisors request the health without one.

        Raises the errors of `HttpServer`.
        """
        super().__init__(host, port, _app(registry, health, page), replace(guard, open_paths=frozenset((LIVE, READY))))


def _app(registry: CollectorRegistry, health: ServiceHealth, page: Callable[[], Page]) -> Application:
    alone = make_wsgi_app(registry)

    def metrics(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        more = page()
        if not more.text or environ.get("QUERY_STRING"):  # some of them, by name
            answer: Iterable[bytes] = alone(environ, start_response)
            return answer
        headers = [("Content-Type", CONTENT_TYPE)]
        own = generate_latest(registry)
        if "gzip" not in str(environ.get("HTTP_ACCEPT_ENCODING", "")):
            start_response("200 OK", headers)
            return [own, more.text]
        start_response("200 OK", [*headers, ("Content-Encoding", "gzip")])
        return [gzip.compress(own, 1), more.zipped]

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = str(environ.get("PATH_INFO", ""))
        if path == _METRICS:
            return metrics(environ, start_response)
        if path == LIVE:
            return _answered(health.live(), start_response)
        if path == READY:
            return _answered(health.ready(), start_response)
        start_response("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"There are {_METRICS}, {LIVE} and {READY}.\n".encode()]

    return app


def _answered(health: Health, start_response: Callable[..., Any]) -> Iterable[bytes]:
    return answered("200 OK" if health.good else "503 Service Unavailable", health.as_json(), start_response)
