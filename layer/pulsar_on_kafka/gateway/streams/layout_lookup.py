"""Finds a topic with its layout, for V5 clients."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka_mapping.errors import InvalidTopicName
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.routing.topic_layouts import TopicLayout, topic_layout


class TopicWithLayout(NamedTuple):
    """An existing topic, and its layout now."""

    topic: Topic
    layout: TopicLayout


def find_layout(node: Node, name: str, deadline: Deadline, *, create: bool) -> TopicWithLayout:
    """The topic of this name, `topic://...` or `persistent://...`, with its layout.

    `create`: a missing topic is created as the policies of its namespace allow it, with `v5_default_partitions`.

    Raises:
        InvalidTopicName: the name is not that of a persistent topic, or of a partition. NoSuchTopic, NoSuchNamespace.
        Refused: the namespace would have too many topics. StoreErrors.
    """
    topic = TopicName.parse(name)
    if not topic.is_persistent or topic.partition >= 0:
        raise InvalidTopicName(f"topic {name!r:.300} has no layout, expected a persistent topic, not a partition")
    if create:
        found = node.topics.open(replace(topic, is_scalable=True), deadline)
    else:
        node.namespaces.require(topic.namespace_name, deadline)
        existing = node.topics.find(topic, deadline)
        if existing is None:
            raise errors.NoSuchTopic(f"topic {topic} does not exist")
        found = existing
    partitions = found.partitions if found.partitioned else 0
    return TopicWithLayout(found, topic_layout(topic.base, partitions, found.layout.incarnation))
