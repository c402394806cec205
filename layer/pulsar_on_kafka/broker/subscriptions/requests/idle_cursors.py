"""Reads the saved cursors of a subscription, and changes cursors without an owner."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.checkpoints import Checkpoints
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity, CursorName
from pulsar_on_kafka.broker.cursor.prefetched_segments import NotAtHand
from pulsar_on_kafka.broker.cursor.saved_cursor import (
    AcceptedSave,
    RecoveredCursor,
    Save,
    UnreadableCursor,
    checkpoint_beside,
)
from pulsar_on_kafka.broker.cursor.store import CursorStore
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription, cursor_identity
from pulsar_on_kafka.broker.transactions.pending_acks.holdings import has
from pulsar_on_kafka.broker.transactions.pending_acks.pending_acks_machine import PendingAcks
from pulsar_on_kafka.broker.transactions.records.pending_ack_journal import PendingAckJournal, PendingAckReading
from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka.kafka.groups.empty_group_offsets import FoundOffsets, IdleOffsets
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka.statelog.owned import random_session
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.transactions.pending_acks import CursorIncarnation, TxnAck

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Saved:
    """The records of one cursor; the arguments of `CursorStore.recover`."""

    identity: CursorIdentity
    commit: CommittedOffset | None
    checkpoint: CommittedOffset | None
    start_offset: int
    elsewhere: CommittedOffset | None

    def recover(self, store: CursorStore, deadline: Deadline, *, with_holes: bool = True) -> RecoveredCursor:
        return store.recover(
            self.identity,
            self.commit,
            self.checkpoint,
            self.start_offset,
            deadline,
            self.elsewhere,
            with_holes=with_holes,
        )


class SavedCursors:
    """Reads cursors without an effect on their owners. Thread-safe."""

    def __init__(
        self, admin: KafkaAdmin, store: CursorStore, checkpoints: Checkpoints, idle_offsets: IdleOffsets
    ) -> None:
        self._admin = admin
        self._store = store
        self._checkpoints = checkpoints
        self._idle_offsets = idle_offsets

    def read(self, subscription: Subscription, deadline: Deadline) -> dict[int, RecoveredCursor]:
        """Raises UnreadableCursor."""
        offsets = self.offsets(subscription, deadline)
        return {p: self.recover_one(subscription, p, offsets, deadline) for p in subscription.served}

    def read_whole(
        self, subscription: Subscription, deadline: Deadline, partitions: Collection[int] | None = None
    ) -> dict[int, RecoveredCursor]:
        """`read` with every ledger, of these partitions (None: of all). Their records of `cursors` are read together:
        distant records take longer than thousands in a row. Memory: these records, until all are read.

        Raises UnreadableCursor, StoreError.
        """
        offsets = self.offsets(subscription, deadline)
        saved = {
            partition: self._saved(subscription, partition, offsets, deadline)
            for partition in subscription.served
            if partitions is None or partition in partitions
        }
        store, segments = self._store.with_segments_at_hand()
        found: dict[int, RecoveredCursor] = {}
        while True:
            for partition in [each for each in saved if each not in found]:
                with suppress(NotAtHand):
                    cursor = saved[partition].recover(store, deadline)
                    store.load_all(saved[partition].identity, cursor, deadline)
                    found[partition] = cursor
            if len(found) == len(saved):
                return {partition: found[partition] for partition in saved}
            segments.read_required(deadline)

    def offsets(self, subscription: Subscription, deadline: Deadline) -> dict[str, dict[int, CommittedOffset | None]]:
        """The committed offsets of each group of a subscription, for the partitions that it serves or served."""
        requested = {subscription.whole_group: subscription.served}
        for partition in subscription.served:
            group = subscription.partition_groups.get(partition)
            if group is not None:
                requested[group] = (partition,)
        kafka_topic = subscription.topic.kafka_topic
        found = {
            group: self._admin.committed(group, kafka_topic, partitions, deadline)
            for group, partitions in requested.items()
        }
        return {group: {p: found[group].get(p) for p in partitions} for group, partitions in requested.items()}

    def read_readable(
        self, subscription: Subscription, deadline: Deadline
    ) -> tuple[dict[int, RecoveredCursor], dict[int, UnreadableCursor]]:
        """`read` for callers that do not need holes. Also returns the cursors whose acknowledgements above mark-delete
        are unreadable, and left out."""
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
    ) -> RecoveredCursor:
        """Recover the cursor of one partition from these offsets; `with_holes` as for `CursorStore.recover`. Raises
        UnreadableCursor."""
        return self._saved(subscription, partition, offsets, deadline).recover(
            self._store, deadline, with_holes=with_holes
        )

    def _saved(
        self,
        subscription: Subscription,
        partition: int,
        offsets: Mapping[str, Mapping[int, CommittedOffset | None]],
        deadline: Deadline,
    ) -> _Saved:
        commit, elsewhere = offsets[subscription.whole_group].get(partition), None
        group = subscription.partition_groups.get(partition)
        if group is not None:
            alone = offsets[group].get(partition)
            by_itself = subscription.saving_group(partition) == group
            commit, elsewhere = (alone, commit) if by_itself else (commit, alone)
        identity = cursor_identity(subscription, partition)
        checkpoint = checkpoint_beside(lambda: self._checkpoints.newest(identity, deadline), commit, elsewhere)
        return _Saved(identity, commit, checkpoint, subscription.start_offset(partition), elsewhere)

    def committed_elsewhere(
        self, subscription: Subscription, partition: int, deadline: Deadline
    ) -> CommittedOffset | None:
        """The committed offset in the other group that served the partition, once it is settled."""
        group = subscription.other_group(partition)
        return (
            None if group is None else self.committed_settled(subscription, [partition], deadline, group).get(partition)
        )

    def committed_settled(
        self, subscription: Subscription, partitions: Sequence[int], deadline: Deadline, group: str | None = None
    ) -> Mapping[int, CommittedOffset]:
        """The group's committed offsets (None: of the subscription's group), for its member. Waits for changes by
        processes that are no members."""
        return self._idle_offsets.settled(
            subscription.whole_group, group or subscription.group, subscription.topic.kafka_topic, partitions, deadline
        )

    def forget(self, subscription: Subscription, cursors: Mapping[int, RecoveredCursor], deadline: Deadline) -> None:
        """Tombstone the records of these cursors: the subscription is deleted."""
        for partition, cursor in cursors.items():
            if cursor.saved is not None:
                identity = cursor_identity(subscription, partition)
                self._store.forget(identity, cursor.saved, deadline)
                self._store.drop_checkpoint(identity, cursor.saved.lineage.session, deadline)


@dataclass(frozen=True, slots=True)
class IdleReading:
    """A reading of a subscription's cursors: the offsets of all of its groups, and some cursors."""

    subscription: Subscription
    """The present record: the groups that save the subscription may have changed since it was found."""
    offsets: FoundOffsets
    cursors: dict[int, RecoveredCursor]

    def identity(self, partition: int) -> CursorIdentity:
        return cursor_identity(self.subscription, partition)


class IdleCursors:
    """Reads cursors without an owner, and saves them by a take-over and a save, ordered with all other changes.
    Thread-safe.

    `IdleOffsets` rejects the later of two changes from one state, which Kafka alone would accept.
    """

    def __init__(
        self,
        cursors: SavedCursors,
        offsets: IdleOffsets,
        store: CursorStore,
        clock: Clock,
        find: Callable[[Subscription, Deadline], Subscription | None],
    ) -> None:
        """`find` returns the present record of a subscription."""
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
        """Commit these saves by partition, of cursors that were read, all or none; returns the reading for another
        save. Obsolete records are tombstoned, or the new ones if the saves are rejected.

        Raises:
            SubscriptionBusy: a consumer is connected. Nothing is changed, nor with any other error but the last.
            Fenced: another process has changed one of the cursors.
            CommitOutcomeUnknown: the saves count, or do not.
        """
        subscription = reading.subscription
        requested: dict[str, dict[int, CommittedOffset]] = {}
        for partition, save in saves.items():
            requested.setdefault(subscription.saving_group(partition), {})[partition] = save.commit
        try:
            self._offsets.change(
                subscription.whole_group,
                subscription.topic.kafka_topic,
                reading.offsets,
                requested,
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
        offsets = {group: {**found, **requested.get(group, {})} for group, found in reading.offsets.items()}
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
        """Raises Fenced: another group saves the cursor now, or the subscription was created again."""
        now = self._now(subscription, deadline)
        if any(
            (now.saving_group(number), now.life(number))
            != (subscription.saving_group(number), subscription.life(number))
            for number in subscription.served
        ) or set(now.groups) - set(subscription.groups):
            raise errors.Fenced(f"subscription {subscription.name} of {subscription.topic.name} has changed")

    def _keep_house(self, reading: IdleReading, saves: Mapping[int, Save], deadline: Deadline) -> None:
        """Write checkpoints and tombstones after a save; housekeeping repeats failed ones."""
        for partition, save in saves.items():
            identity = reading.identity(partition)
            try:
                copy = AcceptedSave(identity, save.commit, save.saved.lineage, save.replaces)
                self._store.write_checkpoints([copy], self._clock.now_ms(), deadline)
                self._store.clean(identity, save.obsolete, deadline)
            except errors.StoreError as failure:
                _log.warning("cursor=%s could not clean up: %s", identity, failure)


class Pending(NamedTuple):
    """Transactions whose acknowledgements no owner has applied."""

    decided: frozenset[TxnId]
    open: frozenset[TxnId]


class IdleTransactions:
    """Applies, saves and cleans the outcomes of transactions on a cursor without an owner, before the cursor is moved
    or copied to other clusters. Thread-safe.

    Otherwise the next owner would apply them after the seek, and other clusters would not receive them. The steps are
    an owner's: a take-over, a save, the tombstones. The process may die after any step, and an owner may appear between
    two.
    """

    def __init__(self, journal: PendingAckJournal, cursors: IdleCursors, store: CursorStore) -> None:
        self._journal = journal
        self._cursors = cursors
        self._store = store

    def pending(self, subscription: Subscription, deadline: Deadline) -> dict[int, Pending]:
        """The pending transactions by partition, without partitions that have none. Raises StoreError, Corrupt."""
        topic = subscription.topic
        names = {p: CursorName(str(topic.name), p, subscription.name) for p in subscription.served}
        found: dict[int, Pending] = {}
        on_record = self._journal.on_record(list(names.values()), deadline)
        for partition, name in names.items():
            acks = on_record[name]
            life = CursorIncarnation(topic.layout.incarnation, subscription.life(partition))
            txns = frozenset(acks.life(life).transactions())
            if txns:
                found[partition] = Pending(txns & acks.ends.keys(), txns - acks.ends.keys())
        return found

    def settle(self, reading: IdleReading, partition: int, deadline: Deadline) -> bool:
        """True when the cursor was saved and must be read again; False if no transaction is pending.

        Raises:
            SubscriptionBusy: the cursor has an owner.
            Fenced, CommitOutcomeUnknown: see `IdleCursors.save`.
            StoreError: the outcomes could not be saved.
        """
        found = reading.cursors[partition]
        if not found.state.pending_acks:
            return False
        identity = reading.identity(partition)
        name, life = identity.name, identity.life
        if not self._journal.exchange({name: ()}, deadline)[name].acks.life(life).transactions():
            return False
        reading, taken, pending, answer = self._taken_over(reading, partition, deadline)
        first = taken.saved.lineage
        pending.settle(found.state)
        settled = self._store.prepare(identity, found.state, taken.saved, replace(first, save=1), deadline)
        self._cursors.save(reading, {partition: settled}, deadline)
        pending.saved(found.state.revision)
        while keys := pending.to_clean(answer.acks):
            answer = self._journal.exchange({name: [(key, None) for key in keys]}, deadline)[name]
        return True

    def hold(self, reading: IdleReading, partition: int, txn: TxnId, ack: TxnAck, deadline: Deadline) -> None:
        """Hold an acknowledgement for a transaction on a cursor without an owner; it may be repeated.

        Raises:
            TransactionConflict, TransactionNotFound: it cannot be held.
            InvalidCursorPosition: a batch has another size.
            SubscriptionBusy: the cursor has an owner.
            Fenced, CommitOutcomeUnknown: see `IdleCursors.save`.
            StoreError: it could not be written.
        """
        state = reading.cursors[partition].state
        state.let_transactions_acknowledge()
        _, _, pending, _ = self._taken_over(reading, partition, deadline)
        pending.settle(state)  # unsaved: the next owner finds these outcomes on record again
        if has(pending.held.of(txn), ack):
            return
        ticket = pending.request(txn, ack)
        decision = pending.decide(state)
        answers = decision.answers
        if decision.records:
            answer = self._journal.exchange({pending.name: decision.records}, deadline)[pending.name]
            answers = [*answers, *pending.read_back(answer.acks, answer.low_waters)]
        failures = {each.ticket: each.failure for each in answers}
        failure = failures.get(ticket, errors.StoreError(f"no reply about transaction {txn} of {pending.name}"))
        if failure is not None:
            raise failure

    def _taken_over(
        self, reading: IdleReading, partition: int, deadline: Deadline
    ) -> tuple[IdleReading, Save, PendingAcks, PendingAckReading]:
        """Fence former owners, and read what transactions hold. Raises as `settle`."""
        found, identity = reading.cursors[partition], reading.identity(partition)
        taken = self._store.take_over(identity, found, deadline)
        reading = self._cursors.save(reading, {partition: taken}, deadline)
        pending = PendingAcks(identity.name, identity.life, random_session(), taken.saved.lineage.version)
        answer = self._journal.exchange({pending.name: [pending.take_over()]}, deadline)[pending.name]
        pending.replayed(answer.acks, answer.low_waters, found.state.revision)
        return reading, taken, pending, answer
