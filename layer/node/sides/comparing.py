"""Compares a subscription here with the one of the same name in another cluster."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.node.node import Node
from pulsar_on_kafka.node.sides.side_reading import SideReading
from pulsar_on_kafka.replicated.comparison import PartitionComparison, compare
from pulsar_on_kafka.replicated.progress import SubscriptionSide


def compare_subscription(
    here: Node, there: Node, topic: TopicName, name: str, deadline: Deadline
) -> list[PartitionComparison]:
    """Both sides, partition by partition, as their owners save them now. Reads both logs from their starts.

    Raises:
        NoSuchTopic, NoSuchSubscription: one side does not have it.
        Refused: one of the clusters has no name, or the numbers of partitions differ.
        DeadlineExceeded, StoreError: one side cannot be read in time.
    Memory: an `OriginIndex` of each partition on both sides.
    """
    with closing(SideReading(here)) as mine, closing(SideReading(there)) as theirs:
        found = [_subscription(side.node, topic, name, deadline) for side in (mine, theirs)]
        return compare_sides(mine, found[0], theirs, found[1], deadline)


def compare_sides(
    here: SideReading, mine: Subscription, there: SideReading, theirs: Subscription, deadline: Deadline
) -> list[PartitionComparison]:
    """Compare sides that were looked up, and perhaps read, before. Raises as `compare_subscription`."""
    ours, others = here.sides(mine, deadline), there.sides(theirs, deadline)
    if ours.keys() != others.keys():
        raise errors.Refused(f"{mine.topic.name} has partitions {[*ours]} here and {[*others]} there: nothing compares")
    return compare_partitions(ours, others)


def compare_partitions(
    ours: Mapping[int, SubscriptionSide], others: Mapping[int, SubscriptionSide]
) -> list[PartitionComparison]:
    """Of the same partitions, in their order. Raises StoreError, as `compare`."""
    return [compare(partition, ours[partition], others[partition]) for partition in sorted(ours)]


def _subscription(node: Node, topic: TopicName, name: str, deadline: Deadline) -> Subscription:
    cluster = node.clusters.registry(deadline).local or node.settings.bootstrap
    opened = node.topics.find(topic, deadline)
    if opened is None:
        raise errors.NoSuchTopic(f"topic {topic} does not exist in cluster {cluster}")
    found = node.subscriptions.find(opened, name, deadline)
    if found is None:
        raise errors.NoSuchSubscription(f"topic {topic} has no subscription {name} in cluster {cluster}")
    return found
