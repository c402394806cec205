"""`pok serve`: a process that keeps what a cluster needs kept."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from prometheus_client import CollectorRegistry

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.admin.overview.shared import SharedGatherer
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka.base.garbage_collection import tune_collector
from pulsar_on_kafka.base.processes import SERVICE
from pulsar_on_kafka.base.role_state import RoleName
from pulsar_on_kafka.base.shutdown import stop_on_signals
from pulsar_on_kafka.base.text import url_host
from pulsar_on_kafka.base.worker import aside
from pulsar_on_kafka.broker.transactions.coordinator.rules import parsed_limits
from pulsar_on_kafka.cli.shared.command import log_on_stderr
from pulsar_on_kafka.cli.shared.connection import admin_at
from pulsar_on_kafka.cli.shared.gateway_options import GatewayOptions, GatewayPlace, gateway_of
from pulsar_on_kafka.cli.shared.http_options import ConsoleOptions, HttpOptions
from pulsar_on_kafka.cli.shared.output import CommandFailed, show_result
from pulsar_on_kafka.cli.shared.scaler_options import ScalerOptions
from pulsar_on_kafka.cli.shared.schema_registry_options import SchemaRegistryOptions
from pulsar_on_kafka.cli.shared.service_log import LogFormat, LogFormatOption, ServiceLog, notify_systemd
from pulsar_on_kafka.cli.shared.settings import ClusterConfigOption, Settings, read_cluster_config
from pulsar_on_kafka.exceptions import ConnectError, Timeout
from pulsar_on_kafka.metrics import MetricsCollector
from pulsar_on_kafka.metrics.overview import Page
from pulsar_on_kafka.service.health import KafkaAnswers, ServiceHealth, ServiceServer
from pulsar_on_kafka.service.running import RunningRoles

if TYPE_CHECKING:
    from pulsar_on_kafka.console.view_model import Site
    from pulsar_on_kafka.gateway.server import GatewaySettings
    from pulsar_on_kafka.integrations.schema_registry.server import SchemaRegistryServer
    from pulsar_on_kafka.scaler.server import ScalerServer

_log: Final = logging.getLogger(__name__)

DEFAULT_PORT: Final = 9464
_RETRY_INTERVAL_S: Final = 2.0
_LOOK_FIRST_S: Final = 0.1
_LOOK_S: Final = 2.0
_PATIENCE_S: Final = 15.0
_WARNING_INTERVAL_S: Final = 60.0
_PART_ENDING_S: Final = 2.0
_LEAVING_S: Final = 3.0
"""The least that the roles have to leave their groups, however long the gateway took."""
_CLOSING_S: Final = 3.0
"""The time-out for closing the connection; without it an unreachable broker would block much longer."""
_QUESTION_S: Final = 8.0


class ServeExtra(str, Enum):
    """Parts of `pok serve` besides its roles."""

    CONSOLE = "console"
    GATEWAY = "gateway"
    SCALER = "scaler"
    SCHEMA_REGISTRY = "schema-registry"


def serve(
    settings: Settings,
    port: Annotated[
        int,
        typer.Option(
            "--port", min=0, max=65535, help="Answer GET /metrics, /health/live and /health/ready; 0: a free one."
        ),
    ] = DEFAULT_PORT,
    *,
    http: HttpOptions,
    only: Annotated[
        list[RoleName] | None,
        typer.Option("--only", help="Run this role, and others that are named so. May be repeated."),
    ] = None,
    without: Annotated[
        list[RoleName] | None, typer.Option("--without", help="Leave this role to others. May be repeated.")
    ] = None,
    extras: Annotated[
        list[ServeExtra] | None,
        typer.Option(
            "--with",
            help="Also answer with pages for a browser: the console (docs/operating.md); or serve clients of Pulsar's: "
            "the gateway (docs/gateway.md); or report backlogs to KEDA: the scaler (docs/kubernetes.md); or show "
            "schemas to Confluent's clients: the schema-registry (docs/schema-registry.md). May be repeated.",
        ),
    ] = None,
    console: ConsoleOptions,
    gateway_place: GatewayPlace,
    gateway: GatewayOptions,
    scaler: ScalerOptions,
    schema_registry: SchemaRegistryOptions,
    cluster_config: ClusterConfigOption = None,
    transactions: Annotated[
        list[str] | None,
        typer.Option(
            "--transactions",
            metavar="POLICY=VALUE",
            help="A limit of the coordinators of transactions in this process, instead of the cluster's policy of that "
            "name. May be repeated.",
        ),
    ] = None,
    stop_timeout: Annotated[
        float, typer.Option("--stop-timeout", min=0, max=3600, help="How long ending its work may take, in seconds.")
    ] = 20.0,
    log_format: LogFormatOption = LogFormat.TEXT,
) -> None:
    """Run a cluster's roles until SIGTERM or Ctrl-C.

    Several processes share them, and take over from each other. Keeps lists of ledgers, expires messages (TTL), removes
    what dead processes left behind, serves transactions, and copies topics to other clusters. A broker that is away is
    waited for.
    """
    roles = _chosen(only or (), without or (), extras or ())
    secrets = read_cluster_config(cluster_config or ())
    limits = _limits(transactions or ())
    listening = (
        gateway.settings(gateway_place.gateway_host, gateway_place.gateway_port, http.tls())
        if ServeExtra.GATEWAY in (extras or ())
        else None
    )
    health = ServiceHealth()
    registry = CollectorRegistry()
    registry.register(MetricsCollector())
    with log_on_stderr(settings.debug, ServiceLog(log_format), logging.INFO):
        running: list[RunningRoles] = []
        server = ServiceServer(
            http.host, port, registry, health, http.guard(), lambda: running[0].page() if running else Page()
        )
        try:
            _log.info("metrics and health on port %d", server.port)
            with (
                _console(settings, extras or (), console, http, gateway) as site,
                _scaler(extras or (), scaler, http) as scaling,
                _schema_registry(extras or (), schema_registry, http) as schemas,
                stop_on_signals(interruptible=True) as stop,
            ):
                backlogs = None if scaling is None else scaling.gatherer
                if scaling is not None:
                    health.watches(scaling.state)
                waiting = [each.waits_for for each in (health, site, backlogs, schemas) if each is not None]
                admin = _connected(settings, waiting, stop)
                if admin is not None:
                    gatherer = SharedGatherer(admin.node)
                    requesting = None if site is None and backlogs is None else _requesting_admin(settings)
                    if backlogs is not None and requesting is not None:
                        backlogs.connect(gatherer, requesting)
                    if schemas is not None:
                        schemas.connect(admin.node)
                    if site is not None and requesting is not None:
                        site.connect(requesting, gatherer)
                    admin.node.transactions.limits = limits
                    try:
                        begin = partial(RunningRoles, admin.node, roles, SERVICE, secrets, gatherer)
                        _run(settings, admin, roles, begin, health, running, stop, stop_timeout, listening)
                    finally:
                        for part in (site, backlogs):
                            if part is not None:
                                part.close(Deadline.after(_PART_ENDING_S))
                        _close(*(each for each in (requesting, admin) if each is not None))
        finally:
            server.close()


@contextmanager
def _console(
    settings: Settings,
    extras: Sequence[ServeExtra],
    console: ConsoleOptions,
    http: HttpOptions,
    roles: GatewayOptions,
) -> Iterator[Site | None]:
    """The data of the console, which replies meanwhile; None without a console."""
    if ServeExtra.CONSOLE not in extras:
        yield None
        return
    try:
        from pulsar_on_kafka.console.commands import ConsoleCommands
        from pulsar_on_kafka.console.operators import OperatorRights, read_operators
        from pulsar_on_kafka.console.pages.server import ConsoleServer
        from pulsar_on_kafka.console.view_model import Site
    except ModuleNotFoundError as missing:
        raise CommandFailed(f"--with console needs {missing.name}: pip install 'pulsar-on-kafka[console]'") from missing
    site = Site(settings.url, ConsoleCommands(settings.leading_here()))
    operators = read_operators(console.console_operators_file) if console.console_operators_file else None
    rights = OperatorRights(authorization=roles.authorization, super_users=frozenset(roles.super_users or ()))
    guard = console.guard(http)
    server = ConsoleServer(console.console_host, console.console_port, site, guard, operators, rights)
    scheme = "https" if http.tls_certificate else "http"
    _log.info("console on %s://%s:%d", scheme, url_host(console.console_host), server.port)
    try:
        yield site
    finally:
        server.close()


@contextmanager
def _scaler(extras: Sequence[ServeExtra], options: ScalerOptions, http: HttpOptions) -> Iterator[ScalerServer | None]:
    """The scaler for KEDA, which replies meanwhile; None without one."""
    if ServeExtra.SCALER not in extras:
        yield None
        return
    with options.serving(http.tls()) as server:
        _log.info("scaler for KEDA on %s:%d", url_host(options.scaler_host), server.port)
        yield server


@contextmanager
def _schema_registry(
    extras: Sequence[ServeExtra], options: SchemaRegistryOptions, http: HttpOptions
) -> Iterator[SchemaRegistryServer | None]:
    """Confluent's REST API of schemas, which replies meanwhile; None without it."""
    if ServeExtra.SCHEMA_REGISTRY not in extras:
        yield None
        return
    with options.serving(http.tls()) as server:
        scheme = "https" if http.tls_certificate else "http"
        _log.info("schema registry on %s://%s:%d", scheme, url_host(options.schema_registry_host), server.port)
        yield server


def _requesting_admin(settings: Settings) -> AdminClient:
    """The administrator of the console and the scaler, of the same connection: they wait less long than a command."""
    return admin_at(settings.url, settings.kafka_config, settings.instance, operation_timeout_seconds=_QUESTION_S)


def _close(*admins: AdminClient) -> None:
    def close() -> None:
        for admin in admins:
            admin.close()

    closing = aside("pok-closing", close)
    closing.join(_CLOSING_S)
    if closing.is_alive():
        _log.warning("the connection to Kafka is not closed after %g s: it ends with the process", _CLOSING_S)


@contextmanager
def _gateway(admin: AdminClient, settings: GatewaySettings | None, stop_timeout_s: float) -> Iterator[None]:
    """Runs a gateway during the block, if it is configured."""
    if settings is None:
        yield
        return
    with gateway_of(admin, settings, stop_timeout_s) as (url, rest):
        _log.info("gateway on %s, REST on %s", url, rest)
        yield


def _chosen(only: Sequence[RoleName], without: Sequence[RoleName], extras: Sequence[ServeExtra] = ()) -> set[RoleName]:
    chosen = set(only or RoleName) - set(without)
    if not chosen and not extras:
        raise typer.BadParameter("nothing is left to be done", param_hint="--without")
    return chosen


def _limits(words: Sequence[str]) -> dict[str, Any]:
    """POLICY=VALUE, by name."""
    for word in words:
        if "=" not in word:
            raise typer.BadParameter(f"expected POLICY=VALUE, got {word!r:.60}", param_hint="--transactions")
    try:
        return parsed_limits(
            {name.strip(): value.strip() for name, _, value in (word.partition("=") for word in words)}
        )
    except InvalidOption as wrong:
        raise typer.BadParameter(str(wrong), param_hint="--transactions") from wrong


def _connected(
    settings: Settings, waiting: Sequence[Callable[[str], None]], stop: threading.Event
) -> AdminClient | None:
    """Connects to the cluster, as soon as a broker replies; None when told to stop before. Raises permanent errors."""
    quiet = Deadline.after(0)
    while not stop.is_set():
        try:
            return admin_at(settings.url, settings.kafka_config, settings.instance)
        except (ConnectError, Timeout) as away:
            failure = str(away)
        for waits_for in waiting:
            waits_for(failure)
        if quiet.passed():
            _log.warning("waiting for Kafka at %s: %s", settings.bootstrap, failure)
            notify_systemd(f"STATUS=waiting for Kafka at {settings.bootstrap}")
            quiet = Deadline.after(_WARNING_INTERVAL_S)
        stop.wait(_RETRY_INTERVAL_S)
    return None


def _run(
    settings: Settings,
    admin: AdminClient,
    roles: set[RoleName],
    begin: Callable[[], RunningRoles],
    health: ServiceHealth,
    all_running: list[RunningRoles],
    stop: threading.Event,
    stop_timeout_s: float,
    listening: GatewaySettings | None,
) -> None:
    running = begin()
    all_running.append(running)
    kafka = KafkaAnswers(admin.node.admin)
    health.runs(running.states, kafka)
    deadline = Deadline.after(stop_timeout_s)
    try:
        with _gateway(admin, listening, stop_timeout_s):
            tune_collector()
            _report_health(health, settings, roles, stop)
            deadline = Deadline.after(stop_timeout_s)  # of the gateway and the roles together
    finally:
        health.stops()
        _log.info("stopping ...")
        notify_systemd("STOPPING=1")
        if deadline.remaining_s() < _LEAVING_S:
            deadline = Deadline.after(min(_LEAVING_S, stop_timeout_s))
        running.close(deadline)
        if deadline.passed():
            _log.warning("stopped after %g s with work under way; others take it over", stop_timeout_s)


def _report_health(health: ServiceHealth, settings: Settings, roles: set[RoleName], stop: threading.Event) -> None:
    """Logs the beginning of serving, the reason of interruptions, and their end, until the stop."""
    names = sorted(role.value for role in roles)
    patience = Deadline.after(_PATIENCE_S)
    served, reported = False, tuple[str, ...]()
    while not stop.wait(_LOOK_S if served else _LOOK_FIRST_S):
        reasons = tuple(health.ready().reasons)
        kinds = tuple(reason.partition(":")[0] for reason in reasons)  # librdkafka's words differ each time
        if not served and not reasons:
            result = {"serving": settings.url, "duties": names}
            show_result(settings, f"serving {settings.url}: {', '.join(names)}", result)
            notify_systemd("READY=1", f"STATUS=serving {', '.join(names)}")
        elif kinds != reported and (served or patience.passed()):
            if reasons:
                _log.warning("not ready: %s", "; ".join(reasons))
            else:
                _log.info("ready again")
            notify_systemd(f"STATUS={f'not ready: {reasons[0]}' if reasons else 'ready again'}")
        else:
            continue
        served, reported = served or not reasons, kinds
