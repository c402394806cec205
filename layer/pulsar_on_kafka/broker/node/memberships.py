"""The memberships of a process: one for each subscription that it consumes, and what is done to subscriptions."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline, wait_until
from pulsar_on_kafka.base.open_files import warn_when_files_run_out
from pulsar_on_kafka.base.processes import is_over, member_client_id
from pulsar_on_kafka.base.scheduler import Scheduler
from pulsar_on_kafka.broker.cursor.ledger_acks import LedgerAcks
from pulsar_on_kafka.broker.cursor.saved_cursor import RecoveredCursor
from pulsar_on_kafka.broker.managed_ledger.deletion import deletes_by_ledger
from pulsar_on_kafka.broker.managed_ledger.deletion_topics import deletion_group
from pulsar_on_kafka.broker.metadata.subscriptions.ordered_redelivery import is_ordered
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription, SubscriptionType
from pulsar_on_kafka.broker.metadata.subscriptions.subscription_holders import Claimant
from pulsar_on_kafka.broker.metadata.topic_watch import POLICIES_S, TopicWatch
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.consumer_limits import ConsumerLimits
from pulsar_on_kafka.broker.node.dispatch_shares import DispatchShares
from pulsar_on_kafka.broker.node.member_opening import MemberOpening, MembershipOptions, policies_followed
from pulsar_on_kafka.broker.node.readers import compacted_ranges
from pulsar_on_kafka.broker.node.services import Services
from pulsar_on_kafka.broker.subscriptions.member.member import SubscriptionMember
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint
from pulsar_on_kafka.broker.subscriptions.requests.channel import DeliveryChannel
from pulsar_on_kafka.broker.subscriptions.requests.cursor_admin import (
    AcknowledgedLedgers,
    LiveCursors,
    acknowledge_ledgers,
)
from pulsar_on_kafka.broker.subscriptions.requests.idle_cursors import IdleCursors, IdleTransactions, SavedCursors
from pulsar_on_kafka.broker.subscriptions.requests.lease_channel import LeaseChannel
from pulsar_on_kafka.broker.subscriptions.requests.request_listener import Answering, RequestListener
from pulsar_on_kafka.broker.subscriptions.requests.transaction_acks import TransactionAcksElsewhere
from pulsar_on_kafka.broker.subscriptions.requests.transaction_holding import TransactionHolding
from pulsar_on_kafka.kafka.reading.assigned_reader import AssignedReader
from pulsar_on_kafka.statelog.kafka_log import FETCH_QUEUE_KBYTES as STATE_FETCH_QUEUE_KBYTES
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.cursors.cursor_state import decode_commit_metadata

_log = logging.getLogger(__name__)

_DELIVERIES_WAIT_MS: Final = 500
_TAKE_BACK_S: Final = 10.0
"""Limit for the end of a consumer that could not be opened, beside the time that opening it took."""
_CONSUMERS_CLOSE_S: Final = 5.0
"""Limit for the wait for the consumers of a deleted topic. One that hangs is a member for a session's time."""
_POLICIES_TIMEOUT_S: Final = 10.0
_LEASE_THREADS: Final = 8
"""Threads for what is written about leases, there from the first time on that so many have something to do at once."""


class Memberships:
    """Thread-safe. Memory: the memberships that have consumers."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.cursors = SavedCursors(services.admin, services.store, services.checkpoints, services.idle_offsets)
        self._members: dict[tuple[str, str], _SharedMember] = {}
        self._partitions: dict[tuple[TopicName, str], dict[int, _SharedMember]] = {}
        """The same by topic and subscription, then by partition (-1 for the whole topic)."""
        self._lock = threading.Lock()
        self.deliveries = DeliveryChannel(services.log, self._delivery_reader())
        self._answering = Answering(self.deliveries)
        self._lease_executor = ThreadPoolExecutor(_LEASE_THREADS, thread_name_prefix="pok-leases")
        self._transactions_elsewhere = TransactionAcksElsewhere(self.deliveries)
        self._opening = MemberOpening(services, self.cursors, self._lease_channel, self._transactions_elsewhere)
        idle = IdleCursors(
            self.cursors,
            services.idle_offsets,
            services.store,
            services.clock,
            lambda found, deadline: services.subscriptions.find(found.topic, found.name, deadline),
        )
        idle_transactions = IdleTransactions(services.pending_acks, idle, services.store)
        self.live_cursors = LiveCursors(
            self.deliveries,
            services.admin,
            services.store,
            idle_transactions,
            idle,
            self._serving,
            services.subscriptions.joining,
        )
        self._scheduler = Scheduler("pok-policies")
        self._policies = TopicWatch[_SharedMember](self._scheduler, POLICIES_S, self._update_policies)
        self.transaction_holding = TransactionHolding(
            self._transactions_elsewhere, idle, idle_transactions, services.admin
        )
        self._shares = DispatchShares(services)
        self._limits = ConsumerLimits(services, self.live_cursors, self._own_consumers)

    def _own_consumers(self, subscription: Subscription) -> dict[int, tuple[str, int]]:
        found = self._found(subscription.topic.name, subscription.name)
        return {place: (shared.client_id, len(shared.endpoints)) for place, shared in found.items()}

    def _delivery_reader(self) -> AssignedReader:
        config = self._services.settings.shared_tail(
            client_id="deliveries", fetch_queue_kbytes=STATE_FETCH_QUEUE_KBYTES, wait_ms=_DELIVERIES_WAIT_MS
        )
        return AssignedReader(self._services.settings.of_state(config), "reader of deliveries")

    def subscribe(
        self,
        topic: Topic,
        name: str,
        kind: SubscriptionType,
        endpoint: Endpoint,
        *,
        from_earliest: bool,
        ack_persist_interval_s: float,
        read_compacted: bool,
        deadline: Deadline,
        partition: int | None = None,
        properties: Mapping[str, str] | None = None,
        replicated: bool = False,
        non_durable: bool = False,
        ordered: bool | None = None,
    ) -> tuple[Subscription, SubscriptionMember]:
        """Attaches a consumer; the first one of a subscription makes this process a member of its group. With
        `partition` the consumer is attached to that partition alone. `properties` of the subscription, and whether it
        is `replicated`, are recorded (`Subscriptions.remember`). A `non_durable` subscription ends with its last
        consumer. After any error the consumer is not attached, and may be closed. `ordered`: its `ordered_redelivery`,
        which all consumers of a subscription share; None: as the subscription's property or a policy says.

        Raises:
            InvalidOption: the subscription has the other `ordered_redelivery`.
            Refused: it is durable and `non_durable` is requested, or the other way round.
            NoSuchSubscription: `non_durable`, and its former last consumer removed it just then; try again. Or it does
                not exist, and a policy does not allow consumers to create it.
            SubscriptionBusy: another consumer or operation holds the subscription exclusively, or a policy allows no
                more consumers.
        """
        place = topic.name if partition is None else topic.name.with_partition(partition)
        self._limits.check(topic, name, partition, deadline)
        with self._shared_member(str(place), name) as shared:
            shared.end_earlier_incarnation(topic, deadline)
            levels = self._services.policies_when_opened(topic, deadline)
            if shared.subscription is not None and (
                is_ordered(shared.subscription, *levels) if ordered is None else ordered
            ):
                endpoint.keep_redelivery_order()
            if (attached := shared.attached(endpoint, kind, non_durable=non_durable)) is not None:
                if properties or replicated or ordered is not None:
                    self._describe(shared, endpoint, properties or {}, replicated, ordered, deadline)
                return attached
            self._check_other_way(topic, name, partition)
            self._remove_left_over(topic, name, deadline)
            if not non_durable:
                self._services.check_new_subscription(topic, name, deadline, automatic=True)
            session = secrets.token_hex(16)
            client_id = member_client_id(self._services.settings.client_id, session)
            claimant = Claimant(session, client_id, endpoint.name)
            subscription = self._services.subscriptions.open(
                topic,
                name,
                kind,
                from_earliest=from_earliest,
                claimant=claimant,
                deadline=deadline,
                partition=partition,
                non_durable=non_durable,
                properties=properties,
                replicated=replicated,
                ordered=ordered,
            )
            if is_ordered(subscription, *levels):
                endpoint.keep_redelivery_order()
            served, member = subscription.served, None
            try:
                self._services.topics.deletions.await_decision(topic, deadline)
                compacted = compacted_ranges(self._services, topic, served, deadline) if read_compacted else {}
                joining = MembershipOptions(subscription, session, client_id, ack_persist_interval_s, compacted)
                member = self._opening.member(joining, deadline)
                member.start(endpoint)
                self._wait_until_seen(subscription, member, client_id, deadline)
            except BaseException:
                endpoint.close()
                self._take_back(subscription, member, client_id)
                raise
            warn_when_files_run_out()
            shared.begin(subscription, member, client_id, endpoint)
            self._policies.watch(topic, shared)
            shared.listener = RequestListener(self.deliveries, self._answering, subscription, client_id, member)
            return subscription, member

    def _update_policies(self, watched: Sequence[tuple[_SharedMember, Topic]]) -> None:
        """Reads the state topics `topics` and `namespaces`, those of their partitions that hold topics in use."""
        topics = {topic.name.base for _, topic in watched}
        try:
            reported = self._services.subscription_policies(topics, Deadline.after(_POLICIES_TIMEOUT_S))
        except errors.LayerError as failure:  # read again with the next look
            _log.info("cluster=%s policies of subscriptions are not known: %s", self._services.cluster_id, failure)
            return
        for shared, topic in watched:
            member, subscription = shared.member, shared.subscription
            if member is not None and subscription is not None:
                member.follow_policies(policies_followed(subscription, reported[topic.name.base]))
        self._shares.look(topic for _, topic in watched if reported[topic.name.base].dispatch_rate is not None)

    def _take_back(self, subscription: Subscription, member: SubscriptionMember | None, client_id: str) -> None:
        """End what there is of a membership that could not be opened."""
        deadline = Deadline.after(_TAKE_BACK_S)
        try:
            if member is not None:
                member.stop(deadline)
            self._services.subscriptions.release(subscription, client_id, deadline)
        except errors.LayerError as failure:  # its claim and its entry end by themselves
            _log.warning("subscription=%s its claim is left for some seconds: %s", subscription.name, failure)

    def _describe(
        self,
        shared: _SharedMember,
        endpoint: Endpoint,
        properties: Mapping[str, str],
        replicated: bool,
        ordered: bool | None,
        deadline: Deadline,
    ) -> None:
        """Records the attached consumer's options of the subscription, or detaches the consumer."""
        assert shared.subscription is not None  # noqa: S101 - the consumer is attached
        try:
            self._services.subscriptions.remember(shared.subscription, properties, replicated, deadline, ordered)
        except BaseException:
            self._leave(shared, endpoint, Deadline.after(_TAKE_BACK_S), release=True)
            raise

    def _lease_channel(self, subscription: Subscription) -> LeaseChannel:
        def live_members(deadline: Deadline) -> Collection[str]:
            members = self._services.admin.describe_group(subscription.group, deadline).members
            return frozenset(member.client_id for member in members if not is_over(member.client_id))

        def saved_version(partition: int, deadline: Deadline) -> int:
            topic = subscription.topic.kafka_topic
            found = self._services.admin.committed(subscription.group, topic, [partition], deadline).get(partition)
            metadata = None if found is None else decode_commit_metadata(found.metadata)
            return -1 if metadata is None else metadata.lineage.version

        topic = str(subscription.topic.name)
        return LeaseChannel(
            self.deliveries, topic, subscription.name, subscription.partition, live_members, saved_version,
            self._lease_executor,
        )  # fmt: skip

    def _wait_until_seen(
        self, subscription: Subscription, member: SubscriptionMember, client_id: str, deadline: Deadline
    ) -> None:
        """Returns once processes that need the whole topic, or would remove it, see the member. On a non-persistent
        topic it also waits until the group shows the member: such a subscription exists while it has members, and
        officially it exists when `subscribe` returns."""
        if subscription.partition is not None or subscription.non_durable:
            member.wait_until_assigned(deadline)
            return
        if subscription.topic.name.is_persistent:
            return

        def seen() -> bool:
            members = self._services.admin.describe_group(subscription.group, deadline).members
            return member.failure is not None or any(found.client_id == client_id for found in members)

        if not wait_until(seen, deadline):
            raise errors.DeadlineExceeded(
                f"subscription {subscription.name} of {subscription.place} was not joined in time"
            )
        if member.failure is not None:
            raise member.failure

    def _check_other_way(self, topic: Topic, name: str, partition: int | None) -> None:
        """Raises SubscriptionBusy when this process serves the subscription in the other way (see `Subscriptions.open`,
        which cannot see a member that has not joined its group yet)."""
        found = self._found(topic.name, name)
        others = [each for each in found if each >= 0] if partition is None else found.keys() & {-1}
        for other in others:
            shared = found[other]
            if shared.member is None or shared.member.failure is not None or shared.is_of_earlier_incarnation(topic):
                continue
            served = "as a whole" if partition is not None else f"partition by partition (partition {other})"
            raise errors.SubscriptionBusy(
                f"subscription {name} of {topic.name} has a live consumer in this process that serves it {served}; "
                "consumers of the whole topic and consumers of single partitions exclude each other"
            )

    def create_subscription(self, topic_name: TopicName, name: str, deadline: Deadline) -> None:
        """Make a subscription from the beginning of a topic, and the topic, unless they are there."""
        topic = self._services.topics.open(topic_name, deadline)
        self._services.check_new_subscription(topic, name, deadline, automatic=True)
        self._services.subscriptions.find_or_create(topic, name, deadline)
        self._services.topics.deletions.await_decision(topic, deadline)

    def unsubscribe(self, subscription: Subscription, endpoint: Endpoint, deadline: Deadline) -> None:
        """Delete a subscription whose last consumer `endpoint` is.

        Raises:
            SubscriptionBusy: it has other consumers, here or elsewhere.
        """
        with self._shared_member(subscription.place, subscription.name) as shared:
            if len(shared.endpoints) > 1:
                raise errors.SubscriptionBusy(
                    f"subscription {subscription.name} has {len(shared.endpoints) - 1} other consumers"
                )
            members = self._services.admin.describe_group(subscription.group, deadline).members
            living = {member.client_id for member in members if not is_over(member.client_id)}
            if living.union(self._services.subscriptions.joining(subscription, deadline)) - {shared.client_id}:
                raise errors.SubscriptionBusy(f"subscription {subscription.name} has consumers in other processes")
            if shared.member is not None and shared.member.failure is None:
                shared.member.wait_until_assigned(deadline)  # a member that is still joining cannot send LeaveGroup
            self._leave(shared, endpoint, deadline, release=False)
            self.delete_subscription(subscription, deadline)

    def delete_subscription(self, subscription: Subscription, deadline: Deadline, *, force: bool = False) -> None:
        """Delete a subscription, its group, and what its cursors wrote. With `force` its consumers are ended before.

        Raises:
            SubscriptionBusy: it has live consumers.
            DeadlineExceeded: with `force`: they did not go in time, or others came again and again.
        """
        if force:
            self.live_cursors.close_consumers([subscription], deadline)
        cursors, _ = self.cursors.read_readable(subscription, deadline)
        try:
            self._services.subscriptions.delete(subscription, deadline, force=force)
        except errors.SubscriptionBusy:
            if not force:
                raise
            deadline.check(f"consumers of subscription {subscription.name} to stay away")
            self.delete_subscription(subscription, deadline, force=True)
            return
        self.cursors.forget(subscription, cursors, deadline)

    def delete_topic(
        self,
        topic: Topic,
        subscriptions: Sequence[Subscription],
        deadline: Deadline,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Deletes a topic, and, as far as possible now, its schemas and the records of its subscriptions' cursors. A
        bound Kafka topic keeps its messages and its schemas.

        When this returns the topic does not exist; its data is deleted ledger by ledger after that. The data is deleted
        at once where a client is connected, which would not notice the deletion otherwise, and where no process deletes
        ledgers.

        Args:
            check: raises where the topic is used; the topic then stays. The records that it checks must be written
                before a program calls `DeletionMarks.await_decision`. None deletes the topic in any case.
        """
        cursors: list[tuple[Subscription, dict[int, RecoveredCursor]]] = []
        for subscription in subscriptions:
            try:
                cursors.append((subscription, self.cursors.read_readable(subscription, deadline)[0]))
            except errors.StoreError as failure:
                _log.warning("subscription=%s its cursors cannot be read: %s", subscription.name, failure)
        topics = self._services.topics
        if check is None:
            deleting = topics.begin_deletion(topic.name, deadline)
        else:
            deleting = topics.deletions.begin(topic, check, deadline)
        at_once = (  # judged while its consumers are connected
            not deletes_by_ledger(deleting)
            or self._are_used(topic, subscriptions, deadline)
            or not self._has_members(deletion_group(self._services.settings.instance), deadline)
        )
        self._close_consumers_of_deleted(topic, subscriptions)
        if at_once:
            self._services.topics.finish_deletion(deleting, deadline)
        for subscription, found in cursors:
            try:
                self.cursors.forget(subscription, found, deadline)
            except errors.StoreError as failure:
                _log.warning("subscription=%s its cursors are left over: %s", subscription.name, failure)
        try:
            self._services.namespaces.forget_topic(topic.name, deadline)
        except errors.LayerError as failure:
            _log.warning("topic=%s its permissions are left over: %s", topic.name, failure)
        if not topic.bound:
            try:
                self._services.schemas.forget(topic.name, deadline)
            except errors.LayerError as failure:  # they are those of a Kafka topic that will never be again
                _log.warning("topic=%s its schemas are left over: %s", topic.name, failure)

    def _close_consumers_of_deleted(self, topic: Topic, subscriptions: Sequence[Subscription]) -> None:
        """Close them before there can be another topic of this name, whose messages they would receive."""
        try:
            self.live_cursors.close_consumers(subscriptions, Deadline.after(_CONSUMERS_CLOSE_S), topic_deleted=True)
        except errors.LayerError as failure:  # they find out by themselves (broker/metadata/incarnation_checks.py)
            _log.warning("topic=%s is deleted beside consumers that were not closed: %s", topic.name, failure)

    def _are_used(self, topic: Topic, subscriptions: Sequence[Subscription], deadline: Deadline) -> bool:
        groups = [group for subscription in subscriptions for group in subscription.groups]
        return (
            self.serves(topic.name)
            or bool(self._services.producers.connected(topic, deadline))
            or any(self._has_members(group, deadline) for group in groups)
        )

    def _has_members(self, group: str, deadline: Deadline) -> bool:
        """Whether the group has members; False also without the right to see them."""
        try:
            members = self._services.admin.describe_group(group, deadline).members
        except errors.NotAuthorized:
            return False
        return any(not is_over(member.client_id) for member in members)

    def acknowledge(
        self, subscription: Subscription, acks: Mapping[int, LedgerAcks], deadline: Deadline
    ) -> AcknowledgedLedgers:
        """Acknowledges these entries through their owners, or by saves where a cursor has no owner. Raises the errors
        of `acknowledge_ledgers`."""
        return acknowledge_ledgers(self.live_cursors, self._services.admin, subscription, acks, deadline)

    def detach(self, subscription: Subscription, endpoint: Endpoint, deadline: Deadline) -> None:
        """Take a consumer off; the last one makes this process leave the group."""
        with self._shared_member(subscription.place, subscription.name) as shared:
            self._leave(shared, endpoint, deadline, release=True)
            if subscription.non_durable and shared.member is None:
                try:
                    self.remove_if_unused(subscription, deadline)
                except errors.LayerError as failure:
                    _log.warning("subscription=%s is left over for now: %s", subscription.name, failure)

    def remove_if_unused(self, subscription: Subscription, deadline: Deadline) -> bool:
        """Delete a non-durable subscription, unless it has live consumers; whether it is gone. Members that Kafka does
        not know to be dead yet are waited for, for a session's time at most.

        Raises:
            DeadlineExceeded: they did not go in time.
        """
        gone = False

        def settled() -> bool:
            nonlocal gone
            if any(self._has_members(group, deadline) for group in subscription.groups):
                return True
            try:
                self.delete_subscription(replace(subscription, partition=None), deadline)
            except errors.SubscriptionBusy:
                return False
            gone = True
            return True

        if not wait_until(settled, deadline):
            raise errors.DeadlineExceeded(f"subscription {subscription.name} has dead members that Kafka still has")
        return gone

    def _remove_left_over(self, topic: Topic, name: str, deadline: Deadline) -> None:
        """Removes a non-durable subscription of this name whose consumers are dead: the next one starts anew."""
        found = self._services.subscriptions.find(topic, name, deadline)
        if found is not None and found.non_durable:
            self.remove_if_unused(found, deadline)

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
        self._policies.unwatch(shared)
        shared.silence()
        endpoint.close()
        member.stop(deadline)
        if release:
            self._services.subscriptions.release(subscription, shared.client_id, deadline)

    def members(self) -> dict[tuple[str, str], SubscriptionMember]:
        """The memberships of this process, by topic and subscription."""
        found = {key: shared.member for key, shared in list(self._members.items())}
        return {key: member for key, member in found.items() if member is not None}

    def serves(self, topic: TopicName) -> bool:
        """Whether this process consumes the topic or a partition of it. True as soon as `subscribe` returns, while the
        subscription's group may show its new member only some milliseconds later."""
        with self._lock:
            names = [name for base, name in self._partitions if base == topic.base]
        return any(self._live(topic, name) for name in names)

    def _serving(self, subscription: Subscription) -> list[SubscriptionMember]:
        return self._live(subscription.topic.name, subscription.name)

    def _live(self, topic: TopicName, name: str) -> list[SubscriptionMember]:
        members = [shared.member for shared in self._found(topic, name).values()]
        return [member for member in members if member is not None and member.failure is None]

    def _found(self, topic: TopicName, name: str) -> dict[int, _SharedMember]:
        """The memberships of a subscription of a topic, by partition (-1 for the whole topic)."""
        with self._lock:
            return dict(self._partitions.get((topic.base, name), {}))

    def _remember(self, key: tuple[str, str]) -> _SharedMember:
        shared = self._members.get(key)
        if shared is None:
            shared = self._members[key] = _SharedMember()
            place = TopicName.parse(key[0])
            self._partitions.setdefault((place.base, key[1]), {})[place.partition] = shared
        return shared

    def _forget(self, key: tuple[str, str]) -> None:
        if self._members.pop(key, None) is not None:
            place = TopicName.parse(key[0])
            partitions = self._partitions[place.base, key[1]]
            del partitions[place.partition]
            if not partitions:
                del self._partitions[place.base, key[1]]

    @contextmanager
    def _shared_member(self, topic: str, subscription: str) -> Iterator[_SharedMember]:
        """The locked membership; forgotten when no consumer uses it afterwards."""
        key = topic, subscription
        while True:
            with self._lock:
                shared = self._remember(key)
            with shared.lock:
                if self._members.get(key) is not shared:
                    continue  # forgotten while it was waited for
                try:
                    yield shared
                finally:
                    if shared.member is None:
                        with self._lock:
                            self._forget(key)
            return

    def close(self, deadline: Deadline) -> None:
        """Leave every group; acknowledgements are saved."""
        self._scheduler.close(deadline.remaining_s())
        for shared in list(self._members.values()):
            with shared.lock:
                member, shared.member = shared.member, None
                shared.silence()
                if member is None:
                    continue
                try:
                    member.stop(deadline, orderly=False)
                    if shared.subscription is not None:
                        self._services.subscriptions.release(shared.subscription, shared.client_id, deadline)
                except errors.LayerError as failure:
                    _log.warning("cluster=%s closing: %s", self._services.cluster_id, failure)
        self._answering.close()
        self._transactions_elsewhere.close()
        self._lease_executor.shutdown(wait=False, cancel_futures=True)
        self.deliveries.close(deadline)


class _SharedMember:
    """The one membership of a subscription in this process, and the consumers that use it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.member: SubscriptionMember | None = None
        self.subscription: Subscription | None = None
        self.client_id = ""
        self.endpoints: set[Endpoint] = set()
        self.listener: RequestListener | None = None

    def attached(
        self, endpoint: Endpoint, kind: SubscriptionType, *, non_durable: bool
    ) -> tuple[Subscription, SubscriptionMember] | None:
        """Attach one more consumer; None when there is no membership that serves. Raises as `Memberships.subscribe`."""
        member, subscription = self.member, self.subscription
        if member is None or member.failure is not None or subscription is None:
            return None
        who = f"subscription {subscription.name} of {subscription.place}"
        if kind is SubscriptionType.EXCLUSIVE or member.type is not kind:
            raise errors.SubscriptionBusy(f"{who} has a live {member.type.value} consumer in this process")
        if subscription.non_durable is not non_durable:
            raise errors.Refused(f"{who} has a live consumer of the other mode")
        member.attach(endpoint)
        self.endpoints.add(endpoint)
        return subscription, member

    def is_of_earlier_incarnation(self, topic: Topic) -> bool:
        """Whether the membership belongs to a topic that was deleted before `topic` was created under its name."""
        served = None if self.subscription is None else self.subscription.topic
        return served is not None and served.layout.incarnation < topic.layout.incarnation

    def end_earlier_incarnation(self, topic: Topic, deadline: Deadline) -> None:
        """End a membership that has not yet noticed that its topic was deleted. Its consumers raise NoSuchTopic."""
        member = self.member
        if member is None or member.failure is not None or not self.is_of_earlier_incarnation(topic):
            return
        member.end_with(errors.NoSuchTopic(f"topic {topic.name} was deleted and made anew"))
        member.stop(deadline)

    def begin(self, subscription: Subscription, member: SubscriptionMember, client_id: str, endpoint: Endpoint) -> None:
        self.silence()
        self.member, self.subscription, self.client_id = member, subscription, client_id
        self.endpoints = {endpoint}

    def silence(self) -> None:
        listener, self.listener = self.listener, None
        if listener is not None:
            listener.stop()
