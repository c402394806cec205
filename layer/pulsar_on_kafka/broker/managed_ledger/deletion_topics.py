"""Deletions are requested in three plain topics of the system, used through the SDK; their messages are events.

Source: PIP-186. All three have partitions from the start, so that no setting ever splits events over two topics, and
their subscriptions from their beginnings, so that no event is older than its worker.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from pulsar_on_kafka.broker.managed_ledger.model import Ledger
from pulsar_on_kafka.schema import AvroSchema, Integer, Long, Map, Record, String
from pulsar_on_kafka_mapping.names.subscription_group import group_id
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.instances import Instance
from pulsar_on_kafka_mapping.state.state_topics import LEDGERS, SYSTEM_NAMESPACE

EVENTS: Final = f"persistent://{SYSTEM_NAMESPACE}/__ledger_deletion"
"""The topic of deletion requests."""
WORKER: Final = "ledger-deletion-worker"
"""The subscription on it of those who delete."""
MAINTENANCE: Final = "maintenance"


def maintenance_group(instance: Instance) -> str:
    """The group of the lists' maintainers: the member with partition i of `ledgers` maintains i."""
    return instance.group(LEDGERS, MAINTENANCE)


def deletion_group(instance: Instance) -> str:
    return group_id(instance.kafka_topic(TopicName.parse(EVENTS)), WORKER)


RETRIES: Final = f"{EVENTS}-RETRY"
DEAD_LETTERS: Final = f"{EVENTS}-DLQ"
OPERATOR: Final = "operator"
"""The subscription on the dead letters: what it has acknowledged was replayed."""
MAX_REDELIVERIES: Final = 10

DATA: Final = "DATA"
"""The `ledger_type` of an event about a ledger's messages; there is no other one."""
REASON: Final = "REASON"
"""Property of a dead letter: why it is one."""


class PendingDeleteLedger(Record):
    """An event. `topic` is the full name of the partitioned topic."""

    topic = String(required=True)
    partition = Integer(required=True)
    ledger_id = Long(required=True)
    ledger_type = String(default=DATA)
    properties = Map(String())


def event_of(ledger: Ledger) -> PendingDeleteLedger:
    _, partition, _ = ledger.fields
    record = ledger.record
    return PendingDeleteLedger(
        topic=record.topic,
        partition=partition,
        ledger_id=ledger.id,
        ledger_type=DATA,
        properties={"first": str(record.first), "end": str(record.end)},
    )


class DeletionEvent(NamedTuple):
    """The content of an event; nothing of it is believed yet."""

    topic: str
    partition: int
    ledger_id: int
    ledger_type: str


def event_in(value: object) -> DeletionEvent | None:
    """The event in a decoded message; None for any other message."""
    if not isinstance(value, PendingDeleteLedger):
        return None
    reported: Any = value
    return DeletionEvent(reported.topic, reported.partition, reported.ledger_id, reported.ledger_type)


def event_schema() -> AvroSchema:
    return AvroSchema(PendingDeleteLedger)
