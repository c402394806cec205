"""Views of buffers, pending acks and coordinators' logs, as this process last read them, for everybody in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.mapping.state.state_topics import (
    TRANSACTION_BUFFER_SNAPSHOT,
    TRANSACTION_LOG,
    TRANSACTION_PENDING_ACK,
)
from pulsar_on_kafka.statelog.api import StateLog
from pulsar_on_kafka.statelog.view import LogEnd, LogView
from pulsar_on_kafka.transactions.buffer.entries import BufferEntries
from pulsar_on_kafka.transactions.coordinator.state import CoordinatorState
from pulsar_on_kafka.transactions.pending_acks.log import PendingAckLog

T = TypeVar("T")


class TransactionViews:
    """Thread-safe; a partition is read from its beginning when it is asked for first.

    Memory: what `BufferEntries`, `PendingAckLog` and `CoordinatorState` say, of those partitions of the three topics
    that were asked for.
    """

    def __init__(self, log: StateLog, clock: Clock) -> None:
        self._buffers = [
            LogView(log, TRANSACTION_BUFFER_SNAPSHOT, partition, BufferEntries, clock)
            for partition in range(TRANSACTION_BUFFER_SNAPSHOT.partitions)
        ]
        self._pending_acks = [
            LogView(log, TRANSACTION_PENDING_ACK, partition, PendingAckLog, clock)
            for partition in range(TRANSACTION_PENDING_ACK.partitions)
        ]
        self._coordinators: dict[int, LogView[CoordinatorState]] = {}
        self._log = log
        self._clock = clock

    def ask_buffer(self, topic: str, question: Callable[[BufferEntries], T], deadline: Deadline) -> T:
        """Put `question` to what is on record of all transactions in `topic` (full name, without a partition's
        suffix), at an end that was asked for after this call was made. Raises as `LogView.ask`."""
        return self._buffers[TRANSACTION_BUFFER_SNAPSHOT.partition_for(topic)].ask(question, deadline, about=topic)

    def ask_buffer_log(self, partition: int, question: Callable[[BufferEntries], T], deadline: Deadline) -> T:
        """The same of everything in one partition of the state topic."""
        return self._buffers[partition].ask(question, deadline)

    def ask_pending_acks(self, topic: str, question: Callable[[PendingAckLog], T], deadline: Deadline) -> T:
        """The same of what open transactions hold on the topic's subscriptions."""
        return self._pending_acks[TRANSACTION_PENDING_ACK.partition_for(topic)].ask(question, deadline, about=topic)

    def ask_pending_ack_log(
        self, partition: int, question: Callable[[PendingAckLog], T], deadline: Deadline, at: LogEnd | None = None
    ) -> T:
        """The same of everything in one partition of the state topic; `at` as in `LogView.ask`."""
        return self._pending_acks[partition].ask(question, deadline, at)

    def append_pending_acks(
        self, partition: int, records: Sequence[tuple[bytes, bytes | None]], deadline: Deadline
    ) -> LogEnd:
        """Append to one partition of the state topic, as one batch; gives what `LogView.append` gives."""
        return self._pending_acks[partition].append(records, deadline)

    def ask_coordinator(self, coordinator: int, question: Callable[[CoordinatorState], T], deadline: Deadline) -> T:
        """The same of a coordinator's own log, whoever serves it. Raises MappingError: there is no such coordinator."""
        number = TRANSACTION_LOG.partition_of_coordinator(coordinator)
        view = self._coordinators.get(number)
        if view is None:  # of two threads that make one the first one's counts
            made = LogView(self._log, TRANSACTION_LOG, number, partial(CoordinatorState, number), self._clock)
            view = self._coordinators.setdefault(number, made)
        return view.ask(question, deadline)
