"""Before a cursor that nobody owns is moved, or told to others: what transactions committed on it is brought to it,
saved and cleaned.

Otherwise its next owner would find that on record and acknowledge it once more, behind the seek; and other clusters
would not hear of it. Done as an owner does
it: a take-over, a save, the tombstones; every step may be the last one, and somebody may become the owner in between.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.cursor.store import CursorStore
from pulsar_on_kafka.mapping.ids.txn_id import TxnId
from pulsar_on_kafka.mapping.state.transactions.pending_acks import CursorIncarnation
from pulsar_on_kafka.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.statelog.owned import random_session
from pulsar_on_kafka.subscriptions.requests.idle_cursors import IdleCursors, IdleReading
from pulsar_on_kafka.transactions.pending_acks.log import CursorName
from pulsar_on_kafka.transactions.pending_acks.pending_acks_machine import PendingAcks
from pulsar_on_kafka.transactions.records.pending_ack_journal import PendingAckJournal


class Pending(NamedTuple):
    """Transactions whose acknowledgements no owner has taken in."""

    decided: frozenset[TxnId]
    open: frozenset[TxnId]


class IdleTransactions:
    """Thread-safe."""

    def __init__(self, journal: PendingAckJournal, cursors: IdleCursors, store: CursorStore) -> None:
        self._journal = journal
        self._cursors = cursors
        self._store = store

    def pending(self, subscription: Subscription, deadline: Deadline) -> dict[int, Pending]:
        """By partition, of those where there is something. Raises StoreError, Corrupt."""
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
        """False when there is nothing to do; True when the cursor was saved: read it again.

        Raises:
            SubscriptionBusy: somebody owns the cursor.
            Fenced, CommitOutcomeUnknown: see `IdleCursors.save`.
            StoreError: it could not be done.
        """
        found = reading.cursors[partition]
        if not found.state.pending_acks:
            return False
        identity = reading.identity(partition)
        name = CursorName(identity.topic, partition, identity.subscription)
        life = CursorIncarnation(identity.topic_incarnation, identity.subscription_incarnation)
        if not self._journal.exchange({name: ()}, deadline)[name].acks.life(life).transactions():
            return False
        taken = self._store.take_over(identity, found, deadline)
        first = taken.saved.lineage
        reading = self._cursors.save(reading, {partition: taken}, deadline)
        pending = PendingAcks(name, life, random_session(), first.version)
        answer = self._journal.exchange({name: [pending.take_over()]}, deadline)[name]
        pending.replayed(answer.acks, answer.low_waters, found.state.revision)
        pending.settle(found.state)
        settled = self._store.prepare(identity, found.state, taken.saved, replace(first, save=1), deadline)
        self._cursors.save(reading, {partition: settled}, deadline)
        pending.saved(found.state.revision)
        while keys := pending.to_clean(answer.acks):
            answer = self._journal.exchange({name: [(key, None) for key in keys]}, deadline)[name]
        return True
