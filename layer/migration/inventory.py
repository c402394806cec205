"""The inventory lists what a tenant has on a cluster, and what of it another cluster lacks; without messages and
cursors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.side_by_side import side_by_side
from pulsar_on_kafka.mapping.names.replicator_names import cluster_of
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.mapping.state.metadata.metadata_records import ReplicatedBy, TopicRecord
from pulsar_on_kafka.mapping.state.state_topics import SYSTEM_NAMESPACE
from pulsar_on_kafka.metadata.policies import REPLICATION_CLUSTERS
from pulsar_on_kafka.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.metadata.topics import Topic
from pulsar_on_kafka.node.node import Node


@dataclass(frozen=True, slots=True)
class SubscriptionEntry:
    """A subscription without its cursor."""

    properties: Mapping[str, str]
    replicated: bool
    replicated_by: ReplicatedBy = ReplicatedBy.ACKNOWLEDGEMENTS


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
    """None: it was deleted meanwhile."""
    topic = node.topics.find(TopicName.parse(record.name), deadline)
    if topic is None:
        return None
    return TopicEntry(
        record.partitions,
        _without_replication(record.policies),
        tuple(entry.sha256 for entry in node.schemas.index(topic.name, deadline)),
        {
            found.name: SubscriptionEntry(dict(found.properties), found.replicated, found.replicated_by)
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
    """What of the source's metadata the target has not, or otherwise, one sentence each; what it has beyond is its own.

    Empty: whoever comes from the source finds everything.
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
