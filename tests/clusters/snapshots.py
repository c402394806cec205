"""Messages of one partition, and the markers among them by which clusters exchange snapshots."""

from __future__ import annotations

from typing import Any

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.records.record_headers import MARKER
from pulsar_on_kafka_mapping.records.subscription_markers import Snapshot, SubscriptionMarker, decode_marker
from tests.clusters.cluster import PATIENCE_S, Cluster
from tests.waiting import until


def markers(cluster: Cluster, topic: str) -> list[SubscriptionMarker]:
    """Of the topic's log, in order."""
    node, deadline = cluster.admin.node, Deadline.after(PATIENCE_S)
    found = node.topics.find(TopicName.parse(topic), deadline)
    assert found is not None
    end = node.admin.end_offsets(found.kafka_topic, [0], deadline)[0]
    read: list[Any] = [
        record for batch in node.fetcher.read(found.kafka_topic, 0, 0, end, deadline) for record in batch
    ]
    marks = [decode_marker(each.headers(), each.value()) for each in read if MARKER in dict(each.headers() or ())]
    return [marker for marker in marks if marker is not None]


def wait_for_snapshot(cluster: Cluster, topic: str, behind: int) -> None:
    """One of this cluster behind an offset of its log."""
    until(
        lambda: any(
            isinstance(each, Snapshot) and each.source == cluster.name and each.local > behind
            for each in markers(cluster, topic)
        ),
        f"a snapshot behind {behind}",
    )


def sent(cluster: Cluster, topic: str, *bodies: int, **options: Any) -> int:
    """The offset of the last one."""
    producer = cluster.client.create_producer(topic)
    for body in bodies:
        producer.send(b"%d" % body, **options)
    producer.close()
    node = cluster.admin.node
    found = node.topics.find(TopicName.parse(topic), Deadline.after(PATIENCE_S))
    assert found is not None
    return int(node.admin.end_offsets(found.kafka_topic, [0], Deadline.after(PATIENCE_S))[0]) - 1


def bodies(messages: list[pulsar.Message]) -> list[int]:
    return sorted(int(message.data()) for message in messages)
