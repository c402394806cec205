"""Compares a subscription here with the one of the same name in another cluster."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from layer import errors
from layer.deadline import Deadline
from layer.kafka.range_reader import RangeReader
from layer.metadata.subscription import Subscription
from layer.node import Node
from layer.replication.comparison import PartitionComparison, compare
from layer.replication.origin_index import OriginIndex
from layer.replication.origin_reading import OriginReading
from layer.replication.progress import Side
from mapping.state_records.cursor_requests import SaveNow
from mapping.state_records.subscription_progress import Origin
from mapping.topic_name import TopicName

_QUEUE_KBYTES: Final = 4096


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
    with ExitStack() as stack:
        sides = [_sides(stack, node, topic, name, deadline) for node in (here, there)]
    if sides[0].keys() != sides[1].keys():
        raise errors.Refused(f"{topic} has partitions {[*sides[0]]} here and {[*sides[1]]} there: nothing compares")
    return [compare(partition, sides[0][partition], sides[1][partition]) for partition in sorted(sides[0])]


def _sides(stack: ExitStack, node: Node, topic: TopicName, name: str, deadline: Deadline) -> dict[int, Side]:
    local = node.clusters.registry(deadline).local
    if not local:
        raise errors.Refused(f"the cluster at {node.settings.bootstrap} has no name (pok clusters local NAME)")
    found = _subscription(node, topic, name, local, deadline)
    node.memberships.live_cursors.change(found, dict.fromkeys(found.served, SaveNow()), deadline)
    cursors = node.memberships.cursors.read(found, deadline)
    ends = node.admin.end_offsets(found.topic.kafka_topic, list(found.served), deadline)
    reader = RangeReader(node.settings.reader(fetch_queue_kbytes=_QUEUE_KBYTES))
    stack.callback(reader.close)
    indexes = _indexes(OriginReading(node.admin, reader), found, ends, deadline)
    origin = Origin(local, found.topic.layout.incarnation)
    return {p: Side(origin, cursors[p].state, indexes[p], ends[p]) for p in found.served}


def _indexes(
    reading: OriginReading, subscription: Subscription, ends: dict[int, int], deadline: Deadline
) -> dict[int, OriginIndex]:
    while True:
        indexes = reading.read_on(subscription.topic, ends, deadline)
        if all(index.end >= ends[partition] for partition, index in indexes.items()):
            return indexes
        deadline.check(f"{subscription.topic.name} to be read")


def _subscription(node: Node, topic: TopicName, name: str, cluster: str, deadline: Deadline) -> Subscription:
    opened = node.topics.find(topic, deadline)
    if opened is None:
        raise errors.NoSuchTopic(f"topic {topic} does not exist in cluster {cluster}")
    found = node.subscriptions.find(opened, name, deadline)
    if found is None:
        raise errors.NoSuchSubscription(f"topic {topic} has no subscription {name} in cluster {cluster}")
    return found
