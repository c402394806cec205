"""Progress of an import, from the records of this cluster."""

from __future__ import annotations

from dataclasses import dataclass

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.clusters.migration.from_pulsar.entries import INCARNATION
from pulsar_on_kafka.clusters.migration.from_pulsar.entry_positions import Position, position_at
from pulsar_on_kafka_mapping.names.subscription_group import copied_name
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.clusters.tenant_records import ImportRecord


@dataclass(frozen=True, slots=True)
class ImportedUpTo:
    """Progress of a partition: Pulsar's position of the last entry that is here for certain, None for none. `final`:
    whether the copying run ended in good order."""

    topic: str
    partition: int
    position: Position | None
    final: bool


def imported_upto(node: Node, record: ImportRecord, deadline: Deadline) -> list[ImportedUpTo]:
    """The progress of each partition that was ever copied, from what is on record here. Raises StoreError."""
    found = []
    for namespace in node.namespaces.list(record.tenant, deadline):
        for each in node.topics.list(namespace, deadline):
            topic = node.topics.find(TopicName.parse(each.name), deadline)
            if topic is None:
                continue
            newest = {}
            known = node.sequences.known(topic, copied_name(record.origin, INCARNATION), deadline)
            for (_, partition), snapshot in sorted(known.items()):
                newest[partition] = snapshot
            for partition, snapshot in sorted(newest.items()):
                position = None if snapshot.highest < 0 else position_at(snapshot.highest)
                found.append(ImportedUpTo(each.name, partition, position, snapshot.final))
    return found
