"""`pok namespaces`: make, list and delete namespaces; their properties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pulsar_on_kafka.cli.shared.command import command
from pulsar_on_kafka.cli.shared.output import CommandFailed, YesOption, confirm, show_names, show_result
from pulsar_on_kafka.cli.shared.policies import policies_of
from pulsar_on_kafka.cli.shared.properties import (
    SET,
    RemoveOption,
    SetOption,
    given_properties,
    show_properties,
)
from pulsar_on_kafka.cli.shared.settings import Settings

if TYPE_CHECKING:
    from pulsar_on_kafka.admin import AdminClient

app = typer.Typer(no_args_is_help=True)

NamespaceArgument = Annotated[str, typer.Argument(metavar="NAMESPACE", help="tenant/namespace.")]

policies_of(app, NamespaceArgument, "Policies of a namespace: for all its topics that have none of their own.")


@command(app, "list")
def list_namespaces(
    settings: Settings,
    admin: AdminClient,
    tenant: Annotated[str | None, typer.Argument(metavar="TENANT", show_default=False)] = None,
    everywhere: Annotated[bool, typer.Option("--all", help="Of all tenants of the cluster.")] = False,
) -> None:
    """List the namespaces of a tenant or of the cluster, one a line."""
    if everywhere is (tenant is not None):
        raise typer.BadParameter("name a tenant, or use --all", param_hint="TENANT")
    if tenant is None:
        show_names(settings, admin.list_all_namespaces())
        return
    found = admin.list_namespaces(tenant)
    if not found and tenant not in admin.list_tenants():
        raise CommandFailed(f"there is no tenant {tenant!r:.120}: it has no namespaces")
    show_names(settings, found)


@command(app, "create")
def create(settings: Settings, admin: AdminClient, namespace: NamespaceArgument) -> None:
    """Make a namespace, and with it its tenant."""
    admin.create_namespace(namespace)
    show_result(settings, f"created {namespace}", {"created": namespace})


@command(app, "properties")
def properties(
    settings: Settings,
    admin: AdminClient,
    namespace: NamespaceArgument,
    updated: SetOption = None,
    removed: RemoveOption = None,
) -> None:
    """Show the properties of a namespace, or change some with --set and --remove."""
    given = given_properties(updated, SET)
    if given or removed:
        admin.update_namespace_properties(namespace, given, remove=removed or ())
    show_properties(settings, admin.namespace_properties(namespace))


@command(app, "delete")
def delete(
    settings: Settings,
    admin: AdminClient,
    namespace: NamespaceArgument,
    yes: YesOption = False,
) -> None:
    """Delete a namespace that has no topics."""
    admin.list_topics(namespace)  # before the prompt: does it exist?
    confirm(f"delete namespace {namespace}", yes)
    admin.delete_namespace(namespace)
    show_result(settings, f"deleted {namespace}", {"deleted": namespace})
