"""`pok clusters`: this cluster's name, and the others that it replicates with; `pok cluster`: its policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from pulsar_on_kafka.cli.shared.command import command
from pulsar_on_kafka.cli.shared.connection import admin_of
from pulsar_on_kafka.cli.shared.output import CommandFailed, YesOption, confirm, show_list, show_one, show_result
from pulsar_on_kafka.cli.shared.policies import policies_of
from pulsar_on_kafka.cli.shared.settings import Settings, read_kafka_config
from pulsar_on_kafka_mapping.state.clusters.cluster_registry import ClusterListener

if TYPE_CHECKING:
    from pulsar_on_kafka.admin import AdminClient
    from pulsar_on_kafka.admin.clusters import ClusterInfo

this_cluster = typer.Typer(no_args_is_help=True)
policies_of(
    this_cluster, None, "Policies of the cluster: for all topics for which neither they nor their namespaces have one."
)
app = typer.Typer(no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The cluster's name.")]


@dataclass(frozen=True)
class Registration:
    """Addresses and options that are registered of a cluster."""

    service_url: Annotated[
        str, typer.Option("--service-url", help="Where it is: kafka://host:port[,host:port...], or kafka+ssl://.")
    ]
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="FILE|KEY=VALUE", help="librdkafka's options to reach it; no secrets."),
    ] = None
    listener: Annotated[
        list[str] | None,
        typer.Option(
            "--listener",
            metavar="NAME=URL[@CIDR,...]",
            help="One more address, for clients of the lookup service that name it or are in one of these networks.",
        ),
    ] = None
    gateway_url: Annotated[
        list[str] | None,
        typer.Option(
            "--gateway-url",
            metavar="URL",
            help="A gateway there, for official clients: pulsar://host:port or pulsar+ssl://; with http:// or https:// "
            "its REST. May be repeated.",
        ),
    ] = None
    peer_instance: Annotated[
        str,
        typer.Option(
            "--peer-instance",
            metavar="NAME",
            help="The instance whose state it is there; left out: the one without a name.",
        ),
    ] = ""

    def given_to(self, change: Callable[..., None], name: str) -> None:
        change(
            name,
            self.service_url,
            kafka_config=read_kafka_config(self.config or ()),
            listeners=_listeners(self.listener or ()),
            instance=self.peer_instance,
            gateways=self.gateway_url or (),
        )


@command(app, "list")
def list_clusters(settings: Settings, admin: AdminClient) -> None:
    """List the clusters that are registered here."""
    found = admin.clusters()
    rows = [(one.name, one.service_url, one.local) for one in found]
    show_list(settings, [_fields(one) for one in found], ("cluster", "service url", "local"), rows)


@command(app, "get")
def get(settings: Settings, admin: AdminClient, name: NameArgument) -> None:
    """Show the addresses and options that are registered of a cluster."""
    found = {one.name: one for one in admin.clusters()}.get(name)
    if found is None:
        raise CommandFailed(f"there is no cluster {name!r}")
    options = ", ".join(f"{key}={value}" for key, value in found.kafka_config.items()) or "-"
    listeners = "; ".join(f"{name}={_written(at)}" for name, at in sorted(found.listeners.items())) or "-"
    show_one(
        settings,
        _fields(found),
        {
            "cluster": found.name, "service url": found.service_url, "listeners": listeners, "config": options,
            "instance": found.instance or "-", "gateways": ", ".join(found.gateways) or "-", "local": found.local,
        },
    )  # fmt: skip


@command(app, "create")
def create(settings: Settings, admin: AdminClient, name: NameArgument, registration: Registration) -> None:
    """Register a cluster."""
    registration.given_to(admin.create_cluster, name)
    show_result(settings, f"created cluster {name}", {"created": name})


@command(app, "update")
def update(settings: Settings, admin: AdminClient, name: NameArgument, registration: Registration) -> None:
    """Replace the addresses and options that are registered of a cluster."""
    registration.given_to(admin.update_cluster, name)
    show_result(settings, f"updated cluster {name}", {"updated": name})


@command(app, "delete")
def delete(settings: Settings, name: NameArgument, yes: YesOption = False) -> None:
    """Remove a cluster from the registry. Replication that policies require waits until it is registered again."""
    confirm(f"delete cluster {name}", yes)
    with admin_of(settings) as admin:
        admin.delete_cluster(name)
        show_result(settings, f"deleted cluster {name}", {"deleted": name})


@command(app, "local")
def local(
    settings: Settings,
    admin: AdminClient,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Left out: show it.")] = None,
) -> None:
    """Show or set this cluster's own name, by which others know what comes from it. Set once, it stays."""
    if name is not None:
        admin.set_local_cluster(name)
        show_result(settings, f"this cluster is {name}", {"local": name})
        return
    found = admin.local_cluster()
    show_result(settings, found or "-", found)


def _listeners(given: Sequence[str]) -> dict[str, ClusterListener]:
    """Listeners from NAME=URL@CIDR,... each. Raises typer.BadParameter."""
    found: dict[str, ClusterListener] = {}
    for item in given:
        name, separator, rest = item.partition("=")
        url, _, networks = rest.partition("@")
        if not (name and separator and url) or name in found:
            raise typer.BadParameter(
                f"{item!r:.200}: expected NAME=URL[@CIDR,...], each name once", param_hint="--listener"
            )
        found[name] = ClusterListener(url, tuple(filter(None, networks.split(","))))
    return found


def _written(listener: ClusterListener) -> str:
    return listener.service_url + ("@" + ",".join(listener.networks) if listener.networks else "")


def _fields(cluster: ClusterInfo) -> dict[str, object]:
    listeners = {name: asdict(listener) for name, listener in cluster.listeners.items()}
    return {**cluster._asdict(), "kafka_config": dict(cluster.kafka_config), "listeners": listeners}
