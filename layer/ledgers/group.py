"""Kafka groups share the work on ledgers out: their maintenance, and the deletion of what they held."""

from __future__ import annotations

from typing import Final

from pulsar_on_kafka.mapping.names.subscription_group import group_id
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.mapping.state.instances import Instance
from pulsar_on_kafka.mapping.state.state_topics import LEDGERS, SYSTEM_NAMESPACE

EVENTS: Final = f"persistent://{SYSTEM_NAMESPACE}/__ledger_deletion"
"""The topic on which deletions are asked for."""
WORKER: Final = "ledger-deletion-worker"
"""The subscription on it of those who delete."""


def maintenance_group(instance: Instance) -> str:
    """The group of those who maintain the lists: whoever is assigned partition i of `ledgers` maintains i."""
    return instance.group(LEDGERS, "maintenance")


def deletion_group(instance: Instance) -> str:
    """The group of those who delete data."""
    return group_id(instance.kafka_topic(TopicName.parse(EVENTS)), WORKER)
