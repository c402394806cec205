"""A shell completes names of topics, policies and profiles. What is not known in 0.3 s is not offered,
and nothing that goes wrong is told: the line that is typed belongs to the person."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import typer

if TYPE_CHECKING:
    from pulsar_on_kafka.base.deadline import Deadline
    from pulsar_on_kafka.kafka.admin import KafkaAdmin

WITHIN_S: Final = 0.3
_CONNECT_S: Final = 0.1
_DEFAULT_NAMESPACE: Final = "public/default/"

Complete = Callable[[typer.Context, str], list[str]]


def _silent(complete: Complete) -> Complete:
    @wraps(complete)
    def completed(ctx: typer.Context, incomplete: str) -> list[str]:
        try:
            return [each for each in complete(ctx, incomplete) if each.startswith(incomplete)]
        except (Exception, SystemExit):  # whatever it is: a broken configuration is told by the command itself
            return []

    return completed


def _asked(ctx: typer.Context, ask: Callable[[KafkaAdmin, Deadline], Any]) -> Any:
    """What the cluster answers. Raises whatever keeps it from answering in time."""
    from dataclasses import replace

    from pulsar_on_kafka.base.deadline import Deadline
    from pulsar_on_kafka.cli.shared.command import SHARED, tenant_of
    from pulsar_on_kafka.cli.shared.settings import Given
    from pulsar_on_kafka.kafka.admin import KafkaAdmin
    from pulsar_on_kafka.kafka.opening import nobody_listens

    deadline = Deadline.after(WITHIN_S)
    root = {name: value for name, value in ctx.find_root().params.items() if name in SHARED}
    here = {name: value for name, value in ctx.params.items() if name in SHARED}
    said = Given().overridden(**root).overridden(**here)
    settings = replace(said.settings(ask=False), tenant=tenant_of(ctx.params))
    if nobody_listens(settings.bootstrap, _CONNECT_S):
        return []
    admin = KafkaAdmin({**settings.kafka().common(), "log_level": 0})
    try:
        return ask(admin, deadline)
    finally:
        admin.close()


@_silent
def complete_topic(ctx: typer.Context, incomplete: str) -> list[str]:
    """In the form in which the name is begun: `orders`, `tenant/namespace/orders` or with its domain."""
    from pulsar_on_kafka.mapping.names.read_back import topic_from_kafka

    names = map(topic_from_kafka, _asked(ctx, lambda admin, deadline: admin.list_topics(deadline)))
    found = [name for name in names if name is not None and name.namespace_name != "pulsar/system"]
    if "://" in incomplete:
        return sorted(map(str, found))
    forms = [f"{name.namespace_name}/{name.local_name}" for name in found]
    local = [form.removeprefix(_DEFAULT_NAMESPACE) for form in forms]
    return sorted(forms if "/" in incomplete else local)


@_silent
def complete_policy(ctx: typer.Context, incomplete: str) -> list[str]:
    from pulsar_on_kafka.metadata.policies import POLICIES

    return sorted(POLICIES)


@_silent
def complete_profile(ctx: typer.Context, incomplete: str) -> list[str]:
    from pulsar_on_kafka.client.connection.profiles import Profiles

    return Profiles().names()
