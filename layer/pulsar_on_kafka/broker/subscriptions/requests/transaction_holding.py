"""Holds acknowledgements for a transaction without a consumer: through the cursor's owner, or without one.

A cursor without an owner is taken over for a moment, as for a change. The acknowledgement is appended to the log of
pending acks, and the cursor's save has the mark that makes the next owner read them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Final

from pyroaring import BitMap64

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline, pause
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.broker.subscriptions.requests.idle_cursors import IdleCursors, IdleTransactions
from pulsar_on_kafka.broker.subscriptions.requests.transaction_acks import TransactionAcksElsewhere
from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import CursorLife
from pulsar_on_kafka_mapping.state.state_keys import DeliveryKey
from pulsar_on_kafka_mapping.state.transactions.pending_acks import TxnAck

_log = logging.getLogger(__name__)

ENTRIES_PER_REQUEST: Final = 20_000
"""The owner checks each entry, which takes some 20 ms for so many; their bitmap has 40 KiB, or less."""
_BATCHES_PER_REQUEST: Final = 200
"""A batch has up to 1,000,000 messages, and a bit for each."""
_LOOK_S: Final = 1.0
"""The interval at which it is checked that there is still an owner."""
_BUSY_PAUSE_S: Final = 0.1


class TransactionHolding:
    """Thread-safe. Memory: one request of up to 20,000 entries for each call."""

    def __init__(
        self,
        elsewhere: TransactionAcksElsewhere,
        idle: IdleCursors,
        idle_transactions: IdleTransactions,
        admin: KafkaAdmin,
    ) -> None:
        self._elsewhere = elsewhere
        self._idle = idle
        self._idle_transactions = idle_transactions
        self._admin = admin

    def hold(self, subscription: Subscription, partition: int, txn: TxnId, ack: TxnAck, deadline: Deadline) -> None:
        """Returns when the transaction durably holds this acknowledgement, which is not cumulative. The transaction has
        to be registered with the subscription. After an error it may hold a part, and must be aborted.

        Raises:
            TransactionConflict: a part is acknowledged already, or a transaction holds it.
            TransactionNotFound: the transaction has ended.
            InvalidCursorPosition: there is no such entry.
            DeadlineExceeded: there was no reply in time.
            StoreError: the acknowledgement could not be written.
        """
        for part in _parts(ack):
            while not self._held(subscription, partition, txn, part, deadline):
                deadline.check(f"partition {partition} of subscription {subscription.name} to hold an acknowledgement")
                pause(_BUSY_PAUSE_S)

    def _held(self, subscription: Subscription, partition: int, txn: TxnId, ack: TxnAck, deadline: Deadline) -> bool:
        if self._has_members(subscription, deadline):
            return self._held_by_owner(subscription, partition, txn, ack, deadline)
        try:
            reading = self._idle.read(subscription, [partition], deadline)
            self._idle_transactions.hold(reading, partition, txn, ack, deadline)
        except (errors.SubscriptionBusy, errors.Fenced, errors.CommitOutcomeUnknown) as busy:
            _log.debug("subscription=%s %s", subscription.name, busy)
            return False
        return True

    def _held_by_owner(
        self, subscription: Subscription, partition: int, txn: TxnId, ack: TxnAck, deadline: Deadline
    ) -> bool:
        """False: there is no member any more. The request is resent until then."""
        topic = subscription.topic
        key = DeliveryKey(str(topic.name), partition, subscription.name)
        life = CursorLife(topic.kafka_topic_id, topic.layout.incarnation, subscription.life(partition))
        answer: Future[None] = Future()
        self._elsewhere.request(key, life, txn, ack, answer, deadline)
        while True:
            try:
                answer.result(_LOOK_S)
            except FutureTimeoutError:
                if answer.done() or self._has_members(subscription, deadline):
                    continue
                answer.cancel()
                return False
            return True

    def _has_members(self, subscription: Subscription, deadline: Deadline) -> bool:
        return any(self._admin.describe_group(group, deadline).members for group in subscription.groups)


def _parts(ack: TxnAck) -> Iterator[TxnAck]:
    """The same in acknowledgements that the owner checks quickly."""
    offsets = ack.whole
    while offsets:
        first = BitMap64(offsets[:ENTRIES_PER_REQUEST])
        yield TxnAck(first)
        offsets = offsets - first
    batches = sorted(ack.batches.items())
    for start in range(0, len(batches), _BATCHES_PER_REQUEST):
        yield TxnAck(batches=dict(batches[start : start + _BATCHES_PER_REQUEST]))
