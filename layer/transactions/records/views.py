"""Views of buffers, pending acks and coordinators' logs, as this process last read them, for everybody in it."""

from __future__ import annotations

from collections.abc import Callable, Collection

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.mapping.ids.txn_id import TxnId
from pulsar_on_kafka.mapping.state.state_topics import (
    TRANSACTION_BUFFER_SNAPSHOT,
    TRANSACTION_LOG,
    TRANSACTION_PENDING_ACK,
    StateTopic,
)
from pulsar_on_kafka.statelog.api import StateLog
from pulsar_on_kafka.statelog.views import LogViews, Looking
from pulsar_on_kafka.transactions.buffer.entries import BufferEntries
from pulsar_on_kafka.transactions.buffer.model import DataPartition
from pulsar_on_kafka.transactions.coordinator.state import CoordinatorState
from pulsar_on_kafka.transactions.pending_acks.log import PendingAckLog


class TransactionViews:
    """Thread-safe. Memory: what `BufferEntries`, `PendingAckLog` and `CoordinatorState` say, see `LogViews`."""

    def __init__(self, log: StateLog, clock: Clock) -> None:
        self.buffers = LogViews(log, TRANSACTION_BUFFER_SNAPSHOT, lambda _: BufferEntries(), clock)
        """All transactions in topics."""
        self.pending_acks = LogViews(log, TRANSACTION_PENDING_ACK, lambda _: PendingAckLog(), clock)
        """What open transactions hold on topics' subscriptions."""
        self.coordinators = LogViews(log, TRANSACTION_LOG, CoordinatorState, clock)
        """Coordinators' own logs, partition i being coordinator i, whoever serves it."""


class LookingOnly:
    """The same views, for questions that make no state topic. Thread-safe."""

    def __init__(self, views: TransactionViews, exists: Callable[[StateTopic, Deadline], bool]) -> None:
        self.buffers = Looking(views.buffers, exists)
        self.pending_acks = Looking(views.pending_acks, exists)
        self.coordinators = Looking(views.coordinators, exists)

    def outcomes(
        self, topic: str, partition: int, incarnation: int, txns: Collection[TxnId], deadline: Deadline
    ) -> dict[TxnId, bool | None]:
        """Whether these transactions, which have records in this life of the partition, are committed; None: they are
        open."""
        where = DataPartition(topic, partition, incarnation)
        return self.buffers.ask(topic, lambda entries: entries.outcomes(where, txns), deadline)
