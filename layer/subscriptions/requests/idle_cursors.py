"""Cursors that nobody owns: read, and saved as a take-over and a save, in an order with every other change of them.

See `IdleOffsets` for how two changes from one state, of which Kafka would keep the later one, become a change and one
that was refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.cursor.identity import CursorIdentity
from pulsar_on_kafka.cursor.saved import Recovered, Save
from pulsar_on_kafka.cursor.store import CursorStore
from pulsar_on_kafka.kafka.groups.idle_offsets import FoundOffsets, IdleOffsets
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka.metadata.subscriptions.subscription import Subscription, cursor_identity
from pulsar_on_kafka.subscriptions.requests.saved_cursors import SavedCursors

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IdleReading:
    """A subscription's cursors as they were read: the offsets of all of its groups, and some cursors."""

    subscription: Subscription
    """As it is on record now: which groups save it may have changed since it was found."""
    offsets: FoundOffsets
    cursors: dict[int, Recovered]

    def identity(self, partition: int) -> CursorIdentity:
        return cursor_identity(self.subscription, partition)


class IdleCursors:
    """Thread-safe."""

    def __init__(
        self,
        cursors: SavedCursors,
        offsets: IdleOffsets,
        store: CursorStore,
        clock: Clock,
        find: Callable[[Subscription, Deadline], Subscription | None],
    ) -> None:
        """`find` gives a subscription as it is on record now."""
        self._cursors = cursors
        self._offsets = offsets
        self._store = store
        self._clock = clock
        self._find = find

    def read(
        self,
        subscription: Subscription,
        partitions: Collection[int],
        deadline: Deadline,
        without_holes: Collection[int] = (),
    ) -> IdleReading:
        """The cursors of these partitions of the subscription, some `without_holes`.

        Raises NoSuchSubscription, UnreadableCursor, StoreError.
        """
        now = self._now(subscription, deadline)
        offsets = self._cursors.offsets(now, deadline)
        cursors = {
            partition: self._cursors.recover_one(
                now, partition, offsets, deadline, with_holes=partition not in without_holes
            )
            for partition in now.served
            if partition in partitions
        }
        return IdleReading(now, offsets, cursors)

    def save(self, reading: IdleReading, saves: Mapping[int, Save], deadline: Deadline) -> IdleReading:
        """Commit these saves by partition, of cursors that were read, all or none; gives the reading that another save
        can build on. What they made obsolete is tombstoned, or, when they were refused, what was written for them.

        Raises:
            SubscriptionBusy: somebody consumes. Nothing is changed, nor with any other error but the last.
            Fenced: somebody else has changed one of the cursors.
            CommitOutcomeUnknown: they count, or do not.
        """
        subscription = reading.subscription
        wanted: dict[str, dict[int, CommittedOffset]] = {}
        for partition, save in saves.items():
            wanted.setdefault(subscription.saving_group(partition), {})[partition] = save.commit
        try:
            self._offsets.change(
                subscription.whole_group,
                subscription.topic.kafka_topic,
                reading.offsets,
                wanted,
                deadline,
                check=lambda deadline: self._check_same(subscription, deadline),
            )
        except errors.CommitOutcomeUnknown:
            raise
        except errors.LayerError:
            with suppress(errors.StoreError):
                for partition, save in saves.items():
                    self._store.clean(reading.identity(partition), save.new, deadline)
            raise
        self._keep_house(reading, saves, deadline)
        offsets = {group: {**found, **wanted.get(group, {})} for group, found in reading.offsets.items()}
        return replace(reading, offsets=offsets)

    # Inside -------------------------------------------------------------------------------------------------------

    def _now(self, subscription: Subscription, deadline: Deadline) -> Subscription:
        found = self._find(subscription, deadline)
        if found is None:
            raise errors.NoSuchSubscription(
                f"subscription {subscription.name} of {subscription.topic.name} does not exist any more"
            )
        return replace(found, partition=subscription.partition)

    def _check_same(self, subscription: Subscription, deadline: Deadline) -> None:
        """Raises Fenced: another group saves it now, or it is another subscription."""
        now = self._now(subscription, deadline)
        if any(
            (now.saving_group(number), now.life(number))
            != (subscription.saving_group(number), subscription.life(number))
            for number in subscription.served
        ) or set(now.groups) - set(subscription.groups):
            raise errors.Fenced(f"subscription {subscription.name} of {subscription.topic.name} has changed")

    def _keep_house(self, reading: IdleReading, saves: Mapping[int, Save], deadline: Deadline) -> None:
        """The saves count; what cannot be done here is left to housekeeping."""
        for partition, save in saves.items():
            identity = reading.identity(partition)
            try:
                now_ms, lineage = self._clock.now_ms(), save.saved.lineage
                self._store.write_checkpoint(identity, save.commit, lineage, now_ms, deadline, save.replaces)
                self._store.clean(identity, save.obsolete, deadline)
            except errors.StoreError as failure:
                _log.warning("cursor=%s could not clean up: %s", identity, failure)
