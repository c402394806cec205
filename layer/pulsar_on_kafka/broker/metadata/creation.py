"""Creation of topics and subscriptions as the policies of their namespace allow it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.policies import (
    ALLOW_AUTO_TOPIC_CREATION,
    ALLOW_AUTO_TOPIC_CREATION_TYPE,
    DEFAULT_NUM_PARTITIONS,
    MAX_TOPICS_PER_NAMESPACE,
    PARTITIONED,
    V5_DEFAULT_PARTITIONS,
    applied,
)
from pulsar_on_kafka.broker.metadata.topic_records import TopicRecords
from pulsar_on_kafka_mapping.names.topic_name import TopicName


def automatic_partitions(name: TopicName, policies: Mapping[str, Any]) -> int:
    """The partitions of a topic that a client creates, 0 for a non-partitioned one.

    A topic that is named `topic://...` has as many as V5 clients' topics. Differs from Pulsar, whose scalable topics
    begin with one segment: the partitions here do not split.

    Raises:
        NoSuchTopic: the policies of its namespace do not allow it.
    """
    if not applied(ALLOW_AUTO_TOPIC_CREATION, policies):
        raise errors.NoSuchTopic(f"topic {name} does not exist, and clients may not create topics in its namespace")
    if name.is_scalable:
        return int(applied(V5_DEFAULT_PARTITIONS, policies))
    partitioned = applied(ALLOW_AUTO_TOPIC_CREATION_TYPE, policies) == PARTITIONED
    return int(applied(DEFAULT_NUM_PARTITIONS, policies)) if partitioned else 0


def check_topic_count(
    name: TopicName, partitions: int, policies: Mapping[str, Any], records: TopicRecords, deadline: Deadline
) -> None:
    """Raises Refused: with so many partitions more (0: a non-partitioned topic) the namespace has too many topics.

    Each partition counts, as in Pulsar. Programs that create topics at the same moment do not count each other's.
    """
    limit = applied(MAX_TOPICS_PER_NAMESPACE, policies)
    if not limit:
        return
    there = sum(
        max(1, record.partitions)
        for record in records.active(deadline)
        if TopicName.parse(record.name).namespace_name == name.namespace_name
    )
    if there + max(1, partitions) > limit:
        raise errors.Refused(
            f"Exceed maximum number of topics in namespace. {name.namespace_name} has {there} of {limit}, "
            f"{name} would add {max(1, partitions)}"
        )
