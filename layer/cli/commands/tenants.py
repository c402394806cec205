"""`pok tenants`: which cluster has which tenant."""

from __future__ import annotations

from typing import Annotated

import typer

from pulsar_on_kafka.cli.shared.command import command
from pulsar_on_kafka.cli.shared.confirm import YES_HELP, confirm
from pulsar_on_kafka.cli.shared.connection import admin_of
from pulsar_on_kafka.cli.shared.failure import CommandFailed
from pulsar_on_kafka.cli.shared.output import show_pairs, show_result, show_table, write_json
from pulsar_on_kafka.cli.shared.settings import Settings
from pulsar_on_kafka.mapping.state.clusters.tenant_records import EVERY_OTHER_TENANT, TenantRecord
from pulsar_on_kafka.metadata.tenant_moves import described

app = typer.Typer(
    help="Which cluster has which tenant: what the lookup services of this cluster answer.", no_args_is_help=True
)

TenantArgument = Annotated[
    str, typer.Argument(metavar="TENANT", help=f"A tenant, or {EVERY_OTHER_TENANT} for those without an entry.")
]


@command(app, "list")
def list_tenants(settings: Settings) -> None:
    """List every entry of the map."""
    with admin_of(settings) as admin:
        places = admin.list_tenant_places()
    if settings.json:
        write_json([_as_json(record) for record in places.values()])
    else:
        columns = ("tenant", "cluster", "state", "to", "epoch")
        show_table(columns, [(r.tenant, r.cluster, r.state.value, r.target, r.epoch) for r in places.values()])


@command(app, "get")
def get(settings: Settings, tenant: TenantArgument) -> None:
    """Show the cluster of one tenant: its own entry, or else that of `*`."""
    with admin_of(settings) as admin:
        record = admin.tenant_place(tenant)
    if record is None:
        raise CommandFailed(f"tenant {tenant} is on no cluster: neither it nor {EVERY_OTHER_TENANT} has an entry")
    if settings.json:
        write_json(_as_json(record))
    else:
        show_pairs(_as_json(record))


@command(app, "set")
def assign(
    settings: Settings,
    tenant: TenantArgument,
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="The name of a cluster.")],
    yes: Annotated[bool, typer.Option("--yes", help=YES_HELP)] = False,
) -> None:
    """Assign a tenant to a cluster. Its clients move over at once, its data stays where it is."""
    with admin_of(settings) as admin:
        before = admin.tenant_place(tenant)
        if before is not None and before.cluster != cluster:
            confirm(f"send clients of tenant {tenant}, which {described(before)}, to cluster {cluster}", yes)
        admin.assign_tenant(tenant, cluster)
        show_result(settings, f"tenant {tenant} is on cluster {cluster}", {"tenant": tenant, "cluster": cluster})


@command(app, "remove")
def remove(
    settings: Settings,
    tenant: TenantArgument,
    yes: Annotated[bool, typer.Option("--yes", help=YES_HELP)] = False,
) -> None:
    """Remove a tenant's entry, so that the one of `*` counts."""
    with admin_of(settings) as admin:
        confirm(f"remove the entry of tenant {tenant}", yes)
        admin.remove_tenant_place(tenant)
        show_result(settings, f"tenant {tenant} has no entry", {"removed": tenant})


def _as_json(record: TenantRecord) -> dict[str, str | int]:
    return {
        "tenant": record.tenant,
        "cluster": record.cluster,
        "state": record.state.value,
        "target": record.target,
        "epoch": record.epoch,
    }
