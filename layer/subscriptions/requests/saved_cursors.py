"""The cursors of a subscription as they are saved, whoever owns them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.cursor.candidates import checkpoint_beside
from pulsar_on_kafka.cursor.checkpoints import Checkpoints
from pulsar_on_kafka.cursor.saved import Recovered, UnreadableCursor
from pulsar_on_kafka.cursor.store import CursorStore
from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka.kafka.groups.idle_offsets import IdleOffsets
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka.metadata.subscriptions.subscription import Subscription, cursor_identity


class SavedCursors:
    """Thread-safe; disturbs nobody."""

    def __init__(
        self, admin: KafkaAdmin, store: CursorStore, checkpoints: Checkpoints, idle_offsets: IdleOffsets
    ) -> None:
        self._admin = admin
        self._store = store
        self._checkpoints = checkpoints
        self._idle_offsets = idle_offsets

    def read(self, subscription: Subscription, deadline: Deadline) -> dict[int, Recovered]:
        """The cursors of a subscription as last saved."""
        return self.recover(subscription, self.offsets(subscription, deadline), deadline)

    def offsets(self, subscription: Subscription, deadline: Deadline) -> dict[str, dict[int, CommittedOffset | None]]:
        """What each group of a subscription committed for the partitions that it serves, or served."""
        wanted = {subscription.whole_group: subscription.served}
        for partition in subscription.served:
            group = subscription.partition_groups.get(partition)
            if group is not None:
                wanted[group] = (partition,)
        kafka_topic = subscription.topic.kafka_topic
        found = {
            group: self._admin.committed(group, kafka_topic, partitions, deadline)
            for group, partitions in wanted.items()
        }
        return {group: {p: found[group].get(p) for p in partitions} for group, partitions in wanted.items()}

    def recover(
        self,
        subscription: Subscription,
        offsets: Mapping[str, Mapping[int, CommittedOffset | None]],
        deadline: Deadline,
    ) -> dict[int, Recovered]:
        """The cursors that these offsets, of all of the subscription's groups, stand for. Raises UnreadableCursor."""
        return {
            partition: self.recover_one(subscription, partition, offsets, deadline) for partition in subscription.served
        }

    def read_readable(
        self, subscription: Subscription, deadline: Deadline
    ) -> tuple[dict[int, Recovered], dict[int, UnreadableCursor]]:
        """`read` for whoever can do without holes: the cursors, and those of which what is above mark-delete cannot be
        read and is left out."""
        offsets = self.offsets(subscription, deadline)
        cursors, unreadable = {}, {}
        for partition in subscription.served:
            try:
                cursors[partition] = self.recover_one(subscription, partition, offsets, deadline)
            except UnreadableCursor as reason:
                unreadable[partition] = reason
                cursors[partition] = self.recover_one(subscription, partition, offsets, deadline, with_holes=False)
        return cursors, unreadable

    def recover_one(
        self,
        subscription: Subscription,
        partition: int,
        offsets: Mapping[str, Mapping[int, CommittedOffset | None]],
        deadline: Deadline,
        *,
        with_holes: bool = True,
    ) -> Recovered:
        """The cursor of one partition by these offsets; `with_holes` as for `CursorStore.recover`. Raises
        UnreadableCursor."""
        commit, elsewhere = offsets[subscription.whole_group].get(partition), None
        group = subscription.partition_groups.get(partition)
        if group is not None:
            alone = offsets[group].get(partition)
            by_itself = subscription.saving_group(partition) == group
            commit, elsewhere = (alone, commit) if by_itself else (commit, alone)
        identity = cursor_identity(subscription, partition)
        checkpoint = checkpoint_beside(lambda: self._checkpoints.newest(identity, deadline), commit, elsewhere)
        start = subscription.start_offset(partition)
        return self._store.recover(identity, commit, checkpoint, start, deadline, elsewhere, with_holes=with_holes)

    def committed_elsewhere(
        self, subscription: Subscription, partition: int, deadline: Deadline
    ) -> CommittedOffset | None:
        """What the group has of a partition that served it in the other way, once it is settled."""
        group = subscription.other_group(partition)
        return None if group is None else self._settled(subscription, group, [partition], deadline).get(partition)

    def committed_settled(
        self, subscription: Subscription, partitions: Sequence[int], deadline: Deadline
    ) -> Mapping[int, CommittedOffset]:
        """What the group of the subscription has, for its member: whoever changes it without one is waited for."""
        return self._settled(subscription, subscription.group, partitions, deadline)

    def _settled(
        self, subscription: Subscription, group: str, partitions: Sequence[int], deadline: Deadline
    ) -> Mapping[int, CommittedOffset]:
        return self._idle_offsets.settled(
            subscription.whole_group, group, subscription.topic.kafka_topic, partitions, deadline
        )

    def forget(self, subscription: Subscription, cursors: Mapping[int, Recovered], deadline: Deadline) -> None:
        """Tombstone what these cursors refer to: the subscription is gone."""
        for partition, cursor in cursors.items():
            if cursor.saved is not None:
                identity = cursor_identity(subscription, partition)
                self._store.forget(identity, cursor.saved, deadline)
                self._store.drop_checkpoint(identity, cursor.saved.lineage.session, deadline)
