"""The membership of a process in a subscription's group, made of the services that it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.processes import is_over, membership_ended
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity
from pulsar_on_kafka.broker.metadata.incarnation_checks import CHECK_CONSUMER_S, IncarnationCheck
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription, cursor_identity
from pulsar_on_kafka.broker.node.readers import buffer_access, slot_of
from pulsar_on_kafka.broker.node.services import FETCH_QUEUE_KBYTES, Services
from pulsar_on_kafka.broker.replication_state.remote_acks import RemoteAcks
from pulsar_on_kafka.broker.subscriptions.dispatching.subscription_context import SubscriptionHandle
from pulsar_on_kafka.broker.subscriptions.dispatching.subscription_policies import SubscriptionPolicies
from pulsar_on_kafka.broker.subscriptions.leases.lease_options import LeaseTerms, LeaseTraffic
from pulsar_on_kafka.broker.subscriptions.member.driver import MemberDriver
from pulsar_on_kafka.broker.subscriptions.member.member import SubscriptionMember
from pulsar_on_kafka.broker.subscriptions.member.ownership import MemberServices
from pulsar_on_kafka.broker.subscriptions.member.polling import PollingDriver
from pulsar_on_kafka.broker.subscriptions.member.pooled import MemberClients, PooledDriver
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.records.compaction import CompactedRange
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import PartitionAcks
from pulsar_on_kafka.broker.subscriptions.requests.idle_cursors import SavedCursors
from pulsar_on_kafka.broker.subscriptions.requests.transaction_acks import TransactionAcksElsewhere
from pulsar_on_kafka.kafka.reading.assigned_reader import AssignedReader
from pulsar_on_kafka.kafka.reading.fetcher import Fetcher
from pulsar_on_kafka.kafka.reading.sequential_reader import AscendingReader
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka.kafka.wire.cluster_messages import topic_id_bytes
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.records.epoch_fences import Fence
from pulsar_on_kafka_mapping.state.clusters.subscription_progress import Origin
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import CursorLife
from pulsar_on_kafka_mapping.state.state_keys import DeliveryKey
from pulsar_on_kafka_mapping.state.transactions.pending_acks import TxnAck


@dataclass(frozen=True, slots=True)
class MembershipOptions:
    """Options of a membership: its client id, its session, and the topics of which it delivers only `compacted`
    messages (all of a topic where that is empty)."""

    subscription: Subscription
    session: str
    client_id: str
    ack_persist_interval_s: float
    compacted: Mapping[int, CompactedRange]


class MemberOpening:
    def __init__(
        self,
        services: Services,
        cursors: SavedCursors,
        lease_channel: Callable[[Subscription], LeaseTraffic],
        transactions_elsewhere: TransactionAcksElsewhere,
    ) -> None:
        self._services = services
        self._cursors = cursors
        self._lease_channel = lease_channel
        self._transactions_elsewhere = transactions_elsewhere

    def member(self, joining: MembershipOptions, deadline: Deadline) -> SubscriptionMember:
        services, subscription = self._services, joining.subscription
        handle = _MemberHandle(services, self._cursors, joining, deadline)
        return SubscriptionMember(
            handle,
            MemberServices(
                services.store,
                services.fetcher,
                services.clock,
                services.pending_acks,
                None if joining.compacted else self._lease_terms(subscription, joining.client_id),
                joining.ack_persist_interval_s,
            ),
            partial(self._driver, handle, joining, services.member_clients()),
        )

    def _driver(
        self,
        handle: SubscriptionHandle,
        joining: MembershipOptions,
        clients: MemberClients | None,
        owned: Mapping[int, OwnedPartition],
    ) -> MemberDriver:
        services, subscription = self._services, joining.subscription
        if clients is not None:
            return PooledDriver(handle, clients, services.clock, owned, subscription.group, joining.client_id)
        config = services.settings.group_member(
            group_id=subscription.group,
            client_id=joining.client_id,
            fetch_queue_kbytes=FETCH_QUEUE_KBYTES,
            partitioned=subscription.topic.partitioned,
        )
        return PollingDriver(handle, config, services.clock)

    def _lease_terms(self, subscription: Subscription, client_id: str) -> LeaseTerms | None:
        """None where a partition's messages go to its owner's process only."""
        topic, settings, seat = subscription.topic, self._services.settings, subscription.partition
        if not subscription.type.is_leased or not topic.name.is_persistent:
            return None

        def life_of(incarnation: int) -> CursorLife:
            return CursorLife(topic.kafka_topic_id, topic.layout.incarnation, incarnation)

        ahead = settings.shared_tail(client_id="leased", fetch_queue_kbytes=FETCH_QUEUE_KBYTES)
        behind = Fetcher(settings.reader(fetch_queue_kbytes=FETCH_QUEUE_KBYTES), reserved=False)
        reader = AscendingReader(
            AssignedReader(ahead, f"reader of {topic.kafka_topic}", reserved=False), behind, topic.kafka_topic
        )

        def request_from_owner(
            partition: int, txn: TxnId, ack: TxnAck, answer: Future[None], deadline: Deadline
        ) -> None:
            key = DeliveryKey(str(topic.name), partition, subscription.name)
            self._transactions_elsewhere.request(key, life_of(subscription.life(partition)), txn, ack, answer, deadline)

        traffic = self._lease_channel(subscription)
        life = life_of(subscription.incarnation if seat is None else subscription.life(seat))
        partitions = topic.partitions if seat is None else None
        return LeaseTerms(client_id, life, traffic, reader, request_from_owner, partitions=partitions)


class _MemberHandle(SubscriptionHandle):
    def __init__(
        self, services: Services, cursors: SavedCursors, joining: MembershipOptions, deadline: Deadline
    ) -> None:
        subscription, topic = joining.subscription, joining.subscription.topic
        self._services = services
        self._cursors = cursors
        self._joining = joining
        self._opened = subscription
        self._now = subscription
        """The subscription as last verified."""
        self._slots: dict[int, PartitionAcks] = {}
        self._floors = {} if topic.name.is_persistent else _floors(services, subscription, deadline)
        self._origin = _origin(services, subscription, deadline)
        self.topic = subscription.place
        self.subscription = subscription.name
        self.kafka_topic = topic.kafka_topic
        self.kafka_topic_id = topic_id_bytes(topic.kafka_topic_id)
        self.type = subscription.type
        self.partition = subscription.partition
        self.transient = not topic.name.is_persistent
        self.incarnation = IncarnationCheck(services.incarnations, topic, CHECK_CONSUMER_S)
        self.buffer = buffer_access(services, topic)
        self.policies = policies_followed(
            subscription, SubscriptionPolicies.of(*services.policies_when_opened(topic, deadline))
        )
        self.dispatch_rates = services.dispatch_rates
        self.meter = services.meters.subscription(subscription.place, subscription.name)
        self.local_peers = services.departures.local_peers(subscription.group, joining.client_id)

    def __str__(self) -> str:
        return f"{self.topic}/{self.subscription}"

    def slot(self, partition: int) -> PartitionAcks:
        return slot_of(self._opened.topic, partition, self._slots)

    def slots(self) -> Sequence[PartitionAcks]:
        return list(self._slots.values())

    def identity(self, partition: int) -> CursorIdentity:
        return cursor_identity(self._opened, partition)

    def start_offset(self, partition: int) -> int:
        return self._opened.start_offset(partition)

    def floor(self, partition: int) -> int:
        return self._floors.get(partition, 0)

    def committed(self, partitions: Sequence[int], deadline: Deadline) -> Mapping[int, CommittedOffset]:
        return self._cursors.committed_settled(self._opened, partitions, deadline)

    def elsewhere(self, partition: int, deadline: Deadline) -> CommittedOffset | None:
        return self._cursors.committed_elsewhere(self._now, partition, deadline)

    def checkpoint(self, partition: int, deadline: Deadline) -> CommittedOffset | None:
        return self._services.checkpoints.newest(self.identity(partition), deadline)

    def verify(self, deadline: Deadline) -> None:
        self._now = self._services.subscriptions.verify(self._opened, self._joining.session, deadline)

    def fences(self, partition: int, deadline: Deadline) -> Sequence[Fence]:
        return self._services.producers.fences(self._opened.topic, partition, deadline)

    def compacted(self, partition: int) -> CompactedRange | None:
        return self._joining.compacted.get(partition)

    def acknowledged_elsewhere(self, partition: int) -> RemoteAcks | None:
        if self._origin is None:
            return None
        return RemoteAcks(
            self._services.progress,
            self._origin,
            str(self._opened.topic.name),
            partition,
            self._opened.name,
            self._services.clock,
            follows=self._opened.follows,
        )

    def ended(self) -> None:
        membership_ended(self._joining.client_id)


def policies_followed(subscription: Subscription, policies: SubscriptionPolicies) -> SubscriptionPolicies:
    """The policies of its topic as a subscription follows them. Non-persistent topics have no dispatch rates. Source:
    Pulsar's Consumer.getMaxUnackedMessages, NonPersistentTopic."""
    if not subscription.topic.name.is_persistent:
        policies = policies._replace(dispatch_rate=None, subscription_dispatch_rate=None)
    return policies._replace(max_unacked_on_consumer=0) if subscription.non_durable else policies


def _origin(services: Services, subscription: Subscription, deadline: Deadline) -> Origin | None:
    """The origin of a replicated subscription's messages. None for other subscriptions, or in a cluster without a name,
    which other clusters cannot refer to."""
    if not subscription.replicated or not subscription.topic.name.is_persistent:
        return None
    local = services.clusters.registry(deadline).local
    return Origin(local, subscription.topic.layout.incarnation) if local else None


def _floors(services: Services, subscription: Subscription, deadline: Deadline) -> Mapping[int, int]:
    """The ends of a non-persistent topic's log while this subscription has no consumer yet; otherwise the positions
    that its members committed."""
    if any(not is_over(m.client_id) for m in services.admin.describe_group(subscription.group, deadline).members):
        return {}
    return services.admin.end_offsets(subscription.topic.kafka_topic, subscription.served, deadline)
