"""What all Clients of a process share for one cluster: producers, admin client, state log, memberships."""

from __future__ import annotations

import atexit
import logging
import secrets
import threading
from typing import Final

from layer import errors
from layer.clock import Clock, SystemClock
from layer.cursor.checkpoints import Checkpoints
from layer.cursor.store import CursorIdentity, CursorStore, Recovered
from layer.deadline import Deadline
from layer.dispatch.delivery import PartitionSlot
from layer.dispatch.endpoint import Endpoint
from layer.dispatch.member import SubscriptionHandle, SubscriptionMember
from layer.dispatch.strategy import SubscriptionType
from layer.kafka import handles
from layer.kafka.admin import KafkaAdmin
from layer.kafka.fetcher import Fetcher
from layer.kafka.producer import KafkaProducer
from layer.kafka.records import CommittedOffset
from layer.kafka.settings import KafkaSettings
from layer.limits import raise_open_file_limit, warn_when_files_run_out
from layer.metadata.entities import Entities
from layer.metadata.namespaces import NAMESPACE_KEYS, Namespaces
from layer.metadata.subscriptions import SUBSCRIPTION_KEYS, Claimant, Subscription, Subscriptions, member_client_id
from layer.metadata.topics import TOPIC_KEYS, Topic, Topics
from layer.statelog.kafka_log import KafkaStateLog
from mapping.state_topics import NAMESPACES, SUBSCRIPTIONS, TOPICS

_log = logging.getLogger(__name__)

DEFAULT_LINGER_MS: Final = 1.0
FETCH_QUEUE_KBYTES: Final = 16 * 1024
_CLOSE_S: Final = 10.0


class Node:
    """This process's presence in one cluster. Use `acquire` and `release`; thread-safe."""

    def __init__(self, settings: KafkaSettings, deadline: Deadline) -> None:
        raise_open_file_limit()
        self.settings = settings
        self.clock: Clock = SystemClock()
        self.admin = KafkaAdmin(settings.common())
        try:
            self.cluster_id = self.admin.cluster_id(deadline)
        except errors.LayerError:
            self.admin.close()
            raise
        self._producers: dict[tuple[str, int], KafkaProducer] = {}
        self._lock = threading.RLock()
        self.log = KafkaStateLog(settings, lambda: self.producer("none", 30_000), self.admin)
        self.fetcher = Fetcher(settings.reader(fetch_queue_kbytes=FETCH_QUEUE_KBYTES))
        self.namespaces = Namespaces(Entities(self.log, NAMESPACES, NAMESPACE_KEYS, self.clock), self.clock)
        self.topics = Topics(
            Entities(self.log, TOPICS, TOPIC_KEYS, self.clock),
            self.namespaces,
            self.admin,
            self.clock,
        )
        self.subscriptions = Subscriptions(
            Entities(self.log, SUBSCRIPTIONS, SUBSCRIPTION_KEYS, self.clock),
            self.admin,
            self.clock,
        )
        self.store = CursorStore(self.log)
        self.checkpoints = Checkpoints(self.log, self.clock)
        self._members: dict[tuple[str, str], _SharedMember] = {}
        self._names = 0
        self._label = f"{self.cluster_id[:8]}-{secrets.token_hex(4)}"
        self.users = 0

    def producer(self, compression: str, message_timeout_ms: int) -> KafkaProducer:
        """The shared producer with these settings; one that librdkafka gave up is replaced.

        `compression` is Kafka's name; a time-out of 0 never passes.
        """
        with self._lock:
            key = (compression, message_timeout_ms)
            producer = self._producers.get(key)
            if producer is not None and producer.fatal is not None:
                producer.close(Deadline.after(0))
                producer = None
            if producer is None:
                producer = KafkaProducer(
                    self.settings.producer(
                        compression=compression, message_timeout_ms=message_timeout_ms, linger_ms=DEFAULT_LINGER_MS
                    )
                )
                producer.connect(Deadline.after(self.settings.connect_timeout_ms / 1000))
                self._producers[key] = producer
            return producer

    def unique_name(self) -> str:
        """A name no other producer of the cluster has."""
        with self._lock:
            self._names += 1
            return f"{self._label}-{self._names - 1}"

    # Subscriptions ------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topic: Topic,
        name: str,
        kind: SubscriptionType,
        endpoint: Endpoint,
        *,
        from_earliest: bool,
        ack_persist_interval_s: float,
        deadline: Deadline,
    ) -> tuple[Subscription, SubscriptionMember]:
        """Attach a consumer; the first one of a subscription makes this process a member of its group.

        Raises:
            SubscriptionBusy: somebody holds the subscription in a way that excludes this consumer.
        """
        shared = self._shared_member(str(topic.name), name)
        with shared.lock:
            member = shared.member
            if member is not None and member.failure is None and shared.subscription is not None:
                if kind is SubscriptionType.EXCLUSIVE or member.type is not kind:
                    raise errors.SubscriptionBusy(
                        f"subscription {name} of {topic.name} has a live {member.type.value} consumer in this process"
                    )
                member.attach(endpoint)
                shared.endpoints.add(endpoint)
                return shared.subscription, member
            session = secrets.token_hex(16)
            client_id = member_client_id(self.settings.client_id, session)
            claimant = Claimant(session, client_id, endpoint.name) if kind is SubscriptionType.EXCLUSIVE else None
            subscription = self.subscriptions.open(
                topic, name, kind, from_earliest=from_earliest, claimant=claimant, deadline=deadline
            )
            member = self._join(subscription, session, client_id, ack_persist_interval_s)
            member.attach(endpoint)
            shared.member, shared.subscription, shared.session = member, subscription, session
            shared.endpoints = {endpoint}
            return subscription, member

    def _join(
        self, subscription: Subscription, session: str, client_id: str, ack_persist_interval_s: float
    ) -> SubscriptionMember:
        topic = subscription.topic
        slots: dict[int, PartitionSlot] = {}

        def slot(partition: int) -> PartitionSlot:
            found = slots.get(partition)
            if found is None:
                name = str(topic.name.with_partition(partition)) if topic.partitioned else str(topic.name)
                made = PartitionSlot(name, partition, topic.partition_field(partition), topic.layout)
                found = slots.setdefault(partition, made)  # two threads that ask at once get the same one
            return found

        def checkpoint(partition: int, deadline: Deadline) -> CommittedOffset | None:
            return self.checkpoints.newest(cursor_identity(subscription, partition), deadline)

        handle = SubscriptionHandle(
            str(topic.name),
            subscription.name,
            topic.kafka_topic,
            subscription.type,
            slot,
            lambda: list(slots.values()),
            lambda partition: cursor_identity(subscription, partition),
            subscription.start_offset,
            checkpoint,
            lambda deadline: self.subscriptions.verify(subscription, session, deadline),
        )
        config = self.settings.group_member(
            group_id=subscription.group, client_id=client_id, fetch_queue_kbytes=FETCH_QUEUE_KBYTES
        )
        member = SubscriptionMember(
            handle, config, self.store, self.fetcher, self.clock, ack_persist_interval_s=ack_persist_interval_s
        )
        member.start()
        warn_when_files_run_out()
        return member

    def unsubscribe(self, subscription: Subscription, endpoint: Endpoint, deadline: Deadline) -> None:
        """Delete a subscription whose last consumer `endpoint` is.

        Raises:
            SubscriptionBusy: it has other consumers, here or elsewhere.
        """
        shared = self._shared_member(str(subscription.topic.name), subscription.name)
        with shared.lock:
            if len(shared.endpoints) > 1:
                raise errors.SubscriptionBusy(
                    f"subscription {subscription.name} has {len(shared.endpoints) - 1} other consumers"
                )
            others = self.admin.describe_group(subscription.group, deadline).members
            if len(others) > 1:
                raise errors.SubscriptionBusy(f"subscription {subscription.name} has consumers in other processes")
            self._leave(shared, endpoint, deadline, release=False)
            self.delete_subscription(subscription, deadline)

    def delete_subscription(self, subscription: Subscription, deadline: Deadline) -> None:
        """Delete a subscription without consumers, its group, and what its cursors wrote.

        Raises:
            SubscriptionBusy: it has live consumers.
        """
        cursors = self.read_cursors(subscription, deadline)
        self.subscriptions.delete(subscription, deadline)
        for partition, cursor in cursors.items():
            if cursor.saved is not None:
                identity = cursor_identity(subscription, partition)
                self.store.forget(identity, cursor.saved, deadline)
                self.store.drop_checkpoint(identity, cursor.saved.lineage.session, deadline)

    def read_cursors(self, subscription: Subscription, deadline: Deadline) -> dict[int, Recovered]:
        """The cursors of a subscription as last saved, whoever owns them; disturbs nobody."""
        topic = subscription.topic
        partitions = range(topic.partitions)
        committed = self.admin.committed(subscription.group, topic.kafka_topic, partitions, deadline)
        cursors = {}
        for partition in partitions:
            identity = cursor_identity(subscription, partition)
            commit = committed.get(partition)
            checkpoint = None if commit is not None else self.checkpoints.newest(identity, deadline)
            cursors[partition] = self.store.recover(
                identity, commit, checkpoint, subscription.start_offset(partition), deadline
            )
        return cursors

    def detach(self, subscription: Subscription, endpoint: Endpoint, deadline: Deadline) -> None:
        """Take a consumer off; the last one makes this process leave the group."""
        shared = self._shared_member(str(subscription.topic.name), subscription.name)
        with shared.lock:
            self._leave(shared, endpoint, deadline, release=True)

    def _leave(self, shared: _SharedMember, endpoint: Endpoint, deadline: Deadline, *, release: bool) -> None:
        member, subscription = shared.member, shared.subscription
        if member is None or subscription is None or endpoint not in shared.endpoints:
            endpoint.close()  # its member failed and was replaced
            return
        shared.endpoints.discard(endpoint)
        if shared.endpoints:
            member.detach(endpoint, deadline)
            return
        shared.member = shared.subscription = None
        endpoint.close()
        member.stop(deadline)
        if release and subscription.type is SubscriptionType.EXCLUSIVE:
            self.subscriptions.release(subscription, shared.session, deadline)

    def _shared_member(self, topic: str, subscription: str) -> _SharedMember:
        with self._lock:
            return self._members.setdefault((topic, subscription), _SharedMember())

    # Life ---------------------------------------------------------------------------------------------------------

    def close(self, deadline: Deadline) -> None:
        """Leave every group (acknowledgements are saved), answer what is under way, end every thread."""
        for shared in list(self._members.values()):
            with shared.lock:
                member, shared.member = shared.member, None
                if member is None:
                    continue
                try:
                    member.stop(deadline)
                    if shared.subscription is not None and shared.subscription.type is SubscriptionType.EXCLUSIVE:
                        self.subscriptions.release(shared.subscription, shared.session, deadline)
                except errors.LayerError as failure:
                    _log.warning("cluster=%s closing: %s", self.cluster_id, failure)
        self.log.close()
        self.fetcher.close()
        for producer in self._producers.values():
            unanswered = producer.close(deadline)
            if unanswered:
                _log.warning("cluster=%s closed with %d unanswered records", self.cluster_id, unanswered)
        self.admin.close()


class _SharedMember:
    """The one membership of a subscription in this process, and the consumers that use it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.member: SubscriptionMember | None = None
        self.subscription: Subscription | None = None
        self.session = ""
        self.endpoints: set[Endpoint] = set()


def cursor_identity(subscription: Subscription, partition: int) -> CursorIdentity:
    topic = subscription.topic
    return CursorIdentity(
        str(topic.name),
        partition,
        subscription.name,
        topic.kafka_topic,
        topic.kafka_topic_id,
        topic.layout.incarnation,
        subscription.incarnation,
        topic.layout.entries_per_ledger,
    )


_nodes: dict[object, Node] = {}
_nodes_lock = threading.Lock()


def acquire(settings: KafkaSettings, deadline: Deadline) -> Node:
    """This process's node for a cluster, made when nobody uses one yet.

    Raises:
        ConnectFailed: no broker answers in time.
    """
    with _nodes_lock:
        node = _nodes.get(settings.identity)
        if node is None:
            node = _nodes[settings.identity] = Node(settings, deadline)
        node.users += 1
        return node


def release(node: Node) -> None:
    """Give a node back; the last user closes it."""
    with _nodes_lock:
        node.users -= 1
        if node.users > 0:
            return
        if _nodes.get(node.settings.identity) is node:
            del _nodes[node.settings.identity]
    node.close(Deadline.after(_CLOSE_S))


def _close_all() -> None:
    """An interpreter that exits without `close()` still leaves its groups and keeps what was acknowledged."""
    with _nodes_lock:
        nodes = list(_nodes.values())
        _nodes.clear()
    for node in nodes:
        node.close(Deadline.after(_CLOSE_S))


def _forget_after_fork() -> None:
    global _nodes_lock
    _nodes_lock = threading.Lock()
    _nodes.clear()


atexit.register(_close_all)
handles.after_fork_in_child(_forget_after_fork)
