"""Opens, saves and hands over the cursors of the partitions that Kafka's group assigned to this process.

All of it runs in the member's thread, most of it inside the group's rebalance callbacks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity
from pulsar_on_kafka.broker.cursor.saved_cursor import (
    RecoveredCursor,
    Save,
    SavedCursor,
    UnreadableCursor,
    checkpoint_beside,
)
from pulsar_on_kafka.broker.cursor.store import CursorStore
from pulsar_on_kafka.broker.metadata.producers.fences import Fences
from pulsar_on_kafka.broker.subscriptions.dispatching.dispatcher import Dispatcher
from pulsar_on_kafka.broker.subscriptions.dispatching.subscription_context import SubscriptionHandle
from pulsar_on_kafka.broker.subscriptions.leases.lease_options import LeaseTerms
from pulsar_on_kafka.broker.subscriptions.leases.leasing import Leasing
from pulsar_on_kafka.broker.subscriptions.member.saving import STORE_TIMEOUT_S, CursorSaver
from pulsar_on_kafka.broker.subscriptions.member.transaction_acks import TransactionAcks
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.partition.partition_options import PartitionTerms
from pulsar_on_kafka.broker.subscriptions.records.batches import report_stop
from pulsar_on_kafka.broker.transactions.records.pending_ack_journal import PendingAckJournal
from pulsar_on_kafka.kafka.groups.group_membership import GroupMembership
from pulsar_on_kafka.kafka.reading.fetcher import Fetcher
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka_mapping.state.cursors.lease_records import Nack

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MemberServices:
    """Without `terms` messages go to this process's consumers only."""

    store: CursorStore
    fetcher: Fetcher
    clock: Clock
    journal: PendingAckJournal
    terms: LeaseTerms | None
    ack_persist_interval_s: float


_RETRY_OPEN_S: Final = 0.5


class Ownership:
    """The assigned partitions. `owned` is filled here and read by the dispatcher and the saver."""

    def __init__(
        self,
        handle: SubscriptionHandle,
        services: MemberServices,
        consumer: GroupMembership,
        dispatcher: Dispatcher,
        leasing: Leasing | None,
        owned: dict[int, OwnedPartition],
        wake: Callable[[], None],
    ) -> None:
        self._handle = handle
        self._store = services.store
        self._clock = clock = services.clock
        self._consumer = consumer
        self._dispatcher = dispatcher
        self._owned = owned
        self._unopened: dict[int, float] = {}
        self.unreadable: dict[int, str] = {}
        """Owned partitions that are not served, because their cursors' acknowledgements are unreadable."""
        self.saver = CursorSaver(str(handle), services.store, clock, consumer, owned, handle.meter, self._saved)
        self._journal = journal = services.journal
        self.transactions = TransactionAcks(
            str(handle), journal, clock, owned, self.saver, dispatcher, self._reopen, wake
        )
        self.leasing = leasing
        self.losses = 0
        """The number of times that a partition was given up with unsaved acknowledgements."""

    def assigned(self, partitions: list[int]) -> Mapping[int, int]:
        """Open these partitions; returns their read positions. Failed ones are opened later (`open_late`)."""
        try:
            opened = self._open(partitions)
        except errors.NotAuthorized:
            raise  # a retry does not help
        except errors.StoreError as failure:
            _log.warning("subscription=%s cannot open its cursors yet: %s", self._handle, failure)
            self._open_later(partitions)
            opened = {}
        except UnreadableCursor as reason:  # the others are half open
            self.stop_unreadable(reason)
            self._open_later(partitions)
            opened = {}
        return {number: opened[number].read_position if number in opened else 0 for number in partitions}

    def revoked(self, partitions: list[int]) -> None:
        leaving = [number for number in partitions if number in self._owned]
        try:
            self._dispatcher.drain()
        except (errors.StoreError, UnreadableCursor) as failure:
            _log.warning("subscription=%s acknowledgements come too late: %s", self._handle, failure)
        if self.leasing is not None:
            self.leasing.hand_over.keep_what_is_out(leaving)
        self._dispatcher.counting.retire(leaving, orderly=True)
        if self.leasing is not None:
            self.leasing.hand_over.retire()
        try:
            self.saver.settle()
            self.saver.save(leaving)
            self.saver.checkpoint(leaving, forced=True)
        except (errors.StoreError, UnreadableCursor) as failure:
            _log.warning("subscription=%s could not save while handing over: %s", self._handle, failure)
        self._drop(partitions)

    def lost(self, partitions: list[int]) -> None:
        _log.warning("subscription=%s lost partitions %s", self._handle, partitions)
        self.saver.forget()
        self._drop(partitions)

    # The member's loop --------------------------------------------------------------------------------------------

    def open_late(self) -> None:
        """Retry to open partitions whose state could not be read at their assignment. Unreadable ones are paused."""
        if self.unreadable:
            self._consumer.pause(list(self.unreadable))
        now = self._clock.monotonic()
        due = [number for number, since in self._unopened.items() if now - since >= _RETRY_OPEN_S]
        if not due:
            return
        try:
            opened = self._open(due)
            for number in due:
                self._unopened.pop(number, None)
                if number in opened:
                    self._consumer.seek(number, opened[number].read_position)
        except errors.NotAuthorized:
            raise
        except UnreadableCursor as reason:
            self.stop_unreadable(reason)
            self._open_later(due)
        except errors.StoreError as failure:
            _log.warning("subscription=%s still cannot open its cursors: %s", self._handle, failure)
            self._unopened.update(dict.fromkeys(due, now))

    def give_up_unowned_acknowledgements(self) -> None:
        """Count acknowledgements of other owners' partitions as lost, unless reports reach the owners."""
        if self.leasing is not None and self.leasing.reaches_owners:
            return
        for slot in self._handle.slots():
            if slot.number not in self._owned and slot.forget_acknowledgements():
                self.losses += 1

    @property
    def has_periodic_work(self) -> bool:
        """There is something to do at the end of the save interval, also without new acknowledgements."""
        return bool(self._unopened or self.unreadable or self._dispatcher.redelivery.has_batches) or any(
            owned.saves.dirty or owned.guard is not None or owned.cursor.deleted or owned.intake.committed.late
            for owned in self._owned.values()
        )

    def learn_fences(self, number: int) -> None:
        """Read the fences of void records before a jump over unread records."""
        self._owned[number].intake.add_fences(self._handle.fences(number, Deadline.after(STORE_TIMEOUT_S)))

    def stop_unreadable(self, reason: UnreadableCursor) -> None:
        """Stop an unreadable partition and report it, until a seek (`open_forgetting`)."""
        report_stop(self._handle.identity(reason.partition), str(reason))
        self._drop([reason.partition])
        self.unreadable[reason.partition] = f"{reason}; reset the subscription to go on"

    def open_forgetting(self, number: int) -> None:
        """Serve an unreadable partition from its mark-delete position on. Raises StoreError."""
        opened = self._open([number], with_holes=False)
        del self.unreadable[number]
        self._consumer.resume([number])
        self._consumer.seek(number, opened[number].read_position)

    def _open_later(self, partitions: list[int]) -> None:
        self._unopened.update(
            (number, self._clock.monotonic()) for number in partitions if number not in self.unreadable
        )

    def _recovered(
        self, number: int, commit: CommittedOffset | None, with_holes: bool, deadline: Deadline
    ) -> RecoveredCursor:
        elsewhere = self._handle.elsewhere(number, deadline)
        found = self._store.recover(
            self._handle.identity(number),
            commit,
            checkpoint_beside(lambda: self._handle.checkpoint(number, deadline), commit, elsewhere),
            self._handle.start_offset(number),
            deadline,
            elsewhere,
            with_holes=with_holes,
        )
        floor = self._handle.floor(number)
        if found.state.next_unacked < floor:
            found.state.reset(floor)
        return found

    def _open(self, partitions: list[int], *, with_holes: bool = True) -> dict[int, OwnedPartition]:
        """Recover the cursors and take them over by one commit with a new session and the next version. Unreadable ones
        are stopped.

        Raises:
            UnreadableCursor: a cursor turned out unreadable later; none is open.
            StoreError: none is open.
        """
        if not partitions:
            return {}
        deadline = Deadline.after(STORE_TIMEOUT_S)
        self._handle.verify(deadline)
        committed = self._handle.committed(partitions, deadline)
        opened: dict[int, OwnedPartition] = {}
        saves: dict[int, Save] = {}
        previous: dict[int, RecoveredCursor] = {}
        for number in partitions:
            identity = self._handle.identity(number)
            try:
                found = self._recovered(number, committed.get(number), with_holes, deadline)
                self._look_for_transactions(found, identity, deadline)
                saves[number] = save = self._store.take_over(identity, found, deadline)
            except UnreadableCursor as reason:
                self.stop_unreadable(reason)
                continue
            if self.leasing is None:
                found.state.leased_from = None
            opened[number] = self._born(identity, found, save, deadline)
            previous[number] = found
        self._consumer.commit({number: save.commit for number, save in saves.items()})
        self.saver.accept({number: (owned, saves[number]) for number, owned in opened.items()}, deadline)
        refused: dict[int, dict[int, Nack] | None] = {}
        if self.leasing is not None:
            refused = {number: self.leasing.hand_over.take_over(owned, deadline) for number, owned in opened.items()}
        self.transactions.take_over(opened, deadline)
        for number, owned in opened.items():
            owned.attach_meter(self._handle.meter)
            self._owned[number] = owned
            self.saver.forget_former(owned, previous[number].former, deadline)
            _log.info(
                "cursor=%s version=%d recovered from=%s next=%d individually_deleted=%d", owned.identity,
                owned.version, previous[number].source, owned.next_unacked,
                len(owned.cursor.deleted),
            )  # fmt: skip
        self._dispatcher.count_deliveries()
        if self.leasing is not None:
            for number, owned in opened.items():
                self.leasing.hand_over.opened(owned, refused[number])
        self._dispatcher.choose_active()
        return opened

    def _born(self, identity: CursorIdentity, found: RecoveredCursor, save: Save, deadline: Deadline) -> OwnedPartition:
        number = identity.partition
        terms = PartitionTerms(
            self._dispatcher,
            self._store,
            self._clock.now_ms,
            self._dispatcher.chunk_assembly(),
            Fences(self._handle.fences(number, deadline)),
            self._handle.type.is_shared and not self._handle.transient,
            self._handle.compacted(number),
            self._handle.acknowledged_elsewhere(number),
        )
        saved = found.saved or SavedCursor(save.saved.lineage)
        return OwnedPartition(self._handle.slot(number), identity, found.state, saved, terms)

    def _saved(self, owned: OwnedPartition, save: Save) -> None:
        self.transactions.saved(owned, save)
        if self.leasing is not None:
            self.leasing.lessor.saved(owned)

    def _look_for_transactions(self, found: RecoveredCursor, identity: CursorIdentity, deadline: Deadline) -> None:
        """Find out whether transactions acknowledge here, if the commit does not contain it."""
        requests = found.source in ("seek", "checkpoint") and not found.state.pending_acks
        if requests and self._journal.knows_of(identity.name, deadline):
            found.state.let_transactions_acknowledge()

    def _reopen(self, number: int) -> None:
        """Recover an owned partition whose transactions another owner took over."""
        try:
            self.saver.settle()
            self.saver.save([number])
        except errors.StoreError as failure:
            _log.warning("subscription=%s could not save partition %d: %s", self._handle, number, failure)
        self._drop([number])
        self._unopened[number] = self._clock.monotonic()

    def _drop(self, partitions: list[int]) -> None:
        self.transactions.close(partitions)
        for number in partitions:
            self._unopened.pop(number, None)
            self.unreadable.pop(number, None)
            owned = self._owned.pop(number, None)
            if owned is None:
                continue
            owned.saves.forget()
            if self.leasing is not None:
                self.leasing.hand_over.giving_up(owned)
            self._dispatcher.forget(owned)
            if self.leasing is not None:
                self.leasing.gave_up(number)
            if owned.saves.dirty or (not owned.stays_out and owned.slot.forget_acknowledgements()):
                self.losses += 1
