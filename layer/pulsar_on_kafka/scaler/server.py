"""A gRPC server for KEDA, with one event loop in a thread of its own. Needs the extra `scaler`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import grpc

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import (
    DeadlineExceeded,
    InvalidOption,
    LayerError,
    NoSuchNamespace,
    NoSuchSubscription,
    NoSuchTopic,
)
from pulsar_on_kafka.base.http_server import ServerTls
from pulsar_on_kafka.base.role_state import RoleState
from pulsar_on_kafka.base.text import url_host
from pulsar_on_kafka.base.worker import aside
from pulsar_on_kafka.scaler.backlog import MeasuredBacklog, may_wait, measured
from pulsar_on_kafka.scaler.gathering import BacklogGatherer
from pulsar_on_kafka.scaler.trigger import Trigger, parse_trigger
from pulsar_on_kafka.scaler.wire import SERVICE, message_class

_T = TypeVar("_T")

METRIC: Final = "pok-backlog"
"""The metric's name; KEDA puts the trigger's number before it."""
ANSWER_S: Final = 5.0
"""The longest wait for a pass; then the reply is UNAVAILABLE."""
MAX_CALLS: Final = 4_000
"""The limit of calls under way, streams included. More get RESOURCE_EXHAUSTED."""
MAX_STREAMS: Final = 2_000
"""The limit of open streams. More get RESOURCE_EXHAUSTED."""
_MAX_REQUEST_BYTES: Final = 64 * 1024
_MIN_PAUSE_S: Final = 0.05
_KEEP_ALIVE_MS: Final = 60_000
_IDLE_MS: Final = 600_000
"""A connection without calls is closed after this time."""
_ENDING_S: Final = 1.0

_STATUS: Final[tuple[tuple[type[LayerError], grpc.StatusCode], ...]] = (
    (InvalidOption, grpc.StatusCode.INVALID_ARGUMENT),
    (NoSuchNamespace, grpc.StatusCode.NOT_FOUND),
    (NoSuchTopic, grpc.StatusCode.NOT_FOUND),
    (NoSuchSubscription, grpc.StatusCode.NOT_FOUND),
    (LayerError, grpc.StatusCode.UNAVAILABLE),
)
"""The status of each error; the first match counts."""

_IS_ACTIVE: Final = message_class("IsActiveResponse")
_SPEC: Final = message_class("MetricSpec")
_SPECS: Final = message_class("GetMetricSpecResponse")
_VALUE: Final = message_class("MetricValue")
_VALUES: Final = message_class("GetMetricsResponse")


@dataclass(frozen=True, slots=True)
class ScalerTls(ServerTls):
    """TLS settings of the scaler.

    Args:
        trusted: a PEM file of authorities; clients must present a certificate of one of them. '' admits all clients.
    """

    trusted: str = ""

    def credentials(self) -> Any:
        """None for plain text. Raises InvalidOption: a file is not PEM."""
        if self.context() is None:
            return None
        try:
            chain = Path(self.certificate).read_bytes()
            key = Path(self.key).read_bytes() if self.key else chain
            authorities = Path(self.trusted).read_bytes() if self.trusted else None
        except OSError as failure:
            raise InvalidOption(f"{self.trusted or self.certificate} cannot be read: {failure}") from failure
        if authorities is not None and b"-----BEGIN CERTIFICATE-----" not in authorities:
            raise InvalidOption(f"{self.trusted} has no certificate in PEM")
        return grpc.ssl_server_credentials([(key, chain)], authorities, require_client_auth=authorities is not None)


class ScalerService:
    """The methods of KEDA's external scaler. For one event loop. Source: KEDA's `externalscaler.proto`."""

    def __init__(self, gatherer: BacklogGatherer) -> None:
        self._gatherer = gatherer
        self._streams = 0

    async def is_active(self, request: Any, context: Any) -> Any:
        trigger = await self._trigger(request, context)
        return _IS_ACTIVE(result=(await self._measured(trigger, context)).is_active(trigger))

    async def get_metric_spec(self, request: Any, context: Any) -> Any:
        """The target for each replica, which needs no cluster."""
        trigger = await self._trigger(request, context)
        spec = _SPEC(metricName=METRIC, targetSize=trigger.per_replica, targetSizeFloat=trigger.per_replica)
        return _SPECS(metricSpecs=[spec])

    async def get_metrics(self, request: Any, context: Any) -> Any:
        trigger = await self._trigger(request.scaledObjectRef, context)
        if request.metricName != METRIC:
            await _abort(context, InvalidOption(f"metricName is {request.metricName!r:.100}, expected {METRIC!r}"))
        value = (await self._measured(trigger, context)).reported(trigger)
        return _VALUES(metricValues=[_VALUE(metricName=METRIC, metricValue=value, metricValueFloat=value)])

    async def stream_is_active(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """Sends the present state, and each change within an interval and a pass. The stream stays open, without a
        state, while the cluster is away later."""
        trigger = await self._trigger(request, context)
        if self._streams >= MAX_STREAMS:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_STREAMS:,} streams are open")
        self._streams += 1
        try:
            active = (await self._measured(trigger, context)).is_active(trigger)
            yield _IS_ACTIVE(result=active)
            while True:
                await asyncio.sleep(max(_MIN_PAUSE_S, self._gatherer.fresh_for_s()))
                if (await self._measured(trigger, context, waits=True)).is_active(trigger) != active:
                    active = not active
                    yield _IS_ACTIVE(result=active)
        finally:
            self._streams -= 1

    async def _trigger(self, reference: Any, context: Any) -> Trigger:
        try:
            return parse_trigger({each.key: each.value for each in reference.scalerMetadata})
        except InvalidOption as failure:
            await _abort(context, failure)

    async def _measured(self, trigger: Trigger, context: Any, *, waits: bool = False) -> MeasuredBacklog:
        """The backlog; with `waits`, as soon as the cluster replies."""
        while True:
            deadline = Deadline.after(ANSWER_S)
            try:
                found = (await self._answer(self._gatherer.request(), deadline)).selected(trigger)
                due = {}
                if not trigger.include_delayed:
                    waiting = [each for each in found if may_wait(each)]
                    requests = [self._gatherer.request_due(each.topic, each.subscription) for each in waiting]
                    for each, request in zip(waiting, requests, strict=True):
                        due[each.topic] = await self._answer(request, deadline)
                return measured(found, due)
            except LayerError as failure:
                if not waits or _status(failure) is not grpc.StatusCode.UNAVAILABLE:
                    await _abort(context, failure)
            await asyncio.sleep(1.0)

    async def _answer(self, request: Future[_T], deadline: Deadline) -> _T:
        """The result of a request that others may share. Raises LayerError."""
        answer = asyncio.wrap_future(request)
        try:
            return await asyncio.wait_for(asyncio.shield(answer), deadline.remaining_s())
        except asyncio.TimeoutError as late:
            answer.add_done_callback(_retrieved)
            last = f"; the last failure: {self._gatherer.failure}" if self._gatherer.failure else ""
            raise DeadlineExceeded(f"Kafka did not reply within {ANSWER_S:g} s{last}") from late


def _retrieved(answer: asyncio.Future[Any]) -> None:
    """Marks a failure as seen: its caller has got another one."""
    if not answer.cancelled():
        answer.exception()


def _status(failure: LayerError) -> grpc.StatusCode:
    return next(status for kind, status in _STATUS if isinstance(failure, kind))


async def _abort(context: Any, failure: LayerError) -> NoReturn:
    await context.abort(_status(failure), str(failure))
    raise failure  # abort raises


class ScalerServer:
    """Listens from its constructor until `close`. Memory: `MAX_CALLS` requests of 64 KiB at most."""

    def __init__(self, host: str, port: int, gatherer: BacklogGatherer, tls: ScalerTls) -> None:
        """Port 0 is a free one.

        Raises InvalidOption: the port is taken, the address is not one of this machine's, or a file of TLS is none.
        """
        self._address = f"{url_host(host)}:{port}"
        self.gatherer = gatherer
        self._credentials = tls.credentials()
        self._decided = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._failure = ""
        self.port = 0
        self._thread = aside("pok-scaler", lambda: asyncio.run(self._serve()))
        self._decided.wait()
        if self.port == 0:
            raise InvalidOption(
                f"{self._address} cannot be listened on: {self._failure}; name another one with --scaler-port (0: a "
                "free one)"
            )

    def state(self) -> RoleState:
        """The state for health checks."""
        state = self.gatherer.state()
        return state if self._thread.is_alive() else replace(state, dead=(*state.dead, self._thread.name))

    def close(self, deadline: Deadline) -> None:
        """A second call does nothing."""
        if self._loop is not None and self._ended is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(deadline.remaining_s())

    async def _serve(self) -> None:
        try:
            self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
            server = grpc.aio.server(
                maximum_concurrent_rpcs=MAX_CALLS,
                options=(
                    ("grpc.so_reuseport", 0),
                    ("grpc.max_receive_message_length", _MAX_REQUEST_BYTES),
                    ("grpc.keepalive_time_ms", _KEEP_ALIVE_MS),
                    ("grpc.max_connection_idle_ms", _IDLE_MS),
                ),
            )
            server.add_generic_rpc_handlers((_handlers(ScalerService(self.gatherer)),))
            try:
                if self._credentials is None:
                    port = server.add_insecure_port(self._address)
                else:
                    port = server.add_secure_port(self._address, self._credentials)
                await server.start()
            except RuntimeError as taken:
                self._failure = str(taken)
                return
            self.port = port
            self._decided.set()
            await self._ended.wait()
            await server.stop(_ENDING_S)
        finally:
            self._decided.set()


def _handlers(service: ScalerService) -> Any:
    reference, metrics = message_class("ScaledObjectRef"), message_class("GetMetricsRequest")
    unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
    methods = {
        "IsActive": unary(service.is_active, reference.FromString, _IS_ACTIVE.SerializeToString),
        "StreamIsActive": stream(service.stream_is_active, reference.FromString, _IS_ACTIVE.SerializeToString),
        "GetMetricSpec": unary(service.get_metric_spec, reference.FromString, _SPECS.SerializeToString),
        "GetMetrics": unary(service.get_metrics, metrics.FromString, _VALUES.SerializeToString),
    }
    return grpc.method_handlers_generic_handler(SERVICE, methods)
