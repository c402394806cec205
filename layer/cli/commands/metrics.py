"""`pok metrics`: backlogs and holes of a cluster in Prometheus's text form, once or for scraping."""

from __future__ import annotations

from typing import Annotated

import typer
from prometheus_client import CollectorRegistry, generate_latest, start_http_server

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.lifetimes import told_to_stop
from pulsar_on_kafka.cli.shared.output import CommandFailed, news, write_line
from pulsar_on_kafka.metrics.cluster import ClusterCollector


def metrics(
    admin: AdminClient,
    topics: Annotated[list[str] | None, typer.Argument(help="Topics; without any, all of the namespace.")] = None,
    namespace: Annotated[str, typer.Option("--namespace", help="tenant/namespace.")] = "public/default",
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, help="Answer GET /metrics there until Ctrl-C; 0: a free one."),
    ] = None,
) -> None:
    """Print the backlog, holes and live processes of every subscription, for Prometheus (docs/metrics.md)."""
    registry = CollectorRegistry()
    failed: list[str] = []
    registry.register(ClusterCollector(admin, topics or (), namespace, failed.append if port is None else news))
    if port is None:
        write_line(generate_latest(registry).decode().rstrip("\n"))
        if failed:
            raise CommandFailed("; ".join(failed))
        return
    try:
        server, thread = start_http_server(port, registry=registry)
    except OSError as taken:
        raise CommandFailed(f"port {port} cannot be listened on: {taken.strerror}") from taken
    news(f"metrics on port {server.server_port}")
    with told_to_stop(interruptible=True) as stop:
        while not stop.wait(Deadline.after(3600).remaining_s()):
            continue
    server.shutdown()
    server.server_close()
    thread.join()
