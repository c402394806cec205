"""`pok cluster`: policies of the whole cluster."""

from __future__ import annotations

import typer

from pulsar_on_kafka.cli.shared.command import command
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
from pulsar_on_kafka.metadata.namespaces import CLUSTER

app = typer.Typer(help="Policies of the whole cluster.", no_args_is_help=True)

policy = typer.Typer(
    help="Policies of the cluster: for all topics for which neither they nor their namespaces have one.",
    no_args_is_help=True,
)
app.add_typer(policy, name="policy")


@command(policy, "set", negative_numbers=True)
def set_one_policy(settings: Settings, name: PolicyArgument, value: ValueArgument) -> None:
    """Set a policy."""
    set_policy(settings, CLUSTER, name, value)


@command(policy, "get")
def get_policies(settings: Settings, name: PolicyOrAllArgument = None, applied: AppliedOption = False) -> None:
    """Show the policies that are set here (`-`: nothing), or with --applied those that count where nothing else is
    set."""
    show_policies(settings, CLUSTER, name, applied=applied)


@command(policy, "remove")
def remove_one_policy(settings: Settings, name: PolicyArgument) -> None:
    """Remove a policy: the default counts again."""
    remove_policy(settings, CLUSTER, name)
