"""What operators do with Kafka's own tools."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient as KafkasAdminClient

from pulsar_on_kafka.kafka.records import CommittedOffset


def reset_offsets(bootstrap: str, group_id: str, topic: str, offsets: Mapping[int, CommittedOffset]) -> None:
    """Set the offsets of a group without members, as kafka-consumer-groups --reset-offsets does."""
    places = [TopicPartition(topic, p, commit.kafka_offset, commit.metadata) for p, commit in offsets.items()]
    request = ConsumerGroupTopicPartitions(group_id, places)
    handle = KafkasAdminClient({"bootstrap.servers": bootstrap})
    answer = handle.alter_consumer_group_offsets([request], request_timeout=20)[group_id].result(20)
    assert [where.error for where in answer.topic_partitions] == [None] * len(offsets)
