"""Step 1: what a tenant has on one cluster is made on another. What is there already stays."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.metadata.policies import SCHEMA_COMPATIBILITY_STRATEGY, with_policy
from pulsar_on_kafka.migration.inventory import Inventory, TopicEntry, inventory, subscriptions
from pulsar_on_kafka.schema_compat import CompatibilityStrategy

_log: Final = logging.getLogger(__name__)


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
            target.node.namespaces.change_policies(namespace, partial(_set, wanted=policies), deadline)


def _sync_topic(
    source: AdminClient, target: AdminClient, name: TopicName, here: TopicEntry, other: Inventory, deadline: Deadline
) -> None:
    there = other.topics.get(str(name))
    opened = source.node.topics.find(name, deadline)
    if opened is None:
        return  # deleted meanwhile
    made = target.node.topics.find_or_create(
        name, here.partitions, deadline, entries_per_ledger=opened.layout.entries_per_ledger
    )
    partitions = made.partitions if made.partitioned else 0
    if bool(partitions) != bool(here.partitions) or partitions > here.partitions:
        raise errors.Refused(
            f"topic {name} has {partitions} partitions on the target, {here.partitions} on the source "
            "(0: not partitioned): delete one of them"
        )
    if partitions < here.partitions:
        made = target.node.topics.grow_to(name, here.partitions, deadline)
    if there is None or there.schemas != here.schemas:
        _sync_schemas(source, target, name, here, deadline)
    if there is None or there.policies != here.policies:
        target.node.topics.change_policies(name, partial(_set, wanted=here.policies), deadline)
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
                _log.debug("topic=%s subscription=%s somebody else has made it", name, subscription.name)
        if entry.properties or entry.replicated:
            there_now = target.node.subscriptions.find(made, subscription.name, deadline)
            if there_now is not None:
                target.node.subscriptions.remember(
                    there_now, entry.properties, entry.replicated, deadline, replicated_by=entry.replicated_by
                )


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
    target.node.topics.change_policies(name, partial(_set, wanted=here.policies), deadline)
    hashes = tuple(entry.sha256 for entry in target.node.schemas.index(name, deadline))
    if hashes != here.schemas:
        raise errors.Refused(
            f"topic {name} has {len(hashes)} schemas on the target that are not the {len(here.schemas)} of the source: "
            "delete those of the target (pok schemas delete --force)"
        )


def _set(now: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """These policies, with the `replication_clusters` that is set."""
    kept = {name: value for name, value in now.items() if name == "replication_clusters"}
    return {**wanted, **kept}
