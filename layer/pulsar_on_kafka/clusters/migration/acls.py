"""Kafka's ACLs of a tenant's topics and subscriptions, carried to the cluster that it gets to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.kafka.acls import Acl
from pulsar_on_kafka_mapping.names.topic_name import PERSISTENT, TopicName
from pulsar_on_kafka_mapping.state.instances import DEFAULT_INSTANCE

_ALL = "*"


class AclSelection(NamedTuple):
    """`own`: of the tenant alone, with the names that its topics have on the target. `wider`: of others, too."""

    own: frozenset[Acl]
    wider: frozenset[Acl]


def of_tenant(acls: Iterable[Acl], tenant: str, renamed: Mapping[str, str]) -> AclSelection:
    """The ACLs of a tenant's topics and subscriptions. Pure.

    Args:
        renamed: Kafka topics of the tenant on the source, and what they are called on the target.
    """
    prefix = DEFAULT_INSTANCE.kafka_topic(TopicName(PERSISTENT, tenant, "n", "t")).split(".")[0] + "."
    own: set[Acl] = set()
    wider: set[Acl] = set()
    for acl in acls:
        # The authors of changes of a cursor without an owner have the names of groups.
        topic, slash, rest = (acl.name, "", "") if acl.kind == "topic" else acl.name.partition("/")
        if topic in renamed and (slash or acl.kind == "topic" or acl.prefixed):
            own.add(acl._replace(name=f"{renamed[topic]}{slash}{rest}"))
        elif acl.name.startswith(prefix):
            own.add(acl)
        elif acl.name == _ALL or (acl.prefixed and prefix.startswith(acl.name)):
            wider.add(acl)
    return AclSelection(frozenset(own), frozenset(wider))


def carry(source: AdminClient, target: AdminClient, tenant: str, deadline: Deadline, *, dry: bool = False) -> list[str]:
    """Make on the target what the source has of `tenant` and it has not; give what is left, one sentence each.

    Args:
        dry: make nothing.
    """
    try:
        found = source.node.admin.access.acls(deadline)
    except errors.NotAuthorized as refused:
        return [f"ACLs of {tenant} cannot be read on the source, carry them over yourself: {refused}"]
    if found is None:
        return []
    chosen = of_tenant(found, tenant, _renamed(source, target, tenant, deadline))
    reported = [f"not of this tenant alone, and not carried over: {acl.command()}" for acl in sorted(chosen.wider)]
    try:
        there = target.node.admin.access.acls(deadline)
    except errors.NotAuthorized as refused:
        return [
            *reported,
            *(f"not known to be on the target ({refused}): {acl.command()}" for acl in sorted(chosen.own)),
        ]
    if there is None:
        return [*reported, *([f"the target has no ACLs, {len(chosen.own)} are not carried over"] if chosen.own else ())]
    missing = sorted(chosen.own - set(there))
    if missing and not dry:
        try:
            target.node.admin.access.create_acls(missing, deadline)
            missing = []
        except errors.NotAuthorized as refused:
            reported.append(f"ACLs cannot be made on the target: {refused}")
    return [*reported, *(f"to be run on the target: {acl.command()}" for acl in missing)]


def _renamed(source: AdminClient, target: AdminClient, tenant: str, deadline: Deadline) -> dict[str, str]:
    found: dict[str, str] = {}
    for namespace in source.node.namespaces.list(tenant, deadline):
        for record in source.node.topics.list(namespace, deadline):
            found[record.kafka_topic] = target.node.settings.instance.kafka_topic(TopicName.parse(record.name))
    return found
