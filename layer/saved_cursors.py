"""The cursors of a subscription as they are saved, whoever owns them."""

from __future__ import annotations

from collections.abc import Mapping

from layer.cursor.candidates import wants_checkpoint
from layer.cursor.saved import Recovered
from layer.deadline import Deadline
from layer.kafka.records import CommittedOffset
from layer.metadata.subscription import Subscription, cursor_identity
from layer.services import Services


class SavedCursors:
    """Thread-safe; disturbs nobody."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def read(self, subscription: Subscription, deadline: Deadline) -> dict[int, Recovered]:
        """The cursors of a subscription as last saved."""
        topic, partitions = subscription.topic, subscription.served
        whole = self._services.admin.committed(subscription.whole_group, topic.kafka_topic, partitions, deadline)
        cursors = {}
        for partition in partitions:
            commit, elsewhere = whole.get(partition), None
            group = subscription.partition_groups.get(partition)
            if group is not None:
                alone = self._services.admin.committed(group, topic.kafka_topic, [partition], deadline).get(partition)
                by_itself = subscription.saving_group(partition) == group
                commit, elsewhere = (alone, commit) if by_itself else (commit, alone)
            identity = cursor_identity(subscription, partition)
            checkpoint = (
                self._services.checkpoints.newest(identity, deadline) if wants_checkpoint(commit, elsewhere) else None
            )
            cursors[partition] = self._services.store.recover(
                identity, commit, checkpoint, subscription.start_offset(partition), deadline, elsewhere
            )
        return cursors

    def committed_elsewhere(
        self, subscription: Subscription, partition: int, deadline: Deadline
    ) -> CommittedOffset | None:
        """What the group has of a partition that served it in the other way."""
        group = subscription.other_group(partition)
        if group is None:
            return None
        return self._services.admin.committed(group, subscription.topic.kafka_topic, [partition], deadline).get(
            partition
        )

    def forget(self, subscription: Subscription, cursors: Mapping[int, Recovered], deadline: Deadline) -> None:
        """Tombstone what these cursors refer to: the subscription is gone."""
        for partition, cursor in cursors.items():
            if cursor.saved is not None:
                identity = cursor_identity(subscription, partition)
                self._services.store.forget(identity, cursor.saved, deadline)
                self._services.store.drop_checkpoint(identity, cursor.saved.lineage.session, deadline)
