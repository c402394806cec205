"""A journal records the written micro-batches of a stream: one small topic for each stream, written in the same
transactions.

The first record of a batch's transaction is one in the journal: `{"stream": id, "batch": number}`. So the batch counts
as written exactly when its messages are visible, and no transaction of a batch can ever be committed without its record
there. Two drivers may both run the same stream (one was paused, and taken for dead). Log order decides: after appending
its record, a driver reads those before it and ends their transactions, if they are still open. So of two for the same
batch the later one finds the earlier one committed, and skips the batch, or aborts it, and the earlier one's commit is
refused.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from pulsar_on_kafka.base.deadline import Deadline, wait_until
from pulsar_on_kafka.base.errors import Corrupt, InvalidTxnStatus, LayerError, TransactionNotFound
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.transactions.buffer.entries import BufferEntries, TxnEntryStatus
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition
from pulsar_on_kafka.broker.transactions.client_transaction import ClientTransaction
from pulsar_on_kafka.kafka.appends import NewRecord, append_all
from pulsar_on_kafka.kafka.records import headers_of
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.records.record_headers import TXN
from pulsar_on_kafka_mapping.records.transaction_headers import in_transaction

_log: Final = logging.getLogger(__name__)


class MicroBatch(NamedTuple):
    """A micro-batch has a number; `stream` is Spark's id of the stream's checkpoint, '' where there is none."""

    stream: str
    number: int


class _Noted(NamedTuple):
    txn: TxnId
    batch: MicroBatch
    offset: int


class BatchJournal:
    """The driver keeps the journal. Memory: the records since the last batch that was written, a few."""

    def __init__(self, node: Node, beside: TopicName, query: str, deadline: Deadline) -> None:
        """The journal is a topic in the namespace of `beside`, made when it does not exist. Raises LayerError."""
        self._node = node
        self.name = TopicName.parse(f"{beside.domain}://{beside.namespace_name}/{query}-spark-batches")
        self._topic: Topic = node.topics.open(self.name, deadline)
        node.producers.marked(self._topic, deadline)
        self._where = DataPartition(str(self.name.base), 0, self._topic.layout.incarnation)

    def written(self, stream: str, deadline: Deadline) -> int | None:
        """The last batch of the stream that was written; None where none is known. Raises LayerError."""
        return self._last_written(stream, self._end(deadline), deadline)

    def enter(self, txn: ClientTransaction, batch: MicroBatch, deadline: Deadline) -> int | None:
        """Records the batch in its transaction, before anything else is written in it, and ends all others. Returns the
        offset of the record; None when the batch was written before, and the transaction is to be aborted.

        Raises:
            LayerError: the outcome is unknown; the transaction is to be aborted.
        """
        txn.register_partition(str(self.name.base), 0, deadline)
        value = json.dumps({"stream": batch.stream, "batch": batch.number}).encode()
        stamp_ms = self._node.clock.now_ms()  # before the time is checked: see TransactionalSend.stamp
        if txn.remaining_ms() <= 0:
            raise InvalidTxnStatus(f"transaction {txn.id} has timed out")
        record = NewRecord(None, value, [(TXN, txn.id.to_bytes())], stamp_ms)
        (offset,) = append_all(self._node.state_producer, self._topic.kafka_topic, 0, [record], deadline)
        for other in self._noted(offset, deadline):
            self._end_other(other.txn, deadline)
        last = self._last_written(batch.stream, offset, deadline)
        return offset if last is None or last < batch.number else None

    def forget_before(self, offset: int, deadline: Deadline) -> None:
        """Remove what stands before a record of a batch that was committed. What cannot be removed now is so after the
        next one."""
        try:
            self._node.topics.removals.delete_records(self._topic, {0: offset}, deadline)
        except LayerError as failure:
            _log.info("journal=%s is shortened later: %s", self.name, failure)

    def _end(self, deadline: Deadline) -> int:
        return self._node.admin.end_offsets(self._topic.kafka_topic, [0], deadline)[0]

    def _end_other(self, txn: TxnId, deadline: Deadline) -> None:
        with suppress(InvalidTxnStatus, TransactionNotFound):  # it was ended before
            self._node.transactions.end(txn, commit=False, deadline=deadline)

    def _last_written(self, stream: str, before: int, deadline: Deadline) -> int | None:
        return max(
            (
                noted.batch.number
                for noted in self._noted(before, deadline)
                if noted.batch.stream == stream and self._is_committed(noted, deadline)
            ),
            default=None,
        )

    def _is_committed(self, noted: _Noted, deadline: Deadline) -> bool:
        """Once the transaction is over."""
        found: list[TxnEntryStatus] = []

        def over() -> bool:
            found[:] = [self._status(noted, deadline)]
            return found[0] is not TxnEntryStatus.OPEN

        if not wait_until(over, deadline):
            deadline.check(f"transaction {noted.txn} of batch {noted.batch.number} to end")
        return found[0] is TxnEntryStatus.COMMITTED

    def _status(self, noted: _Noted, deadline: Deadline) -> TxnEntryStatus:
        def status_in(entries: BufferEntries) -> TxnEntryStatus:
            if noted.offset in entries.void(self._where, noted.txn):
                return TxnEntryStatus.ABORTED
            return entries.status(self._where, noted.txn)

        return self._node.transaction_views.buffers.query(self._where.topic, status_in, deadline)

    def _noted(self, before: int, deadline: Deadline) -> list[_Noted]:
        return list(self._read(before, deadline))

    def _read(self, before: int, deadline: Deadline) -> Iterator[_Noted]:
        kafka_topic = self._topic.kafka_topic
        start = self._node.admin.start_offsets(kafka_topic, [0], deadline)[0]
        if start >= before:
            return
        for run in self._node.fetcher.read(kafka_topic, 0, start, before, deadline):
            for record in run:
                if record.offset() >= before:
                    continue
                named = in_transaction(headers_of(record))
                if named is not None and named.ended is None:
                    yield _Noted(named.txn, self._batch(record.value(), record.offset()), record.offset())

    def _batch(self, value: bytes | None, offset: int) -> MicroBatch:
        try:
            found = json.loads(value or b"")
            return MicroBatch(str(found["stream"]), int(found["batch"]))
        except (ValueError, KeyError, TypeError) as error:
            raise Corrupt(f"{self.name} at offset {offset} holds {value!r:.80}, expected a batch: {error!r}") from error
