"""A subscription's handle is what its member must know of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.meters import SubscriptionMeter
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity
from pulsar_on_kafka.broker.metadata.incarnation_checks import IncarnationCheck
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import SubscriptionType
from pulsar_on_kafka.broker.subscriptions.partition.partition_options import RemoteAckSource
from pulsar_on_kafka.broker.subscriptions.records.compaction import CompactedRange
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import PartitionAcks
from pulsar_on_kafka.broker.transactions.records.views import BufferAccess
from pulsar_on_kafka.kafka.groups.dead_members import LocalPeers
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka_mapping.records.epoch_fences import Fence


class SubscriptionHandle(Protocol):
    """The handle is asked by one member, in its thread, about its subscription; its `str` names that."""

    topic: str
    subscription: str
    kafka_topic: str
    type: SubscriptionType
    partition: int | None
    """The only partition that is served; None for all."""
    transient: bool
    """Of a non-persistent topic: nothing is kept for later (see `NonPersistentDispatch`)."""
    incarnation: IncarnationCheck
    """Whether the topic is still the one that was opened."""
    buffer: BufferAccess
    """What is on record of transactions in the topic."""
    meter: SubscriptionMeter
    local_peers: LocalPeers | None
    """The other members of the group."""

    def slot(self, partition: int) -> PartitionAcks: ...

    def slots(self) -> Sequence[PartitionAcks]:
        """Every slot made so far, of owned partitions and others."""

    def identity(self, partition: int) -> CursorIdentity: ...

    def start_offset(self, partition: int) -> int: ...

    def floor(self, partition: int) -> int:
        """The offset below which nothing is delivered, whatever was saved: nobody was connected when it was
        published."""

    def committed(self, partitions: Sequence[int], deadline: Deadline) -> Mapping[int, CommittedOffset]:
        """What the subscription's group has of these partitions, once no change without a member is under way."""

    def elsewhere(self, partition: int, deadline: Deadline) -> CommittedOffset | None:
        """What the group has of a partition that served it in the other way: as a whole, or by itself."""

    def checkpoint(self, partition: int, deadline: Deadline) -> CommittedOffset | None: ...

    def verify(self, deadline: Deadline) -> None:
        """Raises SubscriptionBusy when this process may not serve the subscription (any more)."""

    def fences(self, partition: int, deadline: Deadline) -> Sequence[Fence]:
        """Where the epochs of exclusive producers and replicators begin in a partition."""

    def compacted(self, partition: int) -> CompactedRange | None:
        """For compacted reading: what is delivered. What is left out counts as acknowledged."""

    def acknowledged_elsewhere(self, partition: int) -> RemoteAckSource | None:
        """For a partition of a replicated subscription: what is left out."""

    def ended(self) -> None:
        """The member has left its group, or tried to, and serves nothing any more."""
