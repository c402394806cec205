"""Subscriptions: the part of `AdminClient` that makes, shows, moves and deletes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple

from pulsar_on_kafka.admin.context import checked_properties, raising_pulsar_errors
from pulsar_on_kafka.admin.cursor_view import PartitionCursor, view_of
from pulsar_on_kafka.admin.cursors import CursorAdmin, check_persistent
from pulsar_on_kafka.admin.stats import (
    ConsumerStats,
    EntryHolder,
    PartitionCursorStats,
    SubscriptionStats,
    WaitingKeysStats,
    waiting_keys_of,
)
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.saved_cursor import RecoveredCursor, UnreadableCursor
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription, SubscriptionType, cursor_identity
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.cross_cluster.subscription_transfer import compare_subscription
from pulsar_on_kafka.broker.node.node import acquire, release
from pulsar_on_kafka.broker.replication_state.comparison import PartitionComparison
from pulsar_on_kafka.client.connection.cluster_settings import peer_settings
from pulsar_on_kafka_mapping.names.subscription_group import cluster_of
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import DescribeConsumers, SaveNow
from pulsar_on_kafka_mapping.state.metadata.producer_records import MAX_PROPERTIES_BYTES


@raising_pulsar_errors
class SubscriptionAdmin(CursorAdmin):
    """Cursors are shown as they were saved last; a call that moves one goes through its owner when there is one."""

    def create_subscription(
        self,
        topic: str,
        subscription: str,
        *,
        from_earliest: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Make a subscription at the topic's end (or its beginning); by a partition's name, on that partition alone.
        Raises NotAllowedError when it exists, and InvalidConfiguration when the properties take more than 256 KiB."""
        deadline = self._deadline()
        checked_properties(f"subscription {subscription}", properties or {}, MAX_PROPERTIES_BYTES)
        name, opened = TopicName.parse(topic), self._topic_around(topic, deadline)
        check_persistent(opened)
        self.node.check_new_subscription(opened, subscription, deadline)
        if name.partition >= 0:
            self._create_on_partition(opened, name, subscription, properties, deadline, from_earliest=from_earliest)
        else:
            starts, ends = self._log_ends(opened, deadline)
            offsets = starts if from_earliest else ends
            self.node.subscriptions.create(opened, subscription, offsets, deadline, properties=properties or {})
        self.node.topics.deletions.await_decision(opened, deadline)

    def _create_on_partition(
        self,
        topic: Topic,
        name: TopicName,
        subscription: str,
        properties: Mapping[str, str] | None,
        deadline: Deadline,
        *,
        from_earliest: bool,
    ) -> None:
        self._check_partition(topic, name)
        there = self.node.subscriptions.find(topic, subscription, deadline)
        if there is not None and name.partition in there.served:
            raise errors.AlreadyExists(f"subscription {subscription} of {name} exists already")
        self.node.subscriptions.open(
            topic,
            subscription,
            SubscriptionType.EXCLUSIVE,
            from_earliest=from_earliest,
            claimant=None,
            deadline=deadline,
            partition=name.partition,
            properties=properties,
        )

    def update_subscription_properties(self, topic: str, subscription: str, properties: Mapping[str, str]) -> None:
        """Replaces the properties of a subscription. A consumer that brings properties of its subscription replaces
        them later.

        Raises:
            SubscriptionNotFound: it does not exist.
            InvalidConfiguration: they take more than 256 KiB.
        """
        deadline = self._deadline()
        checked_properties(f"subscription {subscription}", properties, MAX_PROPERTIES_BYTES)
        found, _ = self._addressed(topic, subscription, deadline)
        self.node.subscriptions.set_properties(found, properties, deadline)

    def subscription_properties(self, topic: str, subscription: str) -> dict[str, str]:
        """The properties of a subscription. Raises SubscriptionNotFound."""
        return dict(self._addressed(topic, subscription, self._deadline())[0].properties)

    def replicate_subscription(self, topic: str, subscription: str) -> None:
        """Replicates a subscription to the clusters that its topic is copied to, as a consumer does with
        `replicate_subscription_state_enabled`.

        Raises:
            NotAllowedError: the topic is not persistent, or a replicator has the subscription.
            SubscriptionNotFound: it does not exist.
        """
        deadline = self._deadline()
        found = self._programs_subscription(topic, subscription, deadline)
        self.node.subscriptions.remember(found, {}, True, deadline)

    def stop_replicating_subscription(self, topic: str, subscription: str) -> None:
        """Stops the replication of a subscription in this cluster, in both directions; the subscription stays as it is.
        It is replicated again when a consumer or an administrator of this cluster enables it, or when it is deleted and
        recreated in another one.

        Raises:
            NotAllowedError: the topic is not persistent, or a replicator has the subscription.
            SubscriptionNotFound: it does not exist.
        """
        deadline = self._deadline()
        found = self._programs_subscription(topic, subscription, deadline)
        self.node.subscriptions.stop_replicating(found, deadline)

    def _programs_subscription(self, topic: str, name: str, deadline: Deadline) -> Subscription:
        found = self._kept_subscription(topic, name, deadline)
        if cluster_of(name) is not None:
            raise errors.Refused(f"{name} of {found.topic.name} belongs to a replicator")
        return found

    def list_subscriptions(self, topic: str) -> list[str]:
        """Subscriptions of a topic, or of one partition, by name; without those of replicators, as in Pulsar."""
        deadline, name = self._deadline(), TopicName.parse(topic)
        opened = self._topic_around(topic, deadline)
        if name.partition >= 0:
            self._check_partition(opened, name)
        found = self._subscriptions(opened, deadline)
        return [
            each.name
            for each in found
            if cluster_of(each.name) is None and (name.partition < 0 or name.partition in each.served)
        ]

    def subscription_stats(self, topic: str, subscription: str) -> SubscriptionStats:
        """Backlog, mark-delete, holes and owners, from the last save; sends no request to consumers."""
        deadline = self._deadline()
        found = self._subscription(topic, subscription, deadline)
        starts, ends = self._log_ends(found.topic, deadline)
        members, owners = self._members(found, deadline)
        partitions = self._cursors(found, starts, ends, owners, deadline)
        return SubscriptionStats(
            str(found.topic.name),
            found.name,
            " and ".join(sorted({kind.value for kind in found.partition_types.values()}))
            if found.by_partition
            else found.type.value,
            found.group,
            sum(p.backlog for p in partitions),
            sum(p.individually_deleted for p in partitions),
            members,
            tuple(partitions),
            found.properties,
            found.replicated,
            found.by_partition,
            dict(found.partition_groups),
            "acknowledgements" if found.replicated else "",
            not found.non_durable,
        )

    def subscription_consumers(self, topic: str, subscription: str) -> list[ConsumerStats]:
        """Every consumer in every process. Each process has three seconds to reply."""
        deadline = self._deadline()
        found = self._subscription(topic, subscription, deadline)
        reported = self.node.memberships.live_cursors.consumers(found, deadline)
        stats: list[ConsumerStats] = []
        waiting: dict[tuple[str, str], tuple[int, float]] = {}
        active: dict[tuple[str, str], list[int]] = {}
        for process, of_it in reported.items():
            for each in () if of_it is None else of_it.waiting:
                who = (each.member or process, each.name)
                messages, for_s = waiting.get(who, (0, 0.0))
                waiting[who] = (messages + each.messages, max(for_s, each.for_s))
            for one in () if of_it is None else of_it.active:
                active.setdefault((one.member or process, one.name), []).append(one.partition)
        for process, of_it in reported.items():
            if of_it is None:
                stats.append(ConsumerStats("", process, -1, -1, -1, -1, -1.0, -1.0))
                continue
            stats += [
                ConsumerStats(
                    c.name,
                    process,
                    c.priority,
                    c.permits,
                    c.unacked,
                    c.delivered,
                    c.rate,
                    c.lease_age_s,
                    *waiting.get((process, c.name), (0, 0.0)),
                    c.traffic,
                    c.metadata,
                    tuple(sorted(active.get((process, c.name), ()))),
                    c.blocked_s,
                    of_it.blocked_s,
                    of_it.throttling,
                    tuple(WaitingKeysStats(*astuple(keys)) for keys in of_it.waiting_keys),
                )
                for c in of_it.consumers
            ]
        return stats

    def waiting_keys(self, topic: str, subscription: str) -> list[WaitingKeysStats]:
        """The keys whose later messages wait for a refused one, by partition (`ordered_redelivery`). Each process has
        three seconds to reply."""
        return waiting_keys_of(self.subscription_consumers(topic, subscription))

    def read_positions(self, topic: str, subscription: str) -> dict[int, int]:
        """The read position of each partition (or that of one partition, by its name): the first offset that no
        consumer got yet, redeliveries aside. Without an owner that is the one behind mark-delete. A partition whose
        owner does not reply within three seconds is missing."""
        deadline = self._deadline()
        found, partitions = self._addressed(topic, subscription, deadline)
        _, owners = self._members(found, deadline)
        starts, _ = self._log_ends(found.topic, deadline, partitions)
        positions: dict[int, int] = {}
        for partition, cursor in self.node.memberships.cursors.read_readable(found, deadline)[0].items():
            if partition in starts and partition not in owners:
                positions[partition] = max(starts[partition], cursor.state.next_unacked)
        for report in self.node.memberships.live_cursors.consumers(found, deadline).values():
            for each in () if report is None else report.reading:
                if each.partition in starts:
                    positions[each.partition] = each.read_position
        return dict(sorted(positions.items()))

    def entry_holder(self, topic: str, subscription: str, partition: int, offset: int) -> EntryHolder | None:
        """The holder of the entry at an offset (Shared and Key_Shared); None: no consumer, or no reply of the
        partition's owner. Each process has three seconds to reply."""
        deadline = self._deadline()
        found = self._subscription(topic, subscription, deadline)
        reported = self.node.memberships.live_cursors.consumers(found, deadline, DescribeConsumers(partition, offset))
        for owner, of_it in reported.items():
            if of_it is not None and of_it.holder is not None:
                return EntryHolder(of_it.holder.name, of_it.holder.member or owner, owner)
        return None

    def subscription_cursors(self, topic: str, subscription: str, *, fresh: bool = False) -> list[PartitionCursor]:
        """Each partition's cursor (or that of one partition, by its name) with all of its holes, and their bytes on
        Kafka, as last saved; sends no request to consumers.

        With `fresh` live owners save first (`Timeout` when they do not reply).
        """
        deadline = self._deadline()
        found, partitions = self._addressed(topic, subscription, deadline)
        if fresh:
            self._move(found, dict.fromkeys(partitions, SaveNow()), deadline)
        starts, ends = self._log_ends(found.topic, deadline, partitions)
        views = []
        for partition, cursor in self._whole_cursors(found, starts, deadline).items():
            identity = cursor_identity(found, partition)
            views.append(
                view_of(
                    partition,
                    cursor,
                    found.topic.layout,
                    starts[partition],
                    ends[partition],
                    _saved_in(cursor),
                    cursor.commit_chars,
                    self.node.store.marker_bytes(identity, cursor, deadline),
                )
            )
        return views

    def compare_subscription(
        self, topic: str, subscription: str, cluster: str, *, kafka_config: Mapping[str, str] | None = None
    ) -> list[PartitionComparison]:
        """Compares the acknowledged messages of a subscription here and in another registered cluster, partition by
        partition; live owners save first. Reads both logs from their starts. `kafka_config`: librdkafka's options for
        that cluster in addition to the registered ones, above all secrets.

        Raises:
            NotAllowedError: the cluster is not registered, or has no name of its own.
            Timeout: an owner did not reply, or the logs could not be read in time.
        """
        deadline = self._deadline()
        address = self.node.clusters.registry(deadline).remote(cluster)
        if address is None:
            raise errors.NoSuchCluster(f"there is no other cluster {cluster!r:.120} (pok clusters list)")
        there = acquire(peer_settings(address, kafka_config or {}), deadline)
        try:
            return compare_subscription(self.node, there, TopicName.parse(topic), subscription, deadline)
        finally:
            release(there)

    def unsubscribe(self, topic: str, subscription: str, *, force: bool = False) -> None:
        """Delete a subscription; by a partition's name, from that partition alone.

        Raises:
            ConsumerBusy: it has live consumers, and `force` is not given. With it their `receive` raises
                SubscriptionNotFound.
            Timeout: with `force`: live consumers did not go in time; the subscription is still there.
        """
        deadline = self._deadline()
        name = TopicName.parse(topic)
        found: Subscription | None = self._subscription(str(name.base), subscription, deadline)
        if found is not None and name.partition >= 0:
            self._named_partitions(found, name)
            found = self.node.subscriptions.find(found.topic, subscription, deadline, name.partition)
        if found is not None:
            self.node.memberships.delete_subscription(found, deadline, force=force)

    def _members(self, subscription: Subscription, deadline: Deadline) -> tuple[tuple[str, ...], dict[int, str]]:
        members: list[str] = []
        owners: dict[int, str] = {}
        only: Mapping[str, int | None] = {subscription.whole_group: None}
        if subscription.by_partition:
            only = {group: partition for partition, group in subscription.partition_groups.items()}
        for group, served in only.items():
            for member in self.node.admin.describe_group(group, deadline).members:
                who = f"{member.client_id} {member.host}"
                members.append(who)
                for kafka_topic, partition in member.assigned:
                    if kafka_topic == subscription.topic.kafka_topic and served in (None, partition):
                        owners[partition] = who
        return tuple(members), owners

    def _cursors(
        self,
        subscription: Subscription,
        starts: Mapping[int, int],
        ends: Mapping[int, int],
        owners: Mapping[int, str],
        deadline: Deadline,
    ) -> list[PartitionCursorStats]:
        read, unreadable = self.node.memberships.cursors.read_readable(subscription, deadline)
        return [
            self._cursor(
                subscription,
                partition,
                cursor,
                (starts[partition], ends[partition]),
                owners.get(partition, ""),
                str(unreadable.get(partition, "")),
            )
            for partition, cursor in read.items()
        ]

    def _cursor(
        self,
        subscription: Subscription,
        partition: int,
        cursor: RecoveredCursor,
        log: tuple[int, int],
        owner: str,
        unreadable: str,
    ) -> PartitionCursorStats:
        (start, end), state = log, cursor.state
        if not subscription.topic.name.is_persistent:
            state.reset(end)  # nothing is kept for it
        if state.next_unacked < start:
            try:
                state.acknowledge_cumulative(start - 1)
            except UnreadableCursor as reason:
                unreadable = str(reason)
                state.reset(start)
        return PartitionCursorStats(
            partition,
            state.mark_delete,
            start,
            end,
            state.backlog(end),
            len(state.deleted),
            state.deleted.count_gaps(),
            _saved_in(cursor),
            owner,
            unreadable,
            0 if state.deliveries is None else len(state.deliveries.suspects),
        )


def _saved_in(cursor: RecoveredCursor) -> str:
    return "segments" if cursor.saved is not None and cursor.saved.marker is not None else cursor.source
