"""A subscription as it was found or opened, as a whole or on one partition. Plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from pulsar_on_kafka.broker.cursor.identity import CursorIdentity
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka_mapping.names.subscription_group import group_id


class SubscriptionType(str, Enum):
    EXCLUSIVE = "Exclusive"
    SHARED = "Shared"
    FAILOVER = "Failover"
    KEY_SHARED = "Key_Shared"

    @property
    def is_shared(self) -> bool:
        return self in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)

    @property
    def is_leased(self) -> bool:
        """Consumers of processes that do not own a partition may get messages of it."""
        return self is not SubscriptionType.EXCLUSIVE


_REBIRTH: Final = 1 << 40
"""Far above every incarnation: records of `subscriptions` times its partitions."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """An opened subscription, as a whole or (`partition`) on one partition.

    `start_offsets` has the partitions that existed when it was created, `partitions` those that it is on (None: all),
    `rebirths` how often it was removed from a partition. `group` is the consumer group of what was opened;
    `partition_groups` has those of all partitions that were ever served by themselves.
    """

    topic: Topic
    name: str
    type: SubscriptionType
    group: str
    incarnation: int
    start_offsets: Mapping[int, int]
    properties: Mapping[str, str] = field(default_factory=dict)
    replicated: bool = False
    partition: int | None = None
    by_partition: bool = False
    """Whether it is served partition by partition now."""
    partitions: tuple[int, ...] | None = None
    rebirths: Mapping[int, int] = field(default_factory=dict)
    partition_groups: Mapping[int, str] = field(default_factory=dict)
    partition_types: Mapping[int, SubscriptionType] = field(default_factory=dict)
    follows: bool = False
    non_durable: bool = False
    """Whether it ends with its last consumer: it retains no messages, and leftovers of a killed one do not count."""

    def start_offset(self, partition: int) -> int:
        """The start offset of its cursor; a partition added later starts at 0."""
        return self.start_offsets.get(partition, 0)

    def life(self, partition: int) -> int:
        """Its incarnation on one partition."""
        return self.incarnation + _REBIRTH * self.rebirths.get(partition, 0)

    @property
    def place(self) -> str:
        """Name of the topic or partition that was opened."""
        return str(self.topic.name if self.partition is None else self.topic.name.with_partition(self.partition))

    @property
    def served(self) -> tuple[int, ...]:
        """The partitions that what was opened is about."""
        if self.partition is not None:
            return (self.partition,)
        return tuple(range(self.topic.partitions)) if self.partitions is None else self.partitions

    @property
    def whole_group(self) -> str:
        return group_id(self.topic.kafka_topic, self.name)

    @property
    def groups(self) -> tuple[str, ...]:
        """Every group that served, or serves, any of it."""
        return (self.whole_group, *self.partition_groups.values())

    def saving_group(self, partition: int) -> str:
        """The group that saves the cursor of a partition now."""
        return self.partition_groups.get(partition, self.whole_group) if self.by_partition else self.whole_group

    def other_group(self, partition: int) -> str | None:
        """The group that may have saved it when it was served in the other way."""
        own = self.partition_groups.get(partition)
        if own is None:
            return self.whole_group if self.partition is not None else None
        return self.whole_group if self.saving_group(partition) == own else own


def whole_life(life: int) -> int:
    """The subscription's incarnation, of its life on one partition (see `Subscription.life`)."""
    return life % _REBIRTH


def cursor_identity(subscription: Subscription, partition: int) -> CursorIdentity:
    topic = subscription.topic
    return CursorIdentity(
        str(topic.name),
        partition,
        subscription.name,
        topic.kafka_topic,
        topic.kafka_topic_id,
        topic.layout.incarnation,
        subscription.life(partition),
        topic.layout.entries_per_ledger,
    )
