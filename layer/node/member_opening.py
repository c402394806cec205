"""The membership of a process in a subscription's group, made of the services that it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.processes import is_over, membership_ended
from pulsar_on_kafka.kafka.reading.ascending import AscendingReader
from pulsar_on_kafka.kafka.reading.assigned import AssignedConsumer
from pulsar_on_kafka.kafka.reading.fetcher import Fetcher
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka.mapping.ids.txn_id import TxnId
from pulsar_on_kafka.mapping.state.clusters.subscription_progress import Origin
from pulsar_on_kafka.mapping.state.cursors.cursor_requests import CursorLife
from pulsar_on_kafka.mapping.state.state_keys import DeliveryKey
from pulsar_on_kafka.mapping.state.transactions.pending_acks import TxnAck
from pulsar_on_kafka.metadata.subscriptions.subscription import Subscription, cursor_identity
from pulsar_on_kafka.node.readers import buffer_access, slot_of
from pulsar_on_kafka.node.services import FETCH_QUEUE_KBYTES, Services
from pulsar_on_kafka.replicated.acknowledged_elsewhere import AcknowledgedElsewhere
from pulsar_on_kafka.subscriptions.dispatching.handle import SubscriptionHandle
from pulsar_on_kafka.subscriptions.leases.terms import LeaseTerms, LeaseTraffic
from pulsar_on_kafka.subscriptions.member.member import SubscriptionMember
from pulsar_on_kafka.subscriptions.records.compaction import CompactedRange
from pulsar_on_kafka.subscriptions.records.endpoint import PartitionSlot
from pulsar_on_kafka.subscriptions.requests.saved_cursors import SavedCursors
from pulsar_on_kafka.subscriptions.requests.transaction_acks import TransactionAcksElsewhere


def new_member(
    services: Services,
    cursors: SavedCursors,
    subscription: Subscription,
    session: str,
    client_id: str,
    ack_persist_interval_s: float,
    compacted: Mapping[int, CompactedRange],
    lease_channel: Callable[[Subscription], LeaseTraffic],
    transactions_elsewhere: TransactionAcksElsewhere,
    deadline: Deadline,
) -> SubscriptionMember:
    topic = subscription.topic
    slots: dict[int, PartitionSlot] = {}

    def slot(partition: int) -> PartitionSlot:
        return slot_of(topic, partition, slots)

    def checkpoint(partition: int, deadline: Deadline) -> CommittedOffset | None:
        return services.checkpoints.newest(cursor_identity(subscription, partition), deadline)

    now = subscription

    def verify(deadline: Deadline) -> None:
        nonlocal now
        now = services.subscriptions.verify(subscription, session, deadline)

    floors = {} if topic.name.is_persistent else _floors(services, subscription, deadline)
    handle = SubscriptionHandle(
        subscription.place,
        subscription.name,
        topic.kafka_topic,
        subscription.type,
        slot,
        lambda: list(slots.values()),
        lambda partition: cursor_identity(subscription, partition),
        subscription.start_offset,
        lambda partitions, deadline: cursors.committed_settled(subscription, partitions, deadline),
        checkpoint,
        verify,
        buffer_access(services, topic),
        compacted,
        services.meters.subscription(subscription.place, subscription.name),
        lambda partition, deadline: services.producers.fences(topic, partition, deadline),
        lambda: membership_ended(client_id),
        lambda partition, deadline: cursors.committed_elsewhere(now, partition, deadline),
        lambda deadline: services.topics.check_same(topic, deadline),
        subscription.partition,
        not topic.name.is_persistent,
        floors,
        acknowledged_elsewhere(services, subscription, deadline),
        services.departures.company(subscription.group, client_id),
    )
    config = services.settings.group_member(
        group_id=subscription.group,
        client_id=client_id,
        fetch_queue_kbytes=FETCH_QUEUE_KBYTES,
        partitioned=topic.partitioned,
    )
    return SubscriptionMember(
        handle,
        config,
        services.store,
        services.fetcher,
        services.clock,
        services.pending_acks,
        None if compacted else _lease_terms(services, subscription, client_id, lease_channel, transactions_elsewhere),
        ack_persist_interval_s=ack_persist_interval_s,
    )


def _lease_terms(
    services: Services,
    subscription: Subscription,
    client_id: str,
    lease_channel: Callable[[Subscription], LeaseTraffic],
    transactions_elsewhere: TransactionAcksElsewhere,
) -> LeaseTerms | None:
    """None where a partition's messages go to its owner's process only."""
    topic = subscription.topic
    if not subscription.type.is_leased or subscription.partition is not None or not topic.name.is_persistent:
        return None
    life = CursorLife(topic.kafka_topic_id, topic.layout.incarnation, subscription.incarnation)
    ahead = services.settings.shared_tail(client_id="leased", fetch_queue_kbytes=FETCH_QUEUE_KBYTES)
    behind = Fetcher(services.settings.reader(fetch_queue_kbytes=FETCH_QUEUE_KBYTES))
    reader = AscendingReader(lambda: AssignedConsumer(ahead, topic.kafka_topic), behind)

    def ask_owner(partition: int, txn: TxnId, ack: TxnAck, answer: Future[None], deadline: Deadline) -> None:
        key = DeliveryKey(str(topic.name), partition, subscription.name)
        transactions_elsewhere.ask(key, life, txn, ack, answer, deadline)

    return LeaseTerms(client_id, life, lease_channel(subscription), reader, ask_owner, partitions=topic.partitions)


def acknowledged_elsewhere(
    services: Services, subscription: Subscription, deadline: Deadline
) -> Callable[[int], AcknowledgedElsewhere | None]:
    """What a member leaves out of each partition: nothing on a subscription that is not replicated, or in a cluster
    without a name, of which no other one can know anything."""
    topic = subscription.topic
    if not subscription.replicated or not topic.name.is_persistent:
        return lambda partition: None
    local = services.clusters.registry(deadline).local
    if not local:
        return lambda partition: None
    origin = Origin(local, topic.layout.incarnation)
    return lambda partition: AcknowledgedElsewhere(
        services.progress,
        origin,
        str(topic.name),
        partition,
        subscription.name,
        services.clock,
        follows=subscription.follows,
    )


def _floors(services: Services, subscription: Subscription, deadline: Deadline) -> Mapping[int, int]:
    """The ends of a non-persistent topic's log, when nobody consumes it on this subscription yet; else what those
    committed who do counts."""
    if any(not is_over(m.client_id) for m in services.admin.describe_group(subscription.group, deadline).members):
        return {}
    return services.admin.end_offsets(subscription.topic.kafka_topic, subscription.served, deadline)
