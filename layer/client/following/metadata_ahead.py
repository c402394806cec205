"""Metadata that producers, consumers and readers ask a cluster for when they open there is read before: each state
topic is read from its start once, each broker is connected to. Nothing is made that is not there.

Raise LayerError: it cannot be read now.
"""

from __future__ import annotations

from pulsar_on_kafka.client.connection.session import Session
from pulsar_on_kafka.client.producer.producer_opening import ProducerOptions
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.metadata.topics import Topic


def topic_ahead(name: str, session: Session) -> Topic | None:
    """None: it is not there."""
    node, deadline, parsed = session.node(), session.deadline(), TopicName.parse(name)
    topic = node.topics.find(parsed, deadline)
    if topic is not None:
        node.namespaces.policies_for_topics(parsed.namespace_name, deadline)
        node.schemas.index(parsed.base, deadline)
    return topic


def producer_ahead(options: ProducerOptions, session: Session) -> None:
    topic = topic_ahead(options.topic, session)
    if topic is not None:
        node, deadline = session.node(), session.deadline()
        options.application().kafka(node).learn_partitions(topic.kafka_topic, topic.partitions, deadline)
        node.deduplicated([topic.name], deadline)
        node.producers.claims_of(str(topic.name), deadline)


def subscription_ahead(name: str, subscription: str, session: Session) -> None:
    topic = topic_ahead(name, session)
    if topic is not None:
        node, deadline = session.node(), session.deadline()
        found = node.subscriptions.find(topic, subscription, deadline)
        if found is not None:
            node.memberships.cursors.read(found, deadline)
        for partition in range(topic.partitions):
            node.producers.fences(topic, partition, deadline)
