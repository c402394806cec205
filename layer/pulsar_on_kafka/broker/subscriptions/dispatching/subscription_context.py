"""A subscription's handle gives its member everything about the subscription."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.meters import SubscriptionMeter
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity
from pulsar_on_kafka.broker.metadata.incarnation_checks import IncarnationCheck
from pulsar_on_kafka.broker.metadata.rates.dispatch_rates import TopicDispatchRates
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import SubscriptionType
from pulsar_on_kafka.broker.subscriptions.dispatching.subscription_policies import SubscriptionPolicies
from pulsar_on_kafka.broker.subscriptions.partition.partition_options import RemoteAckSource
from pulsar_on_kafka.broker.subscriptions.records.compaction import CompactedRange
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import PartitionAcks
from pulsar_on_kafka.broker.transactions.records.views import BufferAccess
from pulsar_on_kafka.kafka.groups.dead_members import LocalPeers
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka_mapping.records.epoch_fences import Fence


class SubscriptionHandle(Protocol):
    """One member uses the handle, in its own thread. Its `str` is the subscription's name in logs."""

    topic: str
    subscription: str
    kafka_topic: str
    kafka_topic_id: bytes | None
    """The id by which Kafka tells it from other topics of its name; None where that is not on record."""
    type: SubscriptionType
    partition: int | None
    """The only partition that is served; None for all."""
    transient: bool
    """The topic is non-persistent: undelivered messages are dropped (see `NonPersistentDispatch`)."""
    incarnation: IncarnationCheck
    """Checks that the topic was not created again since it was opened."""
    buffer: BufferAccess
    """The records of transactions in the topic."""
    meter: SubscriptionMeter
    policies: SubscriptionPolicies
    """Another thread replaces the value when a policy changes."""
    dispatch_rates: TopicDispatchRates
    """The dispatch rates of topics, which the subscriptions of this process share."""
    local_peers: LocalPeers | None
    """The other members of the group."""

    def slot(self, partition: int) -> PartitionAcks: ...

    def slots(self) -> Sequence[PartitionAcks]:
        """The acknowledgement queues of all partitions so far, owned ones and others."""

    def identity(self, partition: int) -> CursorIdentity: ...

    def start_offset(self, partition: int) -> int: ...

    def floor(self, partition: int) -> int:
        """The offset below which nothing is delivered: no consumer was connected when these messages were published."""

    def committed(self, partitions: Sequence[int], deadline: Deadline) -> Mapping[int, CommittedOffset]:
        """The group's committed offsets of these partitions, after changes without a member are complete."""

    def elsewhere(self, partition: int, deadline: Deadline) -> CommittedOffset | None:
        """The committed offset in the other group that served the partition: that of the whole topic, or its own."""

    def checkpoint(self, partition: int, deadline: Deadline) -> CommittedOffset | None: ...

    def verify(self, deadline: Deadline) -> None:
        """Raises SubscriptionBusy if this process may not serve the subscription."""

    def fences(self, partition: int, deadline: Deadline) -> Sequence[Fence]:
        """The offsets at which epochs of exclusive producers and replicators begin in a partition."""

    def compacted(self, partition: int) -> CompactedRange | None:
        """The entries to deliver with compacted reading. All others count as acknowledged."""

    def acknowledged_elsewhere(self, partition: int) -> RemoteAckSource | None:
        """The entries of a replicated subscription's partition that other clusters have acknowledged."""

    def ended(self) -> None:
        """Called when the member has left its group, or tried to, and serves nothing."""
