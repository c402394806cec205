"""`pok tenants`: tenants with their admin roles, and the cluster of each tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pulsar_on_kafka.broker.metadata.policies import tenant_level
from pulsar_on_kafka.broker.metadata.tenants import described
from pulsar_on_kafka.cli.shared.command import command
from pulsar_on_kafka.cli.shared.output import CommandFailed, YesOption, confirm, show_list, show_one, show_result
from pulsar_on_kafka.cli.shared.policies import policies_of
from pulsar_on_kafka.cli.shared.settings import Settings
from pulsar_on_kafka_mapping.state.clusters.tenant_records import EVERY_OTHER_TENANT, TenantRecord

if TYPE_CHECKING:
    from pulsar_on_kafka.admin import AdminClient

app = typer.Typer(no_args_is_help=True)

TenantArgument = Annotated[
    str, typer.Argument(metavar="TENANT", help=f"A tenant, or {EVERY_OTHER_TENANT} for those without an entry.")
]


policies_of(
    app,
    Annotated[str, typer.Argument(metavar="TENANT", callback=tenant_level)],
    "Policies of a tenant, which count for all its namespaces.",
)

NameArgument = Annotated[str, typer.Argument(metavar="TENANT")]
RolesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--admin-role", metavar="ROLE", help="A role that may administer the tenant over REST. May be repeated."
    ),
]
ClustersOption = Annotated[
    list[str] | None,
    typer.Option(
        "--cluster",
        metavar="NAME",
        help="A cluster that the tenant's namespaces may be replicated to. May be repeated.",
    ),
]


@command(app, "create")
def create(
    settings: Settings,
    admin: AdminClient,
    tenant: NameArgument,
    admin_roles: RolesOption = None,
    clusters: ClustersOption = None,
) -> None:
    """Create a tenant, on this cluster alone unless clusters are named."""
    admin.create_tenant(tenant, admin_roles or (), clusters)
    show_result(settings, f"created tenant {tenant}", {"created": tenant})


@command(app, "update")
def update(
    settings: Settings,
    admin: AdminClient,
    tenant: NameArgument,
    admin_roles: RolesOption = None,
    clusters: ClustersOption = None,
    no_admin_roles: Annotated[bool, typer.Option("--no-admin-roles", help="Remove all admin roles.")] = False,
) -> None:
    """Replace a tenant's admin roles, its clusters or both."""
    if no_admin_roles and admin_roles:
        raise typer.BadParameter("it goes without --admin-role", param_hint="--no-admin-roles")
    if not (no_admin_roles or admin_roles or clusters):
        raise typer.BadParameter("nothing to replace: --admin-role, --no-admin-roles or --cluster")
    admin.update_tenant(tenant, () if no_admin_roles else admin_roles, clusters)
    show_result(settings, f"updated tenant {tenant}", {"updated": tenant})


@command(app, "info")
def info(settings: Settings, admin: AdminClient, tenant: NameArgument) -> None:
    """Show a tenant's admin roles and clusters."""
    found = admin.get_tenant_info(tenant)
    shown = {"adminRoles": list(found.admin_roles), "allowedClusters": list(found.allowed_clusters)}
    show_one(
        settings,
        shown,
        {"admin roles": ", ".join(found.admin_roles) or "-", "clusters": ", ".join(found.allowed_clusters)},
    )


@command(app, "delete")
def delete(settings: Settings, admin: AdminClient, tenant: NameArgument, yes: YesOption = False) -> None:
    """Delete a tenant that has no namespaces."""
    admin.get_tenant_info(tenant)  # before the prompt: does it exist?
    confirm(f"delete tenant {tenant}", yes)
    admin.delete_tenant(tenant)
    show_result(settings, f"deleted tenant {tenant}", {"deleted": tenant})


@command(app, "list")
def list_tenants(
    settings: Settings,
    admin: AdminClient,
    all_tenants: Annotated[
        bool, typer.Option("--all", help="Also the tenants of this cluster that have no entry.")
    ] = False,
) -> None:
    """List every entry of the map of tenants to clusters."""
    places = admin.list_tenant_places()
    found: list[dict[str, str | int | None]] = [{**_as_json(record)} for record in places.values()]
    if all_tenants:
        others = set(admin.list_tenants()) - set(places)
        empty = dict.fromkeys(("cluster", "state", "target", "epoch"))
        found += [{"tenant": name, **empty} for name in sorted(others)]
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
