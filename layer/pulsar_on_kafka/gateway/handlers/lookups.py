"""What clients ask before they produce and consume: partitions, who serves a topic, and topics of a namespace."""

from __future__ import annotations

from collections.abc import Iterable

import google_crc32c

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.gateway.handlers.transactions import COORDINATORS
from pulsar_on_kafka_mapping.names.topic_name import TopicName

PERSISTENT, NON_PERSISTENT, ALL = 0, 1, 2
"""Which topics of a namespace are wanted."""
SUCCESS, FAILED = 0, 1
LOOKUP_CONNECT, LOOKUP_FAILED = 1, 2
TLS = "pulsar+ssl"


def addressed(field: str, url: str) -> dict[str, str]:
    """The field of a command that has an address, or the one beside it that has addresses with TLS."""
    return {f"{field}Tls" if url.startswith(TLS) else field: url}


def partitions_of(node: Node, topic: str, deadline: Deadline, *, may_be_made: bool) -> int:
    """0 for a topic without partitions, and with `may_be_made` for one that is not there: its first producer or
    consumer makes it without partitions. Of the coordinators of transactions, how many there are. Nothing is made here.
    Source: BrokerService.fetchPartitionedTopicMetadataCheckAllowAutoCreationAsync, 4.0.7.

    Raises:
        NoSuchTopic: it is not there, and not `may_be_made`. InvalidTopicName.
    """
    name = TopicName.parse(topic)
    if name.partition >= 0:
        return 0
    if str(name) == COORDINATORS:
        return node.coordinator_count.known()
    node.namespaces.require(name.namespace_name, deadline)
    found = node.topics.find(name, deadline)
    if found is None and not may_be_made:
        raise errors.NoSuchTopic(f"topic {name} does not exist")
    return found.partitions if found is not None and found.partitioned else 0


def topics_of(node: Node, namespace: str, mode: int, deadline: Deadline) -> list[str]:
    """Their names; of a partitioned topic, those of its partitions, as in Pulsar. Raises NoSuchNamespace."""
    names: list[str] = []
    for record in node.topics.list(namespace, deadline):
        name = TopicName.parse(record.name)
        if mode != ALL and name.is_persistent is (mode == NON_PERSISTENT):
            continue
        if record.partitions:
            names += (str(name.with_partition(partition)) for partition in range(record.partitions))
        else:
            names.append(str(name))
    return sorted(names)


def topics_if_any(node: Node, namespace: str, mode: int, deadline: Deadline) -> list[str]:
    """`topics_of`, and none of a namespace that is not there, as Pulsar answers its clients."""
    try:
        return topics_of(node, namespace, mode, deadline)
    except errors.NoSuchNamespace:
        return []


def topics_hash(names: Iterable[str]) -> str:
    """Equal for equal lists. Source: TopicList.calculateHash: CRC-32C of the sorted names, joined, in hex."""
    return f"{google_crc32c.value(','.join(sorted(names)).encode()):x}"
