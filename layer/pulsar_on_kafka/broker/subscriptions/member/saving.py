"""Saves the cursors of the partitions that this process owns, by group commits and checkpoints.

All of it runs in the member's thread. At most one commit is in flight in a group. After a time-out its outcome is
unknown, and the group's offsets are read back before the next save (layer/pulsar_on_kafka/broker/cursor/README.md).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.meters import SubscriptionMeter
from pulsar_on_kafka.broker.cursor.saved_cursor import AcceptedSave, Save, Unneeded
from pulsar_on_kafka.broker.cursor.store import CursorStore
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.partition.partition_saves import PartitionSaves
from pulsar_on_kafka.kafka.groups.group_membership import GroupMembership
from pulsar_on_kafka.kafka.groups.membership import split_commits
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka_mapping.state.cursors.cursor_state import CommitMetadata, Lineage

STORE_TIMEOUT_S: Final = 10.0
_CHECKPOINT_EVERY_S: Final = 60.0
_RETRY_INTERVAL_S: Final = 0.1
_URGENT_INTERVAL_S: Final = 0.01
_SEGMENTS_RETRY_INTERVAL_S: Final = 10.0

_log = logging.getLogger(__name__)


class CursorSaver:
    """`owned` is the owner's own dictionary, seen from here."""

    def __init__(
        self,
        name: str,
        store: CursorStore,
        clock: Clock,
        consumer: GroupMembership,
        owned: Mapping[int, OwnedPartition],
        meter: SubscriptionMeter,
        when_saved: Callable[[OwnedPartition, Save], None],
    ) -> None:
        """`when_saved` is called with every save that the group has accepted."""
        self._name = name
        self._store = store
        self._clock = clock
        self._consumer = consumer
        self._owned = owned
        self._meter = meter
        self._sent_s = 0.0
        self._when_saved = when_saved
        self._under_way: dict[int, Save] | None = None
        self._unknown: dict[int, Save] | None = None
        self._not_before_s = 0.0
        self._unwritable: errors.StoreError | None = None
        """The reason why the last write of segments failed."""
        self._try_again_s = 0.0

    @property
    def under_way(self) -> bool:
        """A commit is in flight; its reply comes by polling the group."""
        return self._under_way is not None

    @property
    def is_unsettled(self) -> bool:
        """The outcome of a save is unknown, and no reply will come: see `settle`."""
        return self._unknown is not None

    def save(self, partitions: list[int]) -> None:
        """Save these partitions and wait until the saves are durable.

        Raises:
            StoreError: some save failed, or its outcome is unknown.
        """
        saves = self._prepare(partitions)
        if saves:
            self.commit(saves)
        if self._unwritable is not None and any(save.left_out is not None for save in saves.values()):
            raise self._unwritable

    def save_urgently(self) -> None:
        """Call `save_in_background`, unless it failed a moment ago."""
        if self._clock.monotonic() >= self._not_before_s:
            self.save_in_background()

    def urgent_due(self, now_s: float) -> float:
        """The time of the next `save_urgently`; infinite while a reply is awaited, which wakes the member."""
        return inf if self.under_way else max(self._not_before_s, now_s + _URGENT_INTERVAL_S)

    def next_checkpoint(self) -> float:
        """The time of the next checkpoint; infinite without changes since the last one."""
        return min(
            (
                each.saves.last_checkpoint_s + _CHECKPOINT_EVERY_S
                for each in self._owned.values()
                if each.saves.checkpoint_dirty and each.saves.last_commit is not None
            ),
            default=inf,
        )

    def save_in_background(self) -> None:
        """Save all changed cursors, unless a commit is in flight; then write due checkpoints."""
        if self._under_way is not None:
            return
        try:
            self.settle()
            saves = self._prepare(sorted(self._owned))
        except errors.StoreError as failure:
            _log.warning("subscription=%s could not write cursor segments: %s", self._name, failure)
            return
        commits = {number: save.commit for number, save in saves.items()}
        try:
            if len(split_commits(commits)) > 1:  # above Kafka's request size: one after the other
                self.commit(saves)
            elif saves:
                self._under_way = saves
                self._sent_s = self._clock.monotonic()
                self._consumer.commit_async(commits)
        except errors.StoreError as failure:
            if self._under_way is not None:
                self._under_way = None
                self._refused(saves)
            _log.warning("subscription=%s could not save: %s", self._name, failure)
        self.checkpoint(sorted(self._owned), forced=False)

    def settle(self) -> list[int]:
        """Read the outcome of the save in flight from the group's offsets, without its callback.

        The outcome must be known before the next save, whose marker names the segments of the one before. Returns the
        partitions for which the save was rejected.
        """
        saves, self._under_way = self._under_way or self._unknown, None
        self._unknown = None
        if saves is None:
            return []
        try:
            committed = self._consumer.committed(sorted(saves), STORE_TIMEOUT_S)
        except errors.StoreError:
            self._unknown = saves
            raise
        kept = {number: save for number, save in saves.items() if committed.get(number) == save.commit}
        missing = {number: save for number, save in saves.items() if number not in kept}
        self._refused(missing)
        self._accepted(kept)
        return sorted(missing)

    def sweep(self) -> None:
        """Keep the cursors within their memory budget, unless a save is in flight. Call it every second."""
        if not self.under_way and not self.is_unsettled:
            now_s = int(self._clock.monotonic())
            for owned in self._owned.values():
                owned.saves.sweep(now_s)

    def forget(self) -> None:
        """Forget saves of lost partitions, whose outcomes no longer matter."""
        self._under_way = self._unknown = None

    def commit(self, saves: dict[int, Save]) -> None:
        """Commit prepared saves and wait for the outcome.

        Raises:
            StoreError: the saves were rejected, or the outcome is unknown.
        """
        self._sent_s = self._clock.monotonic()
        try:
            self._consumer.commit({number: save.commit for number, save in saves.items()})
        except errors.CommitOutcomeUnknown:
            self._meter.failed_saves += 1
            self._unknown = saves
            if self.settle():
                raise
        except errors.StoreError as failure:
            self._meter.failed_saves += not isinstance(failure, errors.Fenced)
            self._refused(saves)
            raise
        else:
            self._answered()
            self._accepted(saves)

    def committed(self, failure: errors.LayerError | None) -> None:
        saves, self._under_way = self._under_way, None
        if saves is None:
            return
        if failure is None:
            self._answered()
            try:
                self._accepted(saves)
            except errors.StoreError as reason:
                _log.warning("subscription=%s could not write the checkpoints of a save: %s", self._name, reason)
            return
        if isinstance(failure, errors.Fenced):  # a rebalance; remaining partitions are saved after it
            _log.info("subscription=%s its next save waits for a rebalance: %s", self._name, failure)
        else:
            self._meter.failed_saves += 1
            _log.warning("subscription=%s save failed: %s", self._name, failure)
        if isinstance(failure, errors.CommitOutcomeUnknown):
            self._unknown = saves
        else:
            self._refused(saves)

    def accept(self, saves: Mapping[int, tuple[OwnedPartition, Save]], deadline: Deadline) -> None:
        """Apply saves that the group has accepted. A copy of an older commit may overwrite exposed ones: their
        checkpoints are written first.

        Raises:
            StoreError: checkpoints could not be written, and the exposed saves do not count. The others do.
        """
        exposed = {number: pair for number, pair in saves.items() if self._consumer.is_exposed(number)}
        for number in saves.keys() - exposed.keys():
            self._count(*saves[number], deadline)
        if not exposed:
            return
        copies = [
            _copy(owned.saves, save.commit, save.saved.lineage, save.replaces) for owned, save in exposed.values()
        ]
        self._store.write_checkpoints(copies, self._clock.now_ms(), deadline)
        for owned, save in exposed.values():
            self._count(owned, save, deadline)
            self._checkpointed(owned.saves, deadline)

    def _count(self, owned: OwnedPartition, save: Save, deadline: Deadline) -> None:
        """Apply one save, and remove obsolete records."""
        saves = owned.saves
        unneeded = saves.accepted(save)
        size, cursor = saves.grown_large(), saves.cursor
        if size is not None:
            _log.warning(
                "cursor=%s its holes take %d bytes on Kafka now: %d entries above mark-delete %d are acknowledged",
                saves.identity, size, len(cursor.deleted), cursor.mark_delete,
            )  # fmt: skip
        self._clean(saves, unneeded, deadline)
        self._when_saved(owned, save)

    def forget_former(self, owned: OwnedPartition, former: Sequence[CommitMetadata], deadline: Deadline) -> None:
        try:
            for metadata in former:
                self._store.forget_former(owned.identity, metadata, deadline)
        except errors.StoreError as failure:
            _log.warning("cursor=%s could not clean up after a former life: %s", owned.identity, failure)

    def checkpoint(self, partitions: list[int], *, forced: bool) -> None:
        """Write the checkpoints that are due (all of them: `forced`)."""
        now = self._clock.monotonic()
        deadline = Deadline.after(STORE_TIMEOUT_S)
        due: list[PartitionSaves] = []
        copies: list[AcceptedSave] = []
        for number in partitions:
            saves = self._saves_of(number)
            if saves is None or not saves.checkpoint_dirty or saves.last_commit is None:
                continue
            if forced or now - saves.last_checkpoint_s >= _CHECKPOINT_EVERY_S:
                due.append(saves)
                copies.append(_copy(saves, saves.last_commit, saves.saved.lineage))
                saves.last_checkpoint_s = now
        try:
            if due:
                self._store.write_checkpoints(copies, self._clock.now_ms(), deadline)
        except errors.StoreError as failure:
            _log.warning("subscription=%s could not write checkpoints: %s", self._name, failure)
            return
        for each in due:
            self._checkpointed(each, deadline)

    def _checkpointed(self, saves: PartitionSaves, deadline: Deadline) -> None:
        self._clean(saves, saves.checkpoint_written(), deadline)

    def _clean(self, saves: PartitionSaves, unneeded: Unneeded, deadline: Deadline) -> None:
        try:
            self._store.clean(saves.identity, unneeded, deadline)
        except errors.StoreError as failure:
            _log.warning("cursor=%s could not clean up: %s", saves.identity, failure)

    def _saves_of(self, number: int) -> PartitionSaves | None:
        owned = self._owned.get(number)
        return None if owned is None else owned.saves

    def _prepare(self, partitions: list[int]) -> dict[int, Save]:
        deadline = Deadline.after(STORE_TIMEOUT_S)
        prepared: dict[int, Save] = {}
        for number in partitions:
            saves = self._saves_of(number)
            if saves is None or not saves.dirty:
                continue
            lineage = saves.begin()
            try:
                prepared[number] = self._save_of(saves, lineage, deadline)
            except errors.StoreError:
                self._refused(prepared)  # the other partitions' segments do not count as saved
                raise
        return prepared

    def _save_of(self, saves: PartitionSaves, lineage: Lineage, deadline: Deadline) -> Save:
        """Prepare a whole save. For ten seconds after a failed write of segments, only the part that fits the
        commit."""
        now = self._clock.monotonic()
        if self._unwritable is None or now >= self._try_again_s:
            try:
                save = self._store.prepare(saves.identity, saves.cursor, saves.saved, lineage, deadline)
            except errors.StoreError as failure:
                self._unwritable, self._try_again_s = failure, self._clock.monotonic() + _SEGMENTS_RETRY_INTERVAL_S
            else:
                self._unwritable = None
                return save
        without = self._store.prepare_without_segments(saves.identity, saves.cursor, saves.saved, lineage, deadline)
        if without is None:
            raise self._unwritable
        self._meter.saves_without_segments += 1
        _log.warning(
            "cursor=%s its segments cannot be written (%s): up to %d acknowledgements are not durable yet",
            saves.identity, self._unwritable, without.left_out,
        )  # fmt: skip
        return without

    def _answered(self) -> None:
        self._meter.saves.add(self._clock.monotonic() - self._sent_s)

    def _accepted(self, saves: Mapping[int, Save]) -> None:
        """Raises StoreError: some saves do not count, and their outcome is unknown until `settle`."""
        owned = {number: (self._owned[number], save) for number, save in saves.items() if number in self._owned}
        try:
            self.accept(owned, Deadline.after(STORE_TIMEOUT_S))
        except errors.StoreError:
            self._meter.failed_saves += 1
            self._unknown = {number: saves[number] for number in owned if self._consumer.is_exposed(number)}
            raise

    def _refused(self, saves: Mapping[int, Save]) -> None:
        self._not_before_s = self._clock.monotonic() + _RETRY_INTERVAL_S
        for number, save in saves.items():
            partition_saves = self._saves_of(number)
            if partition_saves is not None:
                partition_saves.refused(save)


def _copy(
    saves: PartitionSaves, commit: CommittedOffset, lineage: Lineage, replaces: bytes | None = None
) -> AcceptedSave:
    return AcceptedSave(saves.identity, commit, lineage, replaces or saves.previous_session)
