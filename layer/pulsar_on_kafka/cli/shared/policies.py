"""Policies of cluster, namespaces and topics are set, shown and removed by these shared steps."""

from __future__ import annotations

from typing import Annotated

import typer

from pulsar_on_kafka.broker.metadata.policies import CLUSTER, POLICIES, Policy, is_tenant_level, policy_named
from pulsar_on_kafka.cli.shared.command import command
from pulsar_on_kafka.cli.shared.completing import complete_policy
from pulsar_on_kafka.cli.shared.connection import admin_of
from pulsar_on_kafka.cli.shared.output import show_pairs, show_result, write_json, write_line
from pulsar_on_kafka.cli.shared.settings import Settings

PolicyArgument = Annotated[
    str,
    typer.Argument(metavar="POLICY", help=f"One of: {', '.join(POLICIES)}.", autocompletion=complete_policy),
]
PolicyOrAllArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[POLICY]", help="Left out: all of them.", show_default=False, autocompletion=complete_policy
    ),
]
ValueArgument = Annotated[
    str,
    typer.Argument(
        metavar="VALUE",
        help="The policy's value: true or false; a number; a word, in any case; a size as 10G; names with commas.",
    ),
]
AppliedOption = Annotated[
    bool, typer.Option("--applied", help="Show the values that count here, wherever they are set.")
]


def policies_of(noun: typer.Typer, where: object, about: str) -> None:
    """Register `policy set`, `get` and `remove` under a noun whose things are named by the argument `where`; None:
    those of the cluster."""
    policy = typer.Typer(help=about, no_args_is_help=True)
    noun.add_typer(policy, name="policy")

    def set_one(settings: Settings, where: str, name: PolicyArgument, value: ValueArgument) -> None:
        """Set a policy. Producers follow `deduplication` within two seconds; schemas are judged by it from now on."""
        set_policy(settings, where, name, value)

    def get(settings: Settings, where: str, name: PolicyOrAllArgument = None, applied: AppliedOption = False) -> None:
        """Show the policies that are set here (`-`: nothing), or with --applied those that count here."""
        show_policies(settings, where, name, applied=applied)

    def remove(settings: Settings, where: str, name: PolicyArgument) -> None:
        """Remove a policy: the value set above, or the default, counts again."""
        remove_policy(settings, where, name)

    if where is None:  # nothing is above the cluster
        get.__doc__ = (
            "Show the policies that are set here (`-`: nothing), or with --applied those that count where nothing else "
            "is set."
        )
        remove.__doc__ = "Remove a policy: the default counts again."

    for verb, what in (("set", set_one), ("get", get), ("remove", remove)):
        what.__annotations__["where"] = where
        command(policy, verb, negative_numbers=verb == "set", fixed={} if where else {"where": CLUSTER})(what)


def set_policy(settings: Settings, where: str, name: str, value: str) -> None:
    parsed = policy_named(name).parse(value)
    with admin_of(settings) as admin:
        admin.set_policy(where, name, parsed)
        done = f"policy {name} of {_named(where)} is {_shown(parsed)}"
        show_result(settings, done, {"where": where, "policy": name, "value": parsed})


def show_policies(settings: Settings, where: str, name: str | None, *, applied: bool) -> None:
    """One policy's value alone, or all with their names."""
    with admin_of(settings) as admin:
        there = [each.name for each in POLICIES.values() if _has(where, each)]
        names = there if name is None else [name]
        found = {each: admin.get_policy(where, each, applied_value=applied) for each in names}
    if settings.json:
        write_json(found if name is None else found[name])
    elif name is None:
        show_pairs({each: _shown(value) for each, value in found.items()})
    else:
        write_line(_shown(found[name]))


def remove_policy(settings: Settings, where: str, name: str) -> None:
    with admin_of(settings) as admin:
        admin.remove_policy(where, name)
        show_result(settings, f"removed policy {name} of {_named(where)}", {"where": where, "removed": name})


def _has(where: str, policy: Policy) -> bool:
    if is_tenant_level(where):
        return policy.of_tenants
    return where == CLUSTER or not policy.of_cluster


def _named(where: str) -> str:
    return "the cluster" if where == CLUSTER else f"tenant {where[:-2]}" if is_tenant_level(where) else where


def _shown(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(value) or "none"
    return "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
