"""What a subscription's next consumer would get of a topic, as one snapshot taken on the driver.

In this order (design.md 9): where each partition ends; then what is on record of transactions, so that every record
below that end is known; then what transactions hold on the subscription; then its cursors. So a message that a
transaction both takes from here and puts there is never seen in both places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from layer.deadline import Deadline
from layer.metadata.subscription import Subscription
from layer.metadata.topics import Topic
from layer.node import Node
from mapping.topic_name import TopicName
from spark_connector.errors import NotReadable

SNAPSHOT_S: Final = 120.0
"""For one topic."""


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition: a reader gets the records in [start, end) that are not excluded."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic. Plain values, but for `topic`."""

    topic: Topic
    subscription: Subscription | None
    partitions: Mapping[int, PartitionView] = field(default_factory=dict)


def find_topic(node: Node, name: TopicName, deadline: Deadline) -> Topic:
    """Raises NotReadable when it does not exist, or keeps nothing."""
    topic = node.topics.find(name, deadline)
    if topic is None:
        raise NotReadable(f"topic {name} does not exist")
    if not name.is_persistent:
        raise NotReadable(f"topic {name} is not persistent: it keeps nothing to be read")
    return topic


def find_subscription(node: Node, topic: Topic, name: str, deadline: Deadline) -> Subscription:
    """Raises NotReadable when it does not exist; the message names those that do."""
    found = node.subscriptions.find(topic, name, deadline)
    if found is None:
        names = ", ".join(one.name for one in node.subscriptions.list(topic, deadline)[:20])
        raise NotReadable(f"topic {topic.name} has no subscription {name!r}; it has {names or 'none'}")
    return found


def view_topic(
    node: Node, topic: Topic, subscription: Subscription | None, partitions: Sequence[int], deadline: Deadline
) -> TopicView:
    """The snapshot of these partitions of a topic."""
    ends = node.admin.end_offsets(topic.kafka_topic, partitions, deadline)
    starts = node.admin.start_offsets(topic.kafka_topic, partitions, deadline)
    views = {p: PartitionView(p, starts[p], ends[p]) for p in partitions}
    return TopicView(topic, subscription, views)
