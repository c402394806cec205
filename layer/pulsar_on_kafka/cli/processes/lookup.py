"""`pok lookup`: the service that returns the cluster of a tenant to clients."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.http_server import HttpServer
from pulsar_on_kafka.base.shutdown import stop_on_signals
from pulsar_on_kafka.broker.lookup.http_directory import HttpDirectory, LookupAccess
from pulsar_on_kafka.cli.shared.command import command
from pulsar_on_kafka.cli.shared.http_options import HttpOptions
from pulsar_on_kafka.cli.shared.output import (
    news,
    show_one,
    show_pairs,
    show_result,
    show_table,
    write_json,
    write_line,
)
from pulsar_on_kafka.cli.shared.settings import Settings
from pulsar_on_kafka.clusters.lookup_service.answers import LookupAnswers
from pulsar_on_kafka.clusters.lookup_service.cluster_metadata import ClusterMetadata
from pulsar_on_kafka.clusters.lookup_service.followed_map import following_map
from pulsar_on_kafka_mapping.names.topic_name import TopicName

DEFAULT_PORT: Final = 9465
_ASK_S: Final = 5.0
_STATE_S: Final = 30.0
"""The time-out for requests to both clusters, and to some of their brokers."""

_TLS: Final = "https://"


def _servers_and_access(server: str) -> tuple[list[str], LookupAccess]:
    """The lookup services and their access; `https://` before the server selects HTTPS."""
    return server.removeprefix(_TLS).split(","), LookupAccess.from_environment(tls=server.startswith(_TLS))


app = typer.Typer(no_args_is_help=True)


ServerOption = Annotated[
    str,
    typer.Option("--server", metavar="HOST:PORT[,...]", help="Lookup services, tried in turns; https:// before: TLS."),
]


@command(app, "serve")
def serve(
    settings: Settings,
    admin: AdminClient,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: a free one.")] = DEFAULT_PORT,
    *,
    http: HttpOptions,
) -> None:
    """Answer for the map of tenants (pok tenants) of this cluster until SIGTERM or Ctrl-C.

    Clients name it as pok+lookup://host:port. Any number of such services may run; each follows the map. Addresses are
    those of pok clusters, in which this cluster has to be, too. Messages never pass through here.
    """
    with stop_on_signals(interruptible=True) as stop, following_map(admin.node) as followed:
        metadata = ClusterMetadata(settings.kafka_config, settings.instance)
        try:
            server = HttpServer(http.host, port, LookupAnswers(followed, metadata), http.guard())
            try:
                show_result(
                    settings,
                    f"lookup service of {settings.url} on port {server.port}",
                    {"serving": settings.url, "port": server.port},
                )
                stop.wait()
                news("stopping ...")
            finally:
                server.close()
        finally:
            metadata.close()


@command(app, "get")
def get(
    settings: Settings,
    tenant: Annotated[str, typer.Argument(metavar="TENANT")],
    server: ServerOption = f"localhost:{DEFAULT_PORT}",
    listener: Annotated[
        str, typer.Option("--listener", help="The listener whose address to return; default: that of your network.")
    ] = "",
) -> None:
    """Request a tenant's place from a lookup service, as a client does."""
    place = HttpDirectory(*_servers_and_access(server), listener).place(tenant, Deadline.after(_ASK_S))
    show_one(settings, place.as_json(), place.as_json())


@command(app, "state")
def state(
    settings: Settings,
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    server: ServerOption = f"localhost:{DEFAULT_PORT}",
) -> None:
    """Request a topic's partitions from a lookup service: offsets, cursors, owners and consumers; on both clusters
    while its tenant moves."""
    found = HttpDirectory(*_servers_and_access(server)).topic_state(
        str(TopicName.parse(topic)), Deadline.after(_STATE_S)
    )
    if settings.json:
        write_json(found)
        return
    show_pairs({name: found[name] or "-" for name in ("topic", "tenant", "state", "cluster", "target")})
    for cluster, reported in found["clusters"].items():
        if "failure" in reported:
            write_line(f"{cluster}: {reported['failure']}")
            continue
        ends = {each["partition"]: each for each in reported["partitions"]}
        rows = [
            (
                cluster, name, each["partition"], ends[each["partition"]]["start"], ends[each["partition"]]["end"],
                each["mark_delete"], each["backlog"], each["owner"] or "-", each["served"],
            )
            for name, cursors in reported["subscriptions"].items()
            for each in cursors["partitions"]
        ]  # fmt: skip
        rows = rows or [
            (cluster, "-", number, at["start"], at["end"], "-", "-", "-", "-") for number, at in ends.items()
        ]
        show_table(
            ("cluster", "subscription", "partition", "start", "end", "mark delete", "backlog", "owner", "served"), rows
        )
