"""`pok tenants`: which cluster has which tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pulsar_on_kafka.broker.metadata.tenants import described
from pulsar_on_kafka.cli.shared.command import command
from pulsar_on_kafka.cli.shared.output import CommandFailed, YesOption, confirm, show_list, show_one, show_result
from pulsar_on_kafka.cli.shared.settings import Settings
from pulsar_on_kafka_mapping.state.clusters.tenant_records import EVERY_OTHER_TENANT, TenantRecord

if TYPE_CHECKING:
    from pulsar_on_kafka.admin import AdminClient

app = typer.Typer(no_args_is_help=True)

TenantArgument = Annotated[
    str, typer.Argument(metavar="TENANT", help=f"A tenant, or {EVERY_OTHER_TENANT} for those without an entry.")
]


@command(app, "list")
def list_tenants(settings: Settings, admin: AdminClient) -> None:
    """List every entry of the map."""
    places = admin.list_tenant_places()
    found = [_as_json(record) for record in places.values()]
    show_list(settings, found, ("tenant", "cluster", "state", "to", "epoch"), [tuple(each.values()) for each in found])


@command(app, "get")
def get(settings: Settings, admin: AdminClient, tenant: TenantArgument) -> None:
    """Show the cluster of one tenant: its own entry, or else that of `*`."""
    record = admin.tenant_place(tenant)
    if record is None:
        raise CommandFailed(f"tenant {tenant} is on no cluster: neither it nor {EVERY_OTHER_TENANT} has an entry")
    show_one(settings, _as_json(record), _as_json(record))


@command(app, "set")
def assign(
    settings: Settings,
    admin: AdminClient,
    tenant: TenantArgument,
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="The name of a cluster.")],
    yes: YesOption = False,
) -> None:
    """Assign a tenant to a cluster. Its clients move over at once, its data stays where it is."""
    before = admin.tenant_place(tenant)
    if before is not None and before.cluster != cluster:
        confirm(f"send clients of tenant {tenant}, which {described(before)}, to cluster {cluster}", yes)
    admin.assign_tenant(tenant, cluster)
    reported = f"tenant {tenant} is on cluster {cluster}"
    if before is not None:
        reported += (
            ", as it was before" if before.cluster == cluster else f"; before it was on cluster {before.cluster}"
        )
    was = None if before is None else before.cluster
    show_result(settings, reported, {"tenant": tenant, "cluster": cluster, "before": was})


@command(app, "remove")
def remove(
    settings: Settings,
    admin: AdminClient,
    tenant: TenantArgument,
    yes: YesOption = False,
) -> None:
    """Remove a tenant's entry, so that the one of `*` counts."""
    before = admin.list_tenant_places().get(tenant)
    if before is None:
        raise CommandFailed(f"tenant {tenant} has no entry")
    confirm(f"remove the entry of tenant {tenant}, which {described(before)}", yes)
    admin.remove_tenant_place(tenant)
    now = admin.tenant_place(tenant)
    show_result(
        settings,
        f"removed the entry of tenant {tenant}, which was on cluster {before.cluster}; now it {described(now)}",
        {"removed": tenant, "before": before.cluster, "cluster": None if now is None else now.cluster},
    )


def _as_json(record: TenantRecord) -> dict[str, str | int]:
    return {
        "tenant": record.tenant,
        "cluster": record.cluster,
        "state": record.state.value,
        "target": record.target,
        "epoch": record.epoch,
    }
