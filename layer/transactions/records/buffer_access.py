"""A topic's readers ask its transaction buffer, and put late records on record there."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping
from typing import Final

from pyroaring import BitMap64

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.mapping.ids.txn_id import TxnId
from pulsar_on_kafka.mapping.state.state_topics import TRANSACTION_BUFFER_SNAPSHOT
from pulsar_on_kafka.statelog.api import StateLog
from pulsar_on_kafka.transactions.buffer.entries import BufferEntries
from pulsar_on_kafka.transactions.buffer.model import DataPartition
from pulsar_on_kafka.transactions.records import outcome_records
from pulsar_on_kafka.transactions.records.views import TransactionViews

_TIMEOUT_S: Final = 2.0


class BufferAccess:
    """One reader's or member's, for one topic (full name, without a partition's suffix); used by one thread."""

    def __init__(
        self, topic: str, views: TransactionViews, log: StateLog, hold_up: Callable[[Collection[TxnId]], None]
    ) -> None:
        """`hold_up` is told of open transactions that this reader waits for, see `Abandoned`."""
        self._topic = topic
        self._views = views
        self._log = log
        self.hold_up = hold_up
        self._session = secrets.token_hex(16)

    def ask(self, question: Callable[[BufferEntries], None], deadline: Deadline | None = None) -> None:
        """Put `question` to what is on record now. Without a deadline it takes 2 s at most; raises LayerErrors."""
        self._views.buffers.ask(self._topic, question, deadline or Deadline.after(_TIMEOUT_S))

    def put_on_record(self, where: DataPartition, late: Mapping[TxnId, BitMap64]) -> None:
        """Say that these records, by transaction, came after its end, and return when that is durable. Raises
        LayerErrors; a second call does no harm."""
        deadline = Deadline.after(_TIMEOUT_S)
        records = self._views.buffers.ask(
            self._topic,
            lambda entries: outcome_records.void_records(late, where, entries, self._session),
            deadline,
        )
        for partition, together in records.items():
            self._log.append_many(TRANSACTION_BUFFER_SNAPSHOT, partition, together, deadline)
