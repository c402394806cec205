"""The entries of a partition, as they are stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.metadata.producers.fences import Fences
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.subscriptions.records.batches import is_marker
from pulsar_on_kafka.broker.transactions.buffer.model import look_over
from pulsar_on_kafka.client.receiving.start_position import TopicPositions
from pulsar_on_kafka.kafka.records import KafkaRecord
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.ids.txn_id import TxnId

_BLOCK: Final = 16
_LARGEST_BLOCK: Final = 4096


class EntryTransaction(Enum):
    """The state of the transaction that an entry was sent in."""

    NONE = "none"
    """No transaction, or a committed one."""
    OPEN = "open"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """One entry: a message, a batch, or a chunk of a message. `message_id` has no batch index."""

    message_id: NativeMessageId
    record: KafkaRecord
    transaction: EntryTransaction


class PartitionEntries:
    """The entries of one partition between the log's start and end at construction, without markers and void records.

    Memory: the records of one block, `_LARGEST_BLOCK` at most.
    """

    def __init__(self, node: Node, topic: Topic, partition: int, deadline: Deadline) -> None:
        """Raises StoreError."""
        self._node = node
        self._topic = topic
        self._partition = partition
        self._deadline = deadline
        self.start, end = node.fetcher.watermarks(topic.kafka_topic, partition, deadline)
        self.end = min(end, topic.terminated.get(partition, end))
        self._transactions = TopicPositions(node, topic).transactions(partition, deadline)  # after the end
        self._fences = Fences(node.producers.fences(topic, partition, deadline))

    def id_of(self, offset: int) -> NativeMessageId:
        """The id of the entry at an offset; the position before the first entry is earliest."""
        if offset < 0:
            return NativeMessageId.earliest
        place = self._topic.layout.position(self._partition, offset)
        return NativeMessageId(self._topic.partition_field(self._partition), *place, -1)

    def at(self, offset: int) -> StoredEntry | None:
        """None: no entry is at the offset (any more)."""
        return next(iter(self._between(offset, offset + 1)), None)

    def onwards(self, offset: int) -> Iterator[StoredEntry]:
        """The entries at and behind an offset."""
        size, position = _BLOCK, max(offset, self.start)
        while position < self.end:
            upto = min(self.end, position + size)
            yield from self._between(position, upto)
            position, size = upto, min(4 * size, _LARGEST_BLOCK)

    def backwards(self, offset: int) -> Iterator[StoredEntry]:
        """The entries at and before an offset, the last one first."""
        size, end = _BLOCK, min(offset + 1, self.end)
        while end > self.start:
            start = max(self.start, end - size)
            yield from reversed(self._between(start, end))
            end, size = start, min(4 * size, _LARGEST_BLOCK)

    def unacknowledged(self, state: CursorState, offset: int) -> Iterator[StoredEntry]:
        """The unacknowledged entries of a cursor at and behind an offset."""
        size, position = _BLOCK, state.deleted.first_gap(max(offset, self.start, state.next_unacked))
        while position < self.end:
            upto = min(self.end, position + size)
            for entry in self._between(position, upto):
                if not state.is_acknowledged(entry.record.offset()):
                    yield entry
            position, size = state.deleted.first_gap(upto), min(4 * size, _LARGEST_BLOCK)

    def committed(self, start: int, end: int, deadline: Deadline) -> list[KafkaRecord]:
        """The records of entries in [start, end) that are in no transaction, or in a committed one."""
        read = self._read(start, end, deadline)
        return [record for record, state in read if state is EntryTransaction.NONE]

    def _between(self, start: int, end: int) -> list[StoredEntry]:
        read = self._read(start, end, self._deadline)
        return [StoredEntry(self.id_of(record.offset()), record, state) for record, state in read]

    def _read(self, start: int, end: int, deadline: Deadline) -> list[tuple[KafkaRecord, EntryTransaction]]:
        start, end = max(start, self.start), min(end, self.end)
        if start >= end:
            return []
        kafka_topic, partition = self._topic.kafka_topic, self._partition
        read = list(chain(*self._node.fetcher.read(kafka_topic, partition, start, end, deadline)))
        looked = look_over([record.offset() for record in read], read)
        txns = {offset: met.txn for met in looked.met for offset in met.offsets()}
        return [
            (record, state)
            for record in self._fences.valid(read, range(len(read)) if looked.odd else ())
            if not is_marker(record) and (state := self._state(record.offset(), txns.get(record.offset()))) is not None
        ]

    def _state(self, offset: int, txn: TxnId | None) -> EntryTransaction | None:
        """None: the record is void."""
        snapshot = self._transactions
        if snapshot is None:
            return EntryTransaction.NONE
        if txn is not None and txn in snapshot.open_bounds:
            return EntryTransaction.OPEN
        if txn is not None and (offset in snapshot.excluded or txn in snapshot.unsealed):
            return EntryTransaction.ABORTED
        return None if offset in snapshot.excluded else EntryTransaction.NONE
