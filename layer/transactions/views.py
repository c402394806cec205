"""What is on record of transactions in buffers and pending acks, as this process last read it, for everybody in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from layer.clock import Clock
from layer.deadline import Deadline
from layer.statelog.api import StateLog
from layer.statelog.view import LogView
from layer.transactions.buffer.entries import BufferEntries
from layer.transactions.pending_acks.log import PendingAckLog
from mapping.state_topics import TRANSACTION_BUFFER_SNAPSHOT, TRANSACTION_PENDING_ACK

T = TypeVar("T")


class TransactionViews:
    """Thread-safe; a partition is read from its beginning when it is asked for first.

    Memory: what `BufferEntries` and `PendingAckLog` say, of those partitions of the two topics that were asked for.
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

    def ask_buffer(self, topic: str, question: Callable[[BufferEntries], T], deadline: Deadline) -> T:
        """Put `question` to what is on record of all transactions in `topic` (full name, without a partition's
        suffix), at an end that was asked for after this call was made. Raises as `LogView.ask`."""
        return self._buffers[TRANSACTION_BUFFER_SNAPSHOT.partition_for(topic)].ask(question, deadline)

    def ask_pending_acks(self, topic: str, question: Callable[[PendingAckLog], T], deadline: Deadline) -> T:
        """The same of what open transactions hold on the topic's subscriptions."""
        return self._pending_acks[TRANSACTION_PENDING_ACK.partition_for(topic)].ask(question, deadline)
