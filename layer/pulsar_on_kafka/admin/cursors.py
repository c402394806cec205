"""Cursors: the part of `AdminClient` that moves the cursors of subscriptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pulsar_on_kafka.admin.context import AdminContext, raising_pulsar_errors
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.saved_cursor import RecoveredCursor, UnreadableCursor
from pulsar_on_kafka.broker.managed_ledger.expiry import acknowledged_by_ttl, expiry_horizon_ms
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription, cursor_identity
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.client.receiving.start_position import TopicPositions
from pulsar_on_kafka.client.values.message_id import native
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import AcknowledgeUpTo, CursorCommand, Seek, Skip

_ALMOST_CAUGHT_UP: Final = 1000
"""Consumers with a smaller backlog see to it themselves. Source: Pulsar's MINIMUM_BACKLOG_FOR_EXPIRY_CHECK."""


@raising_pulsar_errors
class CursorAdmin(AdminContext):
    """A cursor moves through its owner, if a process owns it. The name of a topic stands for all of its partitions, the
    name of a partition for this one."""

    def reset_cursor(
        self,
        topic: str,
        subscription: str,
        *,
        timestamp_ms: int | None = None,
        message_id: object | None = None,
        excluded: bool = False,
    ) -> None:
        """Set a subscription to a time, or to a message id, which is delivered next (with `excluded`, the message
        behind it).

        Live consumers, in whatever process, continue there; their inboxes are emptied. An unreadable cursor
        (`unreadable_cursors`) becomes readable.

        Differs from Pulsar: an id of another topic is rejected; there it sets the cursor to the end.

        Raises:
            NotAllowedError: the id is of another partition than the named one.
            InvalidMessage: the id is of no partition of this topic.
            Timeout: their processes did not answer in time; the cursors may be moved or not.
        """
        deadline = self._deadline()
        found, targets = self._resets(topic, subscription, timestamp_ms, message_id, deadline, excluded=excluded)
        self._move(found, targets, deadline)

    def plan_reset(
        self,
        topic: str,
        subscription: str,
        *,
        timestamp_ms: int | None = None,
        message_id: object | None = None,
        excluded: bool = False,
    ) -> dict[int, int]:
        """The offsets that `reset_cursor` would set the partitions to, without a change; partitions that it would not
        move are missing. Raises the same errors, except Timeout."""
        deadline = self._deadline()
        found, targets = self._resets(topic, subscription, timestamp_ms, message_id, deadline, excluded=excluded)
        return {partition: seek.offset for partition, seek in sorted(targets.items()) if partition in found.served}

    def unreadable_cursors(self, topic: str, subscription: str) -> dict[int, str]:
        """The reasons, by partition, why acknowledgements above mark-delete cannot be read. Such a partition is not
        served until `reset_cursor` or `clear_backlog`, which delete them."""
        deadline = self._deadline()
        return self._unreadable(self._addressed(topic, subscription, deadline)[0], deadline)

    def skip(self, topic: str, subscription: str, count: int) -> int:
        """Acknowledge the next `count` unacknowledged entries of each partition; gives how many were.

        Live consumers still get what waits in their inboxes, as on Pulsar.

        Raises:
            Timeout: see `reset_cursor`.
        """
        if count < 1:
            raise errors.InvalidOption(f"the number of messages to skip must be at least 1, got {count}")
        deadline = self._deadline()
        found, partitions = self._addressed(topic, subscription, deadline)
        _, ends = self._log_ends(found.topic, deadline, partitions)
        return sum(self._move(found, {p: Skip(count, end) for p, end in ends.items()}, deadline).values())

    def clear_backlog(self, topic: str, subscription: str) -> None:
        """Acknowledge everything up to the log's end, as `skip`; a cursor that cannot be read is set there."""
        deadline = self._deadline()
        found, partitions = self._addressed(topic, subscription, deadline)
        _, ends = self._log_ends(found.topic, deadline, partitions)
        lost = self._unreadable(found, deadline)
        commands = {p: Seek(end) if p in lost else AcknowledgeUpTo(end - 1) for p, end in ends.items()}
        self._move(found, commands, deadline)

    def expire_messages(
        self,
        topic: str,
        subscription: str,
        *,
        older_than_s: int | None = None,
        message_id: object | None = None,
        excluded: bool = False,
    ) -> dict[int, int]:
        """Acknowledge the messages that were published more than `older_than_s` seconds ago (0: none), or those up to
        and including a message id.

        Returns, by partition, the number of entries that were acknowledged. Partitions without a backlog are missing.
        So are those whose consumers are connected, with fewer than 1,000 entries left of which none is old enough, and
        those that end before the id. Source: Pulsar's PersistentSubscription.expireMessages,
        PersistentMessageExpiryMonitor.

        Args:
            excluded: the entry behind the id is acknowledged, too, unless the id is of a message of a batch before its
                last one. Source: Pulsar's `isExcluded`, in which `expire` and `reset` share the calculation.

        Raises:
            NotAllowedError, InvalidMessage, Timeout: see `reset_cursor`.
        """
        if (older_than_s is None) == (message_id is None):
            raise errors.InvalidOption("expire_messages takes either older_than_s or message_id")
        if older_than_s is not None and older_than_s < 0:
            raise errors.InvalidOption(f"the age of messages to expire must be at least 0 s, got {older_than_s}")
        deadline = self._deadline()
        found, partitions = self._addressed(topic, subscription, deadline)
        starts, ends = self._log_ends(found.topic, deadline, partitions)
        first_live = (
            self._first_live(found.topic, partitions, older_than_s, deadline)
            if older_than_s is not None
            else self._behind(topic, found.topic, partitions, message_id, deadline, excluded=excluded)
        )
        connected = older_than_s is not None and self.node.subscriptions.has_consumers(found, deadline)
        commands: dict[int, AcknowledgeUpTo] = {}
        expired: dict[int, int] = {}
        for partition, cursor in self._whole_cursors(found, starts, deadline).items():
            state, first = cursor.state, first_live.get(partition)
            backlog = state.backlog(ends[partition])
            upto = None if first is None else acknowledged_by_ttl(state.next_unacked, first)
            if first is None or not backlog or (upto is None and connected and backlog < _ALMOST_CAUGHT_UP):
                continue
            expired[partition] = 0
            if upto is not None:
                commands[partition] = AcknowledgeUpTo(upto)
                state.acknowledge_cumulative(upto)
                expired[partition] = backlog - state.backlog(ends[partition])
        self._move(found, commands, deadline)
        return expired

    def _whole_cursors(
        self, subscription: Subscription, starts: Mapping[int, int], deadline: Deadline
    ) -> dict[int, RecoveredCursor]:
        """The cursors of these partitions with all of their holes, as last saved, from the log's starts on. Raises
        UnreadableCursor."""
        cursors = self.node.memberships.cursors.read_whole(subscription, deadline, starts)
        for partition, cursor in cursors.items():
            if cursor.state.next_unacked < starts[partition]:
                cursor.state.acknowledge_cumulative(starts[partition] - 1)
        return cursors

    def _first_live(
        self, topic: Topic, partitions: Sequence[int], older_than_s: int, deadline: Deadline
    ) -> dict[int, int]:
        """The first offset that does not expire, by partition."""
        horizon_ms = expiry_horizon_ms(older_than_s, self.node.clock.now_ms())
        if horizon_ms is None:
            return dict.fromkeys(partitions, 0)
        return TopicPositions(self.node, topic).at_time(partitions, horizon_ms, deadline)

    def _behind(
        self,
        name: str,
        topic: Topic,
        partitions: Sequence[int],
        message_id: object,
        deadline: Deadline,
        *,
        excluded: bool,
    ) -> dict[int, int]:
        """The offset behind what an id expires. Nothing where the id lies beyond the end, as in Pulsar."""
        requested = native_id(message_id)
        if requested == NativeMessageId.latest:
            return {}
        if requested == NativeMessageId.earliest:
            return dict.fromkeys(partitions, 0)
        partition, offset = self._place_of(name, topic, requested)
        _, ends = self._log_ends(topic, deadline, [partition])
        if offset < ends[partition] and excluded:
            positions = TopicPositions(self.node, topic)
            first, size = positions.first_in_entry(partition, offset, requested, deadline, inclusive=False)
            if requested.batch_index() < 0 or first >= size:
                offset += 1
        return {partition: offset + 1} if offset < ends[partition] else {}

    def _addressed(self, topic: str, subscription: str, deadline: Deadline) -> tuple[Subscription, list[int]]:
        """A subscription whose cursor can be moved, and the partitions that the name of the topic stands for."""
        name = TopicName.parse(topic)
        found = self._kept_subscription(str(name.base), subscription, deadline)
        return found, self._named_partitions(found, name)

    def _named_partitions(self, subscription: Subscription, name: TopicName) -> list[int]:
        topic, partition = subscription.topic, name.partition
        if partition < 0:
            return list(subscription.served)
        self._check_partition(topic, name)
        if partition not in subscription.served:
            raise errors.NoSuchSubscription(f"topic {name} has no subscription {subscription.name}")
        return [partition]

    def _resets(
        self,
        topic: str,
        subscription: str,
        timestamp_ms: int | None,
        message_id: object | None,
        deadline: Deadline,
        *,
        excluded: bool,
    ) -> tuple[Subscription, Mapping[int, Seek]]:
        if (timestamp_ms is None) == (message_id is None):
            raise errors.InvalidOption("reset_cursor takes either timestamp_ms or message_id")
        found, partitions = self._addressed(topic, subscription, deadline)
        if timestamp_ms is None:
            return found, self._seeks(topic, found.topic, partitions, message_id, deadline, excluded=excluded)
        offsets = TopicPositions(self.node, found.topic).at_time(partitions, timestamp_ms, deadline)
        return found, {partition: Seek(offset) for partition, offset in offsets.items()}

    def _seeks(
        self,
        name: str,
        topic: Topic,
        partitions: Sequence[int],
        message_id: object,
        deadline: Deadline,
        *,
        excluded: bool,
    ) -> dict[int, Seek]:
        requested = native_id(message_id)
        starts, ends = self._log_ends(topic, deadline, partitions)
        if requested in (NativeMessageId.earliest, NativeMessageId.latest):
            offsets = starts if requested == NativeMessageId.earliest else ends
            return {partition: Seek(offset) for partition, offset in offsets.items()}
        partition, offset = self._place_of(name, topic, requested)
        if offset >= ends.get(partition, 0):
            return {partition: Seek(ends.get(partition, 0))}  # beyond the end, what is still to come would be lost
        positions = TopicPositions(self.node, topic)
        return {partition: positions.seek_to(partition, offset, requested, deadline, inclusive=not excluded)}

    def _place_of(self, name: str, topic: Topic, message_id: NativeMessageId) -> tuple[int, int]:
        """The partition and the offset of an id. Raises InvalidCursorPosition, MappingError."""
        named = TopicName.parse(name).partition
        partition = message_id.partition() if message_id.partition() >= 0 else max(0, named)
        if named >= 0 and partition != named:
            raise errors.InvalidCursorPosition(f"id {message_id} names partition {partition}, expected {named}")
        place = message_id.first_chunk() or (message_id.ledger_id(), message_id.entry_id())
        return partition, topic.layout.kafka_offset(partition, *place)

    def _unreadable(self, subscription: Subscription, deadline: Deadline) -> dict[int, str]:
        cursors, unreadable = self.node.memberships.cursors.read_readable(subscription, deadline)
        for partition, cursor in cursors.items():
            try:
                self.node.store.load_all(cursor_identity(subscription, partition), cursor, deadline)
            except UnreadableCursor as reason:
                unreadable[partition] = reason
        return {partition: str(reason) for partition, reason in sorted(unreadable.items())}

    def _move(
        self, subscription: Subscription, commands: Mapping[int, CursorCommand], deadline: Deadline
    ) -> dict[int, int]:
        """The results of commands to the partitions that the subscription is on."""
        on = {partition: command for partition, command in commands.items() if partition in subscription.served}
        return self.node.memberships.live_cursors.change(subscription, on, deadline) if on else {}

    def _subscription(self, topic: str, subscription: str, deadline: Deadline) -> Subscription:
        opened = self._topic(topic, deadline)
        found = self._recorded_subscription(opened, subscription, deadline)
        if not self._is_there(found, deadline):
            raise errors.NoSuchSubscription(f"topic {opened.name} has no subscription {subscription}")
        return found

    def _kept_subscription(self, topic: str, subscription: str, deadline: Deadline) -> Subscription:
        """One whose cursor can be moved."""
        check_persistent(self._topic(topic, deadline))
        return self._subscription(topic, subscription, deadline)

    def _subscriptions(self, topic: Topic, deadline: Deadline) -> list[Subscription]:
        return [found for found in self.node.subscriptions.list(topic, deadline) if self._is_there(found, deadline)]

    def _is_there(self, subscription: Subscription, deadline: Deadline) -> bool:
        """A non-durable subscription is there as long as its consumers are, and so is any of a non-persistent topic."""
        lasts = subscription.topic.name.is_persistent and not subscription.non_durable
        return lasts or self.node.subscriptions.has_consumers(subscription, deadline)


def native_id(message_id: object) -> NativeMessageId:
    """Raises InvalidOption: it is no message id."""
    requested = native(message_id)
    if requested is None:
        raise errors.InvalidOption(f"expected a message id, got {type(message_id).__name__}")
    return requested


def check_persistent(topic: Topic) -> None:
    """Raises Refused."""
    if not topic.name.is_persistent:
        raise errors.Refused(f"{topic.name} is not persistent: its subscriptions are there while their consumers are")
