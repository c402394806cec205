"""`pok gateway`: clients of Pulsar's, in any language, on this cluster."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from pulsar_on_kafka.base.garbage_collection import tune_collector
from pulsar_on_kafka.base.shutdown import stop_on_signals
from pulsar_on_kafka.cli.shared.command import log_on_stderr
from pulsar_on_kafka.cli.shared.connection import admin_at
from pulsar_on_kafka.cli.shared.gateway_options import GATEWAY_PORT, GatewayOptions, gateway_of, served_cluster
from pulsar_on_kafka.cli.shared.http_options import ListenOptions
from pulsar_on_kafka.cli.shared.output import show_result
from pulsar_on_kafka.cli.shared.service_log import LogFormat, LogFormatOption, ServiceLog, notify_systemd
from pulsar_on_kafka.cli.shared.settings import Settings


def gateway(
    settings: Settings,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: a free one.")] = GATEWAY_PORT,
    cluster: Annotated[
        str,
        typer.Option(
            "--cluster", metavar="NAME", help="With a map of tenants as --url: the cluster whose tenants it serves."
        ),
    ] = "",
    *,
    listen: ListenOptions,
    options: GatewayOptions,
    stop_timeout: Annotated[
        float, typer.Option("--stop-timeout", min=0, max=3600, help="How long ending its work may take, in seconds.")
    ] = 20.0,
    log_format: LogFormatOption = LogFormat.TEXT,
) -> None:
    """Serve Pulsar's binary protocol until SIGTERM or Ctrl-C: official clients connect to pulsar://host:port.

    Its state is in Kafka alone. docs/gateway.md describes the supported commands.
    """
    listening = options.settings(listen.host, port, listen.tls())
    with (
        log_on_stderr(settings.debug, ServiceLog(log_format), logging.INFO),
        stop_on_signals(interruptible=True) as stop,
        served_cluster(settings, cluster) as (served, follower),
        admin_at(served, settings.kafka_config, settings.instance) as admin,
        gateway_of(admin, listening, stop_timeout, follower) as (url, rest),
    ):
        reported = {"serving": served, "url": url, "rest": rest}
        tenants = f", for tenants of {cluster} by {settings.url}" if follower else ""
        show_result(settings, f"gateway of {served}{tenants}: {url}, REST at {rest}", reported)
        notify_systemd("READY=1", f"STATUS=serving {url}")
        tune_collector()
        stop.wait()
        notify_systemd("STOPPING=1")
