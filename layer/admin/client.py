"""`AdminClient`: what `pulsar-admin` does, for the parts of Pulsar that this version has.

Source of names and meaning: spec 7 and Pulsar's `pulsar-admin`. Every call is idempotent or fails with a clear error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType

from layer import errors
from layer.admin.stats import PartitionCursorStats, SubscriptionStats, TopicStats
from layer.client.errors import pulsar_errors
from layer.client.message_id import NativeMessageId, native
from layer.client.service_url import parse_service_url
from layer.cursor.machine import CursorState
from layer.cursor.store import Saved, new_session
from layer.deadline import Deadline
from layer.exceptions import AlreadyClosed
from layer.kafka.records import CommittedOffset
from layer.kafka.settings import KafkaSettings
from layer.metadata.subscriptions import Subscription
from layer.metadata.topics import Topic
from layer.node import Node, acquire, cursor_identity, release
from mapping.topic_name import TopicName

HOLES_COUNTED = 100_000
"""Holes are counted up to this number a partition."""


class AdminClient:
    """Administers one cluster. Thread-safe; also a context manager.

    Calls raise the official exceptions (`TopicNotFound`, `SubscriptionNotFound`, `ConsumerBusy`, ...).
    """

    def __init__(
        self,
        service_url: str,
        *,
        operation_timeout_seconds: float = 30.0,
        connection_timeout_ms: int = 10_000,
        kafka_config: Mapping[str, str] | None = None,
    ) -> None:
        settings = KafkaSettings(
            parse_service_url(service_url), dict(kafka_config or {}), connect_timeout_ms=connection_timeout_ms
        )
        self._timeout_s = operation_timeout_seconds
        with pulsar_errors():
            settings.check()
            self._node: Node | None = acquire(
                settings, Deadline.after(min(operation_timeout_seconds, connection_timeout_ms / 1000))
            )

    def __enter__(self) -> AdminClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give the connection back; a second call does nothing."""
        node, self._node = self._node, None
        if node is not None:
            release(node)

    @property
    def node(self) -> Node:
        if self._node is None:
            raise AlreadyClosed("the admin client is closed")
        return self._node

    def _deadline(self) -> Deadline:
        return Deadline.after(self._timeout_s)

    # Topics -------------------------------------------------------------------------------------------------------

    def create_topic(self, topic: str, *, entries_per_ledger: int | None = None) -> None:
        """Make a non-partitioned topic. Raises NotAllowedError when it exists."""
        self._create(topic, 0, entries_per_ledger)

    def create_partitioned_topic(self, topic: str, partitions: int, *, entries_per_ledger: int | None = None) -> None:
        """Make a topic of 1 to 8,192 partitions. Raises NotAllowedError when it exists."""
        with pulsar_errors():
            if partitions < 1:
                raise errors.InvalidOption(f"partitions must be 1 to 8192, got {partitions}")
        self._create(topic, partitions, entries_per_ledger)

    def _create(self, topic: str, partitions: int, entries_per_ledger: int | None) -> None:
        with pulsar_errors():
            name = TopicName.parse(topic)
            if entries_per_ledger is None:
                self.node.topics.create(name, partitions, self._deadline())
            else:
                self.node.topics.create(name, partitions, self._deadline(), entries_per_ledger=entries_per_ledger)

    def bind_topic(self, topic: str, kafka_topic: str) -> None:
        """Give an existing Kafka topic a Pulsar name. Its configuration stays as it is. Ours, not Pulsar's."""
        with pulsar_errors():
            self.node.topics.bind(TopicName.parse(topic), kafka_topic, self._deadline())

    def update_partitions(self, topic: str, partitions: int) -> None:
        """Raise the number of partitions of a partitioned topic."""
        with pulsar_errors():
            self.node.topics.grow(TopicName.parse(topic), partitions, self._deadline())

    def delete_topic(self, topic: str, *, force: bool = False) -> None:
        """Delete a topic with its data and subscriptions.

        Raises:
            TopicNotFound: there is none.
            NotAllowedError: it has subscriptions, and `force` is not given. With it their live consumers get
                `TopicNotFound` from `receive`, once Kafka's metadata tells them (up to half a minute).
        """
        with pulsar_errors():
            deadline = self._deadline()
            opened = self._topic(topic, deadline)
            subscriptions = self.node.subscriptions.list(opened, deadline)
            if subscriptions and not force:
                names = ", ".join(subscription.name for subscription in subscriptions)
                raise errors.Refused(f"topic {opened.name} has subscriptions: {names}; unsubscribe them or force")
            self.node.topics.delete(opened.name, deadline)

    def list_topics(self, namespace: str = "public/default") -> list[str]:
        """Full names of the namespace's topics (partitioned ones once)."""
        with pulsar_errors():
            return [record.name for record in self.node.topics.list(namespace, self._deadline())]

    def list_partitions(self, topic: str) -> list[str]:
        """Full names of a topic's partitions; the topic itself when it is not partitioned."""
        with pulsar_errors():
            return list(self._topic(topic, self._deadline()).partition_names)

    def topic_stats(self, topic: str) -> TopicStats:
        with pulsar_errors():
            deadline = self._deadline()
            opened = self._topic(topic, deadline)
            starts, ends = self._log_ends(opened, deadline)
            backlogs = {
                subscription.name: sum(p.backlog for p in self._cursors(subscription, starts, ends, {}, deadline))
                for subscription in self.node.subscriptions.list(opened, deadline)
            }
            return TopicStats(
                str(opened.name),
                opened.kafka_topic,
                opened.partitions,
                opened.partitioned,
                opened.bound,
                sum(ends[p] - starts[p] for p in ends),
                starts,
                ends,
                opened.layout.entries_per_ledger,
                backlogs,
            )

    # Namespaces ---------------------------------------------------------------------------------------------------

    def create_namespace(self, namespace: str) -> None:
        """Make `tenant/namespace`. Raises NotAllowedError when it exists."""
        with pulsar_errors():
            self.node.namespaces.create(namespace, self._deadline())

    def delete_namespace(self, namespace: str) -> None:
        """Raises NotAllowedError while it has topics."""
        with pulsar_errors():
            deadline = self._deadline()
            topics = self.node.topics.list(namespace, deadline)
            if topics:
                raise errors.Refused(f"namespace {namespace} has {len(topics)} topics, {topics[0].name} first")
            self.node.namespaces.delete(namespace, deadline)

    def list_namespaces(self, tenant: str) -> list[str]:
        with pulsar_errors():
            return self.node.namespaces.list(tenant, self._deadline())

    # Subscriptions ------------------------------------------------------------------------------------------------

    def create_subscription(self, topic: str, subscription: str, *, from_earliest: bool = False) -> None:
        """Make a subscription at the topic's end (or its beginning). Raises NotAllowedError when it exists."""
        with pulsar_errors():
            deadline = self._deadline()
            opened = self._topic(topic, deadline)
            starts, ends = self._log_ends(opened, deadline)
            self.node.subscriptions.create(opened, subscription, starts if from_earliest else ends, deadline)

    def list_subscriptions(self, topic: str) -> list[str]:
        with pulsar_errors():
            deadline = self._deadline()
            return [found.name for found in self.node.subscriptions.list(self._topic(topic, deadline), deadline)]

    def subscription_stats(self, topic: str, subscription: str) -> SubscriptionStats:
        """Backlog, mark-delete, holes and owners, from what was last saved; disturbs nobody."""
        with pulsar_errors():
            deadline = self._deadline()
            found = self._subscription(topic, subscription, deadline)
            starts, ends = self._log_ends(found.topic, deadline)
            group = self.node.admin.describe_group(found.group, deadline)
            owners = {
                partition: f"{member.client_id} {member.host}"
                for member in group.members
                for kafka_topic, partition in member.assigned
                if kafka_topic == found.topic.kafka_topic
            }
            partitions = self._cursors(found, starts, ends, owners, deadline)
            return SubscriptionStats(
                str(found.topic.name),
                found.name,
                found.type.value,
                found.group,
                sum(p.backlog for p in partitions),
                sum(p.individually_deleted for p in partitions),
                tuple(f"{member.client_id} {member.host}" for member in group.members),
                tuple(partitions),
            )

    def reset_cursor(
        self, topic: str, subscription: str, *, timestamp_ms: int | None = None, message_id: object | None = None
    ) -> None:
        """Set a subscription without live consumers to a time, or to a message id (which is delivered next).

        Raises:
            ConsumerBusy: it has live consumers; use `consumer.seek` there.
        """
        with pulsar_errors():
            if (timestamp_ms is None) == (message_id is None):
                raise errors.InvalidOption("reset_cursor takes either timestamp_ms or message_id")
            deadline = self._deadline()
            found = self._subscription(topic, subscription, deadline)
            targets = (
                self._offsets_at(found.topic, timestamp_ms, deadline)
                if timestamp_ms is not None
                else self._offsets_of(found.topic, message_id, deadline)
            )

            def reset(partition: int, state: CursorState) -> None:
                if partition in targets:
                    state.reset(targets[partition])

            self._change_idle(found, reset, deadline)

    def skip(self, topic: str, subscription: str, count: int) -> int:
        """Acknowledge the next `count` unacknowledged entries of each partition; gives how many were.

        Raises:
            ConsumerBusy: it has live consumers.
        """
        with pulsar_errors():
            if count < 1:
                raise errors.InvalidOption(f"the number of messages to skip must be at least 1, got {count}")
            deadline = self._deadline()
            found = self._subscription(topic, subscription, deadline)
            _, ends = self._log_ends(found.topic, deadline)
            skipped = 0

            def skip(partition: int, state: CursorState) -> None:
                nonlocal skipped
                left = min(count, state.backlog(ends[partition]))
                skipped += left
                while left:
                    start = state.deleted.first_gap(state.next_unacked)
                    following = state.deleted.gaps(start, 1)
                    end = following[0][1] if following else ends[partition]
                    step = min(left, end - start)
                    state.acknowledge_cumulative(start + step - 1)
                    left -= step

            self._change_idle(found, skip, deadline)
            return skipped

    def clear_backlog(self, topic: str, subscription: str) -> None:
        """Acknowledge everything up to the log's end. Raises ConsumerBusy when it has live consumers."""
        with pulsar_errors():
            deadline = self._deadline()
            found = self._subscription(topic, subscription, deadline)
            _, ends = self._log_ends(found.topic, deadline)
            self._change_idle(found, lambda p, state: state.reset(max(ends[p], state.next_unacked)), deadline)

    def unsubscribe(self, topic: str, subscription: str) -> None:
        """Delete a subscription. Raises ConsumerBusy when it has live consumers."""
        with pulsar_errors():
            deadline = self._deadline()
            found = self._subscription(topic, subscription, deadline)
            self.node.delete_subscription(found, deadline)

    # Inside -------------------------------------------------------------------------------------------------------

    def _topic(self, topic: str, deadline: Deadline) -> Topic:
        name = TopicName.parse(topic)
        if name.partition >= 0:
            raise errors.InvalidOption(f"{name} names a partition; say the whole topic, {name.base}")
        self.node.namespaces.require(name.namespace_name, deadline)
        found = self.node.topics.find(name, deadline)
        if found is None:
            raise errors.NoSuchTopic(f"topic {name} does not exist")
        return found

    def _subscription(self, topic: str, subscription: str, deadline: Deadline) -> Subscription:
        opened = self._topic(topic, deadline)
        found = self.node.subscriptions.find(opened, subscription, deadline)
        if found is None:
            raise errors.NoSuchSubscription(f"topic {opened.name} has no subscription {subscription}")
        return found

    def _log_ends(self, topic: Topic, deadline: Deadline) -> tuple[dict[int, int], dict[int, int]]:
        partitions = range(topic.partitions)
        starts = self.node.admin.start_offsets(topic.kafka_topic, partitions, deadline)
        return starts, self.node.admin.end_offsets(topic.kafka_topic, partitions, deadline)

    def _offsets_at(self, topic: Topic, timestamp_ms: int, deadline: Deadline) -> dict[int, int]:
        ends = self.node.admin.end_offsets(topic.kafka_topic, range(topic.partitions), deadline)
        found = {p: self.node.fetcher.offset_at_time(topic.kafka_topic, p, timestamp_ms, deadline) for p in ends}
        return {p: ends[p] if offset is None else offset for p, offset in found.items()}

    def _offsets_of(self, topic: Topic, message_id: object, deadline: Deadline) -> dict[int, int]:
        wanted = native(message_id)
        if wanted is None:
            raise errors.InvalidOption(f"expected a message id, got {type(message_id).__name__}")
        starts, ends = self._log_ends(topic, deadline)
        if wanted == NativeMessageId.earliest:
            return starts
        if wanted == NativeMessageId.latest:
            return ends
        partition = max(0, wanted.partition())
        offset = topic.layout.kafka_offset(partition, wanted.ledger_id(), wanted.entry_id())
        return {partition: min(offset, ends.get(partition, 0))}  # beyond the end, what is still to come would be lost

    def _cursors(
        self,
        subscription: Subscription,
        starts: Mapping[int, int],
        ends: Mapping[int, int],
        owners: Mapping[int, str],
        deadline: Deadline,
    ) -> list[PartitionCursorStats]:
        found = []
        for partition, cursor in self.node.read_cursors(subscription, deadline).items():
            state = cursor.state
            if state.next_unacked < starts[partition]:
                state.acknowledge_cumulative(starts[partition] - 1)
            saved_in = "segments" if cursor.saved is not None and cursor.saved.marker is not None else cursor.source
            found.append(
                PartitionCursorStats(
                    partition,
                    state.mark_delete,
                    starts[partition],
                    ends[partition],
                    state.backlog(ends[partition]),
                    len(state.deleted),
                    len(state.deleted.gaps(state.next_unacked, HOLES_COUNTED)),
                    saved_in,
                    owners.get(partition, ""),
                )
            )
        return found

    def _change_idle(
        self, subscription: Subscription, change: Callable[[int, CursorState], None], deadline: Deadline
    ) -> None:
        """Change the cursors of a subscription that has no live consumers, as a take-over and a save."""
        topic = subscription.topic
        if self.node.admin.describe_group(subscription.group, deadline).members:
            raise errors.SubscriptionBusy(
                f"subscription {subscription.name} of {topic.name} has live consumers: seek through one of them"
            )
        session = new_session()
        commits: dict[int, CommittedOffset] = {}
        saves = {}
        for partition, cursor in self.node.read_cursors(subscription, deadline).items():
            identity = cursor_identity(subscription, partition)
            change(partition, cursor.state)
            version = cursor.saved.lineage.version + 1 if cursor.saved is not None else 1
            lineage = identity.lineage(session, version, 0)
            save = self.node.store.prepare(identity, cursor.state, cursor.saved or Saved(lineage), lineage, deadline)
            saves[partition] = (identity, save)
            commits[partition] = save.commit
        self.node.admin.alter_committed(subscription.group, topic.kafka_topic, commits, deadline)
        for identity, save in saves.values():
            self.node.store.clean(identity, save.obsolete, save.obsolete_markers, deadline)
            self.node.store.write_checkpoint(
                identity, save.commit, save.saved.lineage, self.node.clock.now_ms(), deadline
            )
