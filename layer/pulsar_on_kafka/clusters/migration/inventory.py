"""The inventory lists what a tenant has on a cluster, and what of it another cluster lacks, and makes that there;
without messages and cursors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.worker import side_by_side
from pulsar_on_kafka.broker.metadata.policies import REPLICATION_CLUSTERS, SCHEMA_COMPATIBILITY_STRATEGY, with_policy
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka_mapping.names.subscription_group import cluster_of
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.metadata.metadata_records import TopicRecord
from pulsar_on_kafka_mapping.state.state_topics import SYSTEM_NAMESPACE
from pulsar_on_kafka_schema_compat import CompatibilityStrategy

T = TypeVar("T")
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SubscriptionEntry:
    """A subscription without its cursor."""

    properties: Mapping[str, str]
    replicated: bool


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """`partitions` is 0 for a topic that is not partitioned. `schemas` are the hashes of its live versions in order."""

    partitions: int
    policies: Mapping[str, Any]
    schemas: tuple[str, ...]
    subscriptions: Mapping[str, SubscriptionEntry]


@dataclass(frozen=True, slots=True)
class Inventory:
    """Namespaces and topics by name. Policies are those that are set there, but for `replication_clusters`, which
    migrating itself sets."""

    namespaces: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    topics: Mapping[str, TopicEntry] = field(default_factory=dict)


def inventory(admin: AdminClient, tenant: str, deadline: Deadline) -> Inventory:
    """The tenant's inventory as it stands now. Raises StoreError, and others as the services."""
    node = admin.node
    namespaces = [name for name in node.namespaces.list(tenant, deadline) if name != SYSTEM_NAMESPACE]
    records = [record for namespace in namespaces for record in node.topics.list(namespace, deadline)]
    entries = side_by_side([partial(_entry, node, record, deadline) for record in records])
    topics = {record.name: entry for record, entry in zip(records, entries, strict=True) if entry is not None}
    policies = {name: _without_replication(node.namespaces.policies(name, deadline)) for name in namespaces}
    return Inventory(policies, topics)


def _entry(node: Node, record: TopicRecord, deadline: Deadline) -> TopicEntry | None:
    topic = node.topics.find(TopicName.parse(record.name), deadline)
    if topic is None:
        return None
    return TopicEntry(
        record.partitions,
        _without_replication(record.policies),
        tuple(entry.sha256 for entry in node.schemas.index(topic.name, deadline)),
        {
            found.name: SubscriptionEntry(dict(found.properties), found.replicated)
            for found in subscriptions(node, topic, deadline)
        },
    )


def subscriptions(node: Node, topic: Topic, deadline: Deadline) -> list[Subscription]:
    """The tenant's own, by name: without those by which topics are copied to other clusters."""
    found = node.subscriptions.durable(topic, deadline)
    return [each for each in found if cluster_of(each.name) is None]


def not_persistent(source: AdminClient, tenant: str, deadline: Deadline) -> list[str]:
    """Topics that stay behind, one sentence each."""
    topics, namespaces = source.node.topics, source.node.namespaces.list(tenant, deadline)
    names = [record.name for namespace in namespaces for record in topics.list(namespace, deadline)]
    behind = [name for name in names if not TopicName.parse(name).is_persistent]
    return [f"topic {name} is not persistent, and not moved" for name in behind]


def lacking(source: Inventory, target: Inventory) -> list[str]:
    """Metadata of the source that the target lacks, or has with another value, one sentence each; additional metadata
    of the target is ignored.

    Empty: programs from the source find everything.
    """
    found = []
    for name, policies in source.namespaces.items():
        if name not in target.namespaces:
            found.append(f"namespace {name} is not there")
        elif policies != target.namespaces[name]:
            found.append(f"policies of namespace {name} are {target.namespaces[name]}, expected {dict(policies)}")
    for name, topic in source.topics.items():
        there = target.topics.get(name)
        found += [f"topic {name} is not there"] if there is None else _of_topic(name, topic, there)
    return found


def _of_topic(name: str, here: TopicEntry, there: TopicEntry) -> list[str]:
    found = []
    if here.partitions != there.partitions:
        found.append(f"topic {name} has {there.partitions} partitions, expected {here.partitions} (0: not partitioned)")
    if here.policies != there.policies:
        found.append(f"policies of topic {name} are {dict(there.policies)}, expected {dict(here.policies)}")
    if here.schemas != there.schemas:
        found.append(f"topic {name} has {len(there.schemas)} schemas, expected the {len(here.schemas)} of the source")
    for subscription, entry in here.subscriptions.items():
        if subscription not in there.subscriptions:
            found.append(f"subscription {subscription} of {name} is not there")
        elif there.subscriptions[subscription] != entry:
            found.append(f"properties of subscription {subscription} of {name} differ")
    return found


def _without_replication(policies: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in policies.items() if name != REPLICATION_CLUSTERS.name}


def sync_metadata(source: AdminClient, target: AdminClient, tenant: str, deadline: Deadline) -> None:
    """Make namespaces, topics, schemas and subscriptions of `tenant` that the target lacks; set policies as they are on
    the source. A second call does what a crash left undone; what the target has beyond stays.

    Subscriptions begin at the beginning: their progress comes when their messages are there.

    Raises:
        Refused: a topic is there with more partitions, or partitioned otherwise, or its schemas are others.
    """
    here, there = inventory(source, tenant, deadline), inventory(target, tenant, deadline)
    for namespace in here.namespaces:
        if namespace not in there.namespaces:
            target.node.namespaces.find_or_create(namespace, deadline)
    for name, topic in here.topics.items():
        _sync_topic(source, target, TopicName.parse(name), topic, there, deadline)
    for namespace, policies in here.namespaces.items():
        if there.namespaces.get(namespace) != policies:
            target.node.namespaces.change_policies(namespace, partial(_set, requested=policies), deadline)
        properties = source.node.namespaces.properties(namespace, deadline)
        if properties != target.node.namespaces.properties(namespace, deadline):
            target.node.namespaces.change_properties(namespace, partial(_replaced, requested=properties), deadline)
    _sync_rights(source, target, tenant, here, deadline)


def _sync_rights(source: AdminClient, target: AdminClient, tenant: str, here: Inventory, deadline: Deadline) -> None:
    """Set permissions and the tenant's admin roles as they are on the source."""
    permissions = source.node.namespaces.permissions_of(here.namespaces, deadline)
    for namespace, auth in permissions.items():
        if auth is not None:
            target.node.namespaces.change_permissions(namespace, partial(_replaced, requested=auth), deadline)
    roles = source.node.tenant_infos.admin_roles([tenant], deadline)[tenant]
    if here.namespaces and roles != target.node.tenant_infos.admin_roles([tenant], deadline)[tenant]:
        target.node.tenant_infos.update(tenant, tuple(sorted(roles)), None, deadline)


def _replaced(now: T, requested: T) -> T:
    return requested


def create_apart(node: Node, create: Callable[[], Topic], incarnation: int, deadline: Deadline) -> Topic:
    """Create a missing topic with another incarnation than this one, which the topic has on the cluster that it leaves.
    Official clients keep message ids over the switch: those of the other cluster must not seem this one's."""
    made = create()
    if made.layout.incarnation == incarnation:
        node.memberships.delete_topic(made, [], deadline)
        made = create()
    return made


def _sync_topic(
    source: AdminClient, target: AdminClient, name: TopicName, here: TopicEntry, other: Inventory, deadline: Deadline
) -> None:
    there = other.topics.get(str(name))
    opened = source.node.topics.find(name, deadline)
    if opened is None:
        return  # deleted meanwhile
    sides, entries = ("on the target", "on the source: delete one of them"), opened.layout.entries_per_ledger
    create = partial(
        target.node.topics.find_or_create_like,
        name, here.partitions, deadline, entries_per_ledger=entries, sides=sides,
    )  # fmt: skip
    made = create_apart(target.node, create, opened.layout.incarnation, deadline) if there is None else create()
    if there is None or there.schemas != here.schemas:
        _sync_schemas(source, target, name, here, deadline)
    if there is None or there.policies != here.policies:
        target.node.topics.change_policies(name, partial(_set, requested=here.policies), deadline)
    known = {} if there is None else there.subscriptions
    for subscription in subscriptions(source.node, opened, deadline):
        entry = here.subscriptions.get(subscription.name)
        if entry is None or known.get(subscription.name) == entry:
            continue
        if subscription.name not in known:
            try:
                target.node.subscriptions.create(
                    made, subscription.name, dict.fromkeys(range(made.partitions), 0), deadline
                )
            except errors.AlreadyExists:
                _log.debug("topic=%s subscription=%s another process has created it", name, subscription.name)
        if entry.properties or entry.replicated:
            there_now = target.node.subscriptions.find(made, subscription.name, deadline)
            if there_now is not None:
                target.node.subscriptions.remember(there_now, entry.properties, entry.replicated, deadline)


def _sync_schemas(
    source: AdminClient, target: AdminClient, name: TopicName, here: TopicEntry, deadline: Deadline
) -> None:
    """Every live version in order. They were judged when they were registered on the source, so not again."""
    if not here.schemas:
        return
    strategy = SCHEMA_COMPATIBILITY_STRATEGY.name
    always = CompatibilityStrategy.ALWAYS_COMPATIBLE
    target.node.topics.change_policies(name, lambda now: with_policy(now, strategy, always), deadline)
    for stored in source.node.schemas.versions(name, deadline):
        target.node.schemas.upload(name, stored.info, deadline)
    target.node.topics.change_policies(name, partial(_set, requested=here.policies), deadline)
    hashes = tuple(entry.sha256 for entry in target.node.schemas.index(name, deadline))
    if hashes != here.schemas:
        raise errors.Refused(
            f"topic {name} has {len(hashes)} schemas on the target that are not the {len(here.schemas)} of the source: "
            "delete those of the target (pok schemas delete --force)"
        )


def _set(now: Mapping[str, Any], requested: Mapping[str, Any]) -> dict[str, Any]:
    """These policies, with the `replication_clusters` that is set."""
    kept = {name: value for name, value in now.items() if name == "replication_clusters"}
    return {**requested, **kept}
