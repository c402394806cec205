"""What clients ask before they produce and consume: partitions, who serves a topic, and topics of a namespace."""

from __future__ import annotations

from collections.abc import Iterable

import google_crc32c

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.gateway.transactions import COORDINATORS
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.node.node import Node

PERSISTENT, NON_PERSISTENT, ALL = 0, 1, 2
"""Which topics of a namespace are wanted."""
SUCCESS, FAILED = 0, 1
LOOKUP_CONNECT, LOOKUP_FAILED = 1, 2
TLS = "pulsar+ssl"


def addressed(field: str, url: str) -> dict[str, str]:
    """The field of a command that has an address, or the one beside it that has addresses with TLS."""
    return {f"{field}Tls" if url.startswith(TLS) else field: url}


def partitions_of(node: Node, topic: str, deadline: Deadline, *, make: bool) -> int:
    """0 for a topic without partitions, and for one that is not there and its first producer or consumer makes; of the
    coordinators of transactions, how many there are.

    Raises:
        NoSuchTopic: it is not there and `make` is not wanted. InvalidTopicName.
    """
    name = TopicName.parse(topic)
    if name.partition >= 0:
        return 0
    if str(name) == COORDINATORS:
        return node.coordinator_count.known()
    node.namespaces.require(name.namespace_name, deadline)
    found = node.topics.find(name, deadline)
    if found is None and make:
        found = node.topics.open(name, deadline)
    if found is None:
        raise errors.NoSuchTopic(f"topic {name} does not exist")
    return found.partitions if found.partitioned else 0


def topics_of(node: Node, namespace: str, mode: int, deadline: Deadline) -> list[str]:
    """Their names; of a partitioned topic, those of its partitions, as in Pulsar. Raises NoSuchNamespace."""
    node.namespaces.require(namespace, deadline)
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


def topics_hash(names: Iterable[str]) -> str:
    """Equal for equal lists. Source: TopicList.calculateHash: CRC-32C of the sorted names, joined, in hex."""
    return f"{google_crc32c.value(','.join(sorted(names)).encode()):x}"
