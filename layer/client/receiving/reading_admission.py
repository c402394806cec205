"""The registry decides whether a consumer or reader may read a topic with its schema."""

from __future__ import annotations

from collections.abc import Callable

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.processes import is_over
from pulsar_on_kafka.metadata.topics import Topic
from pulsar_on_kafka.node.node import Node
from pulsar_on_kafka.registry.policies import policies_when_opened
from pulsar_on_kafka.schema.plain import Schema


def admit_reading(node: Node, topic: Topic, schema: Schema, deadline: Deadline) -> None:
    """Return when a consumer may read `topic` with `schema`; the first one of an idle topic registers it.

    Raises:
        IncompatibleSchema: it may not.
    """
    node.schemas.for_consumer(
        topic.name,
        schema.schema_info(),
        deadline,
        policies_when_opened(topic),
        in_use=lambda: _in_use(node, topic, deadline),
    )


def _in_use(node: Node, topic: Topic, deadline: Deadline) -> bool:
    """The topic has data, producers or consumers. What this process has no right to see is not there.

    Source: PersistentTopic.addSchemaIfIdleOrCheckCompatible. Differs from Pulsar: consumers with AUTO_CONSUME count as
    any other, and readers do not, because their groups do not say.
    """
    partitions = range(topic.partitions)

    def has_data() -> bool:
        starts = node.admin.start_offsets(topic.kafka_topic, partitions, deadline)
        ends = node.admin.end_offsets(topic.kafka_topic, partitions, deadline)
        return any(ends[partition] > starts[partition] for partition in partitions)

    def has_producers() -> bool:
        return any(sign.publishers for sign in node.producers.publishers(str(topic.name), deadline))

    def has_consumers() -> bool:
        return node.memberships.serves(topic.name) or any(  # our own may still be joining their groups
            not is_over(member.client_id)
            for subscription in node.subscriptions.list(topic, deadline)
            for group in subscription.groups
            for member in node.admin.describe_group(group, deadline).members
        )

    return any(_known(question) for question in (has_data, has_producers, has_consumers))


def _known(question: Callable[[], bool]) -> bool:
    try:
        return question()
    except errors.NotAuthorized:
        return False
