"""Views of buffers, pending acks and coordinators' logs, as this process last read them, shared by the process."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping
from typing import Final

from pyroaring import BitMap64

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.transactions.buffer.entries import BufferEntries
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition
from pulsar_on_kafka.broker.transactions.coordinator.state import CoordinatorState
from pulsar_on_kafka.broker.transactions.pending_acks.log import PendingAckLog
from pulsar_on_kafka.broker.transactions.records import outcomes
from pulsar_on_kafka.statelog.api import StateLog
from pulsar_on_kafka.statelog.views import LogViews, Looking
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.state_topics import (
    TRANSACTION_BUFFER_SNAPSHOT,
    TRANSACTION_LOG,
    TRANSACTION_PENDING_ACK,
    StateTopic,
)


class TransactionViews:
    """The views of one process. Thread-safe. Memory: see `BufferEntries`, `PendingAckLog`, `CoordinatorState` and
    `LogViews`."""

    def __init__(self, log: StateLog, clock: Clock) -> None:
        self.buffers = LogViews(log, TRANSACTION_BUFFER_SNAPSHOT, lambda _: BufferEntries(), clock)
        """All transactions in topics."""
        self.pending_acks = LogViews(log, TRANSACTION_PENDING_ACK, lambda _: PendingAckLog(), clock)
        """The acks that open transactions hold on topics' subscriptions."""
        self.coordinators = LogViews(log, TRANSACTION_LOG, CoordinatorState, clock)
        """Coordinators' own logs: partition i is the log of coordinator i, in whichever process that runs."""


class LookingOnly:
    """The same views, for questions that make no state topic. Thread-safe."""

    def __init__(self, views: TransactionViews, exists: Callable[[StateTopic, Deadline], bool]) -> None:
        self.buffers = Looking(views.buffers, exists)
        self.pending_acks = Looking(views.pending_acks, exists)
        self.coordinators = Looking(views.coordinators, exists)

    def outcomes(
        self, topic: str, partition: int, incarnation: int, txns: Collection[TxnId], deadline: Deadline
    ) -> dict[TxnId, bool | None]:
        """Outcomes of these transactions, which have records in this incarnation of the partition: True for committed,
        None for open."""
        where = DataPartition(topic, partition, incarnation)
        return self.buffers.query(topic, lambda entries: entries.outcomes(where, txns), deadline)


_TIMEOUT_S: Final = 2.0


class BufferAccess:
    """One reader's or member's, for one topic (full name, without a partition's suffix); used by one thread."""

    def __init__(
        self, topic: str, views: TransactionViews, log: StateLog, hold_up: Callable[[Collection[TxnId]], None]
    ) -> None:
        """`hold_up` is called with open transactions that this reader waits for, see `Abandoned`."""
        self._topic = topic
        self._views = views
        self._log = log
        self.hold_up = hold_up
        self._session = secrets.token_hex(16)

    def query(self, question: Callable[[BufferEntries], None], deadline: Deadline | None = None) -> None:
        """Put `question` to what is on record now. Without a deadline it takes 2 s at most; raises LayerErrors."""
        self._views.buffers.query(self._topic, question, deadline or Deadline.after(_TIMEOUT_S))

    def put_on_record(self, where: DataPartition, late: Mapping[TxnId, BitMap64]) -> None:
        """Writes VOID entries for these records, by transaction, and returns when they are durable. Raises LayerErrors;
        a second call does no harm."""
        deadline = Deadline.after(_TIMEOUT_S)
        records = self._views.buffers.query(
            self._topic,
            lambda entries: outcomes.void_records(late, where, entries, self._session),
            deadline,
        )
        for partition, together in records.items():
            self._log.append_many(TRANSACTION_BUFFER_SNAPSHOT, partition, together, deadline)
