"""A partition as a deletion finds it, and the deletion itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from layer.deadline import Deadline
from layer.errors import DeadlineExceeded, NoLeaderNow, NoSuchTopic
from layer.ledgers.deletion import PartitionGone, PartitionNow
from layer.ledgers.log_use import KafkaLogUse
from layer.ledgers.model import Ledger, Place
from layer.metadata.topics import Topic
from layer.services import Services
from mapping.topic_name import TopicName

_LONGEST_S: Final = 5.0
"""Between the last look at whose log this is and the request that cuts it."""


class Found(NamedTuple):
    """`topic`: with a `PartitionNow`."""

    now: PartitionNow | PartitionGone | None
    topic: Topic | None = None


class PartitionLook:
    """Thread-safe."""

    def __init__(self, services: Services, use: KafkaLogUse) -> None:
        self._services = services
        self._use = use

    def at(self, name: TopicName, partition: int, deadline: Deadline, *, with_list: bool) -> Found:
        """What `judge` wants to know, read in the order that it wants; of `listed` nothing without `with_list`.

        Raises:
            NoLeaderNow: for now nobody knows what its log has. And other LayerErrors.
        """
        life = self._services.topics.last_life(name, deadline)
        if life is None:
            return Found(None)
        topic = life.topic
        if topic is None:
            return Found(PartitionGone(life.incarnation))
        if topic.bound or not 0 <= partition < topic.partitions:
            return Found(None)
        place = Place(str(name), topic.layout.incarnation, partition)
        listed: Sequence[Ledger] = ()
        if with_list:
            listed = self._services.ledger_views.ask(str(name), lambda lists: lists.ledgers(place), deadline)
        log = self._use.log_of(topic, partition, deadline)
        if log is None:
            raise NoLeaderNow(f"{topic.kafka_topic}-{partition} has no leader now")
        needs = self._use.needs_of(topic, [partition], deadline)[partition]
        return Found(PartitionNow(place, topic.layout, listed, log, needs), topic)

    def delete(self, topic: Topic, partition: int, before: int, deadline: Deadline) -> None:
        """Delete everything below `before`; nothing happens where it is gone already.

        Kafka takes a name alone, which may be another topic's by now. So the topic's id is looked at just before, and
        a process that was stopped in between does nothing.

        Raises:
            NoSuchTopic: the topic was deleted, and perhaps made anew.
            DeadlineExceeded: too much time went by since that was looked at. And other LayerErrors.
        """
        clock = self._services.clock
        began_s = clock.monotonic()
        described = self._services.admin.describe_topic(topic.kafka_topic, deadline)
        if described is None or described.topic_id != topic.kafka_topic_id:
            raise NoSuchTopic(f"topic {topic.name} was deleted")
        if clock.monotonic() - began_s > _LONGEST_S:
            raise DeadlineExceeded(f"looking at {topic.kafka_topic} took longer than {_LONGEST_S:.0f} s")
        self._services.admin.delete_records(topic.kafka_topic, {partition: before}, deadline)
