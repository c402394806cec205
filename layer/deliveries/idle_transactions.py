"""Before a cursor that nobody owns is moved: what transactions committed on it is brought to it, saved and cleaned.

Otherwise its next owner would find that on record and acknowledge it once more, behind the seek. Done as an owner does
it: a take-over, a save, the tombstones; every step may be the last one, and somebody may become the owner in between.
"""

from __future__ import annotations

import secrets

from layer.clock import Clock
from layer.cursor.saved import Recovered, Save, Saved
from layer.cursor.store import CursorStore, new_session
from layer.deadline import Deadline
from layer.kafka.admin import KafkaAdmin
from layer.metadata.subscription import Subscription, cursor_identity
from layer.transactions.pending_acks.journal import PendingAckJournal
from layer.transactions.pending_acks.log import CursorName
from layer.transactions.pending_acks.machine import PendingAcks
from mapping.state_records.pending_acks import CursorLife


class IdleTransactions:
    """Thread-safe."""

    def __init__(self, journal: PendingAckJournal, admin: KafkaAdmin, store: CursorStore, clock: Clock) -> None:
        self._journal = journal
        self._admin = admin
        self._store = store
        self._clock = clock

    def settle(self, subscription: Subscription, partition: int, found: Recovered, deadline: Deadline) -> bool:
        """False when there is nothing to do; True when the cursor was saved: recover it again.

        Raises:
            SubscriptionBusy: somebody owns the cursor.
            StoreError: it could not be done, or somebody came in between.
        """
        if not found.state.pending_acks:
            return False
        identity = cursor_identity(subscription, partition)
        name = CursorName(identity.topic, partition, subscription.name)
        life = CursorLife(identity.topic_incarnation, identity.subscription_incarnation)
        if not self._journal.exchange({name: ()}, deadline)[name].acks.life(life).transactions():
            return False
        version, session = found.version + 1, new_session()
        first = identity.lineage(session, version, 0)
        taken = self._store.prepare(identity, found.state, found.saved or Saved(first), first, deadline)
        self._commit(subscription, partition, taken, deadline)
        pending = PendingAcks(name, life, secrets.token_hex(16), version)
        reading = self._journal.exchange({name: [pending.take_over()]}, deadline)[name]
        pending.replayed(reading.acks, reading.low_waters, found.state.revision)
        pending.settle(found.state)
        second = identity.lineage(session, version, 1)
        self._commit(
            subscription, partition, self._store.prepare(identity, found.state, taken.saved, second, deadline), deadline
        )
        pending.saved(found.state.revision)
        while keys := pending.to_clean(reading.acks):
            reading = self._journal.exchange({name: [(key, None) for key in keys]}, deadline)[name]
        return True

    def _commit(self, subscription: Subscription, partition: int, save: Save, deadline: Deadline) -> None:
        group, kafka_topic = subscription.saving_group(partition), subscription.topic.kafka_topic
        self._admin.alter_committed(group, kafka_topic, {partition: save.commit}, deadline)
        identity = cursor_identity(subscription, partition)
        self._store.write_checkpoint(identity, save.commit, save.saved.lineage, self._clock.now_ms(), deadline)
        self._store.clean(identity, save.obsolete, deadline)
