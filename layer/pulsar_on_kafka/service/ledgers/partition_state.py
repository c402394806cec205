"""A partition as a deletion finds it, and the deletion itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import NoLeaderNow
from pulsar_on_kafka.broker.managed_ledger.deletion import (
    PartitionDeleting,
    PartitionGone,
    PartitionNow,
    PartitionState,
    deletes_by_ledger,
)
from pulsar_on_kafka.broker.managed_ledger.ledger_list_update import LogRange
from pulsar_on_kafka.broker.managed_ledger.model import Ledger, LedgerPlace
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.services import Services
from pulsar_on_kafka.service.ledgers.log_use import KafkaLogUse
from pulsar_on_kafka.service.ledgers.topic_deletion import TopicDeletion
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.metadata.metadata_records import TopicRecord


class Found(NamedTuple):
    """`topic`: with a `PartitionNow`. `deleting`: the topic is being deleted. `former`: see `judge`."""

    now: PartitionState
    topic: Topic | None = None
    deleting: TopicRecord | None = None
    former: int = 0

    @property
    def whose(self) -> Topic | TopicRecord | None:
        return self.topic or self.deleting


class PartitionLook:
    """Thread-safe."""

    def __init__(self, services: Services, use: KafkaLogUse, topic_deletion: TopicDeletion) -> None:
        self._services = services
        self._use = use
        self._topic_deletion = topic_deletion

    def at(self, name: TopicName, partition: int, deadline: Deadline, *, with_list: bool) -> Found:
        """The input of `judge`, read in the required order; `listed` is empty without `with_list`.

        Raises:
            NoLeaderNow: its log cannot be read now. And other LayerErrors.
        """
        life = self._services.topics.last_life(name, deadline)
        if life is None:
            return Found(None)
        if life.deleting is not None:
            return self._deleting(life.deleting, partition, deadline)
        topic = life.topic
        if topic is None:
            return Found(PartitionGone(life.incarnation), former=life.former)
        if topic.bound or not 0 <= partition < topic.partitions:
            return Found(None, former=life.former)
        place = LedgerPlace(str(name), topic.layout.incarnation, partition)
        listed: Sequence[Ledger] = ()
        if with_list:
            listed = self._services.ledger_views.query(str(name), lambda lists: lists.ledgers(place), deadline)
        log = self._use.log_of(topic, partition, deadline)
        if log is None:
            raise NoLeaderNow(f"{topic.kafka_topic}-{partition} has no leader now")
        needs = self._use.needs_of(topic, [partition], deadline)[partition]
        return Found(PartitionNow(place, topic.layout, listed, log, needs), topic, former=life.former)

    def _deleting(self, deleting: TopicRecord, partition: int, deadline: Deadline) -> Found:
        if not deletes_by_ledger(deleting):
            return Found(None, former=deleting.former)
        described = self._services.admin.describe_topic(deleting.kafka_topic, deadline)
        if described is None or described.topic_id != deleting.kafka_topic_id:
            return Found(PartitionGone(deleting.incarnation), deleting=deleting, former=deleting.former)
        if not 0 <= partition < described.partitions:
            return Found(None, former=deleting.former)
        log = self._services.admin.log_ranges([(deleting.kafka_topic, partition)], deadline)
        if not log:
            raise NoLeaderNow(f"{deleting.kafka_topic}-{partition} has no leader now")
        layout = LedgerLayout(deleting.incarnation, deleting.entries_per_ledger)
        place = LedgerPlace(deleting.name, deleting.incarnation, partition)
        now = PartitionDeleting(place, layout, LogRange(*log[deleting.kafka_topic, partition]))
        return Found(now, deleting=deleting, former=deleting.former)

    def end(self, deleting: TopicRecord, deadline: Deadline) -> None:
        """Data of a topic that is being deleted went: the Kafka topic follows the last of it."""
        life = self._services.topics.last_life(TopicName.parse(deleting.name), deadline)
        if life is not None and life.deleting is not None and life.incarnation == deleting.incarnation:
            self._topic_deletion.end(life.deleting, deadline)

    def delete(self, topic: Topic | TopicRecord, partition: int, before: int, deadline: Deadline) -> None:
        self._services.topics.removals.delete_records(topic, {partition: before}, deadline)
