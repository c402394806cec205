"""`pok namespaces`: make, list and delete namespaces."""

from __future__ import annotations

from typing import Annotated

import typer

from pulsar_on_kafka.cli.shared.command import command
from pulsar_on_kafka.cli.shared.confirm import YES_HELP, confirm
from pulsar_on_kafka.cli.shared.connection import admin_of
from pulsar_on_kafka.cli.shared.output import show_names, show_result
from pulsar_on_kafka.cli.shared.policies import (
    AppliedOption,
    PolicyArgument,
    PolicyOrAllArgument,
    ValueArgument,
    remove_policy,
    set_policy,
    show_policies,
)
from pulsar_on_kafka.cli.shared.settings import Settings

app = typer.Typer(help="Make, list and delete namespaces.", no_args_is_help=True)

policy = typer.Typer(
    help="Policies of a namespace: for all its topics that have none of their own.", no_args_is_help=True
)
app.add_typer(policy, name="policy")

NamespaceArgument = Annotated[str, typer.Argument(metavar="NAMESPACE", help="tenant/namespace.")]


@command(app, "list")
def list_namespaces(settings: Settings, tenant: Annotated[str, typer.Argument(metavar="TENANT")]) -> None:
    """List the namespaces of a tenant, one a line."""
    with admin_of(settings) as admin:
        show_names(settings, admin.list_namespaces(tenant))


@command(app, "create")
def create(settings: Settings, namespace: NamespaceArgument) -> None:
    """Make a namespace, and with it its tenant."""
    with admin_of(settings) as admin:
        admin.create_namespace(namespace)
        show_result(settings, f"created {namespace}", {"created": namespace})


@command(app, "delete")
def delete(
    settings: Settings,
    namespace: NamespaceArgument,
    yes: Annotated[bool, typer.Option("--yes", help=YES_HELP)] = False,
) -> None:
    """Delete a namespace that has no topics."""
    with admin_of(settings) as admin:
        admin.list_topics(namespace)  # before anybody is asked: does it exist?
        confirm(f"delete namespace {namespace}", yes)
        admin.delete_namespace(namespace)
        show_result(settings, f"deleted {namespace}", {"deleted": namespace})


@command(policy, "set", negative_numbers=True)
def set_one_policy(
    settings: Settings, namespace: NamespaceArgument, name: PolicyArgument, value: ValueArgument
) -> None:
    """Set a policy. Producers follow `deduplication` within two seconds; schemas are judged by it from now on."""
    set_policy(settings, namespace, name, value)


@command(policy, "get")
def get_policies(
    settings: Settings, namespace: NamespaceArgument, name: PolicyOrAllArgument = None, applied: AppliedOption = False
) -> None:
    """Show the policies that are set here (`-`: nothing), or with --applied those that count here."""
    show_policies(settings, namespace, name, applied=applied)


@command(policy, "remove")
def remove_one_policy(settings: Settings, namespace: NamespaceArgument, name: PolicyArgument) -> None:
    """Remove a policy: the value set above, or the default, counts again."""
    remove_policy(settings, namespace, name)
