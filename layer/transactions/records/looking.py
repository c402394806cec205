"""Looking reads the state of transactions and makes nothing for it. A state topic that is not there, because nobody in
the cluster ever used a transaction, is as good as an empty one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol, TypeVar

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.mapping.ids.txn_id import TxnId
from pulsar_on_kafka.mapping.state.state_topics import (
    TRANSACTION_BUFFER_SNAPSHOT,
    TRANSACTION_LOG,
    TRANSACTION_PENDING_ACK,
    StateTopic,
)
from pulsar_on_kafka.transactions.buffer.entries import BufferEntries
from pulsar_on_kafka.transactions.buffer.model import DataPartition
from pulsar_on_kafka.transactions.coordinator.state import CoordinatorState
from pulsar_on_kafka.transactions.pending_acks.log import PendingAckLog
from pulsar_on_kafka.transactions.records.views import TransactionViews

T = TypeVar("T")


class StateTopics(Protocol):
    """The call of `Services` that looking uses."""

    def has_state_topic(self, topic: StateTopic, deadline: Deadline) -> bool: ...


class LookingOnly:
    """Questions as of `TransactionViews`, which see. Thread-safe; a topic that was seen once is not asked for again."""

    def __init__(self, views: TransactionViews, topics: StateTopics) -> None:
        self._views = views
        self._topics = topics
        self._seen: set[StateTopic] = set()

    def ask_buffer(self, topic: str, question: Callable[[BufferEntries], T], deadline: Deadline) -> T:
        if not self._there(TRANSACTION_BUFFER_SNAPSHOT, deadline):
            return question(BufferEntries())
        return self._views.ask_buffer(topic, question, deadline)

    def outcomes(
        self, topic: str, partition: int, incarnation: int, txns: Collection[TxnId], deadline: Deadline
    ) -> dict[TxnId, bool | None]:
        """Whether these transactions, which have records in this life of the partition, are committed; None: they are
        open."""
        where = DataPartition(topic, partition, incarnation)
        return self.ask_buffer(topic, lambda entries: entries.outcomes(where, txns), deadline)

    def ask_pending_acks(self, topic: str, question: Callable[[PendingAckLog], T], deadline: Deadline) -> T:
        if not self._there(TRANSACTION_PENDING_ACK, deadline):
            return question(PendingAckLog())
        return self._views.ask_pending_acks(topic, question, deadline)

    def ask_coordinator(self, coordinator: int, question: Callable[[CoordinatorState], T], deadline: Deadline) -> T:
        if not self._there(TRANSACTION_LOG, deadline):
            return question(CoordinatorState(coordinator))
        return self._views.ask_coordinator(coordinator, question, deadline)

    def ask_coordinators(
        self, coordinators: range, question: Callable[[CoordinatorState], T], deadline: Deadline
    ) -> list[T]:
        """The same of several; whether there is a log is asked once."""
        if not self._there(TRANSACTION_LOG, deadline):
            return [question(CoordinatorState(number)) for number in coordinators]
        return [self._views.ask_coordinator(number, question, deadline) for number in coordinators]

    def _there(self, topic: StateTopic, deadline: Deadline) -> bool:
        if topic not in self._seen and self._topics.has_state_topic(topic, deadline):
            self._seen.add(topic)
        return topic in self._seen
