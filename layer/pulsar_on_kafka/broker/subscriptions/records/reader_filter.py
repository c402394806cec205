"""Filter of a reader: void records, transactions, chunks and compaction."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol

from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.metadata.producers.fences import Fences
from pulsar_on_kafka.broker.subscriptions.records.chunks import ChunkAssembly, ChunkRules, WholeMessage, chunk_info
from pulsar_on_kafka.broker.subscriptions.records.compaction import CompactedRange
from pulsar_on_kafka.broker.subscriptions.records.read_committed import Passed, ReadCommitted
from pulsar_on_kafka.broker.transactions.buffer.model import look_over
from pulsar_on_kafka.kafka.records import headers_of, packed_headers_of
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.records.epoch_fences import Fence
from pulsar_on_kafka_mapping.records.message_record import is_plain
from pulsar_on_kafka_mapping.records.transaction_headers import in_transaction

_log = logging.getLogger(__name__)

ReadOnceMore = Callable[[int, Sequence[int]], dict[int, Any]]
"""(partition, offsets) -> records by offset, without those that are gone; raises StoreError."""


class ReaderChunks:
    """Memory: what ChunkAssembly says of incomplete messages, for each partition."""

    def __init__(
        self, name: str, read_again: ReadOnceMore, log_end: Callable[[int], int], now_s: Callable[[], float]
    ) -> None:
        """`log_end` asks Kafka for the end of a partition's log, and may raise StoreError; `now_s` is the monotonic
        clock's."""
        self._name = name
        self._read_again = read_again
        self._log_end = log_end
        self._now_s = now_s
        self._partitions: dict[int, ChunkAssembly] = {}

    def together(self, partition: int, records: list[Any]) -> list[Any]:
        """A run of records in offset order, with whole messages in the places of their last chunks.

        Raises:
            StoreError: a message whose payload was given up could not be read again.
            TooManyIncomplete: there is no memory for a chunk.
        """
        odd = [i for i, record in enumerate(records) if not is_plain(packed_headers_of(record))]
        assembly = self._partitions.get(partition)
        if not records or (not odd and assembly is None):
            return records
        found = list(records)
        for i in odd:
            try:
                info = chunk_info(records[i])
            except CorruptRecord as reason:
                where = f"{self._name}-{partition} offset={records[i].offset()}"
                _log.error("reader=%s is skipped, it cannot be read: %s", where, reason)
                found[i] = None
                continue
            if info is None:
                continue
            if assembly is None:
                assembly = self._partitions[partition] = ChunkAssembly(ChunkRules, self._now_s)
            found[i] = self._present(partition, assembly.add(records[i].offset(), info, records[i]))
        if assembly is not None:
            assembly.known.clear()
            assembly.expire(records[-1].offset() + 1, partial(self._log_end, partition))
            assembly.take_given_up(f"{self._name}-{partition}")
        return [record for record in found if record is not None]

    def _present(self, partition: int, whole: WholeMessage | None) -> WholeMessage | None:
        if whole is None or whole.present:
            return whole
        records = self._read_again(partition, sorted(whole.offsets))
        if not all(offset in records for offset in whole.offsets):
            _log.warning("reader=%s-%d offset=%d Kafka deleted chunks before they were read", self._name, partition,
                whole.offset())  # fmt: skip
            return None
        return whole.with_chunks([records[offset] for offset in whole.offsets])

    def forget(self, partition: int) -> None:
        self._partitions.pop(partition, None)


class PutsTogether(Protocol):
    """The calls that put chunks together. Source: `ReaderChunks`."""

    def together(self, partition: int, records: list[Any], /) -> list[Any]: ...

    def forget(self, partition: int, /) -> None: ...


class Readable:
    """Everything but void records and those of transactions that are open or aborted, chunked messages put together,
    and of what was compacted what compaction leaves.

    Memory: what `ReadCommitted`, `Fences`, `ReaderChunks` and `CompactedRange` say.
    """

    def __init__(
        self,
        fences_of: Callable[[int], Iterable[Fence]],
        committed_of: Callable[[int], ReadCommitted],
        partitions: Iterable[int],
        chunks: PutsTogether,
        compacted: Mapping[int, CompactedRange] = MappingProxyType({}),
    ) -> None:
        """`fences_of` asks for the fences of a partition as they are now (see `Fences`)."""
        self._chunks = chunks
        self._fences_of = fences_of
        self._fences = {partition: Fences(fences_of(partition)) for partition in partitions}
        self._committed_of = committed_of
        self.committed: dict[int, ReadCommitted] = {}
        """Reads of partitions with transactions."""
        self._compacted = compacted

    def of(self, partition: int, records: list[Any]) -> list[Any]:
        """Returns the readable ones of a run of records in offset order, and markers. From the first record of an open
        transaction on they wait."""
        if partition not in self.committed:
            looked = look_over(range(len(records)), records)
            if not looked.met:
                return self._of(partition, records, looked.odd)
            self.committed[partition] = self._committed_of(partition)
        offsets = [record.offset() for record in records]
        passed = self.committed[partition].take(offsets, records, look_over(offsets, records), offsets[-1] + 1)
        return self._pass_on(partition, passed)

    def release(self, partition: int) -> list[Any]:
        """Returns the waiting records that are readable by what is known of transactions now."""
        committed = self.committed[partition]
        return [] if committed.waits_from is None else self._pass_on(partition, committed.release())

    def _pass_on(self, partition: int, passed: Passed) -> list[Any]:
        requested = frozenset(passed.odd)
        odd = [i for i, offset in enumerate(passed.offsets) if offset in requested]
        return self._of(partition, passed.records, odd)

    def _of(self, partition: int, records: list[Any], odd: list[int]) -> list[Any]:
        left = self._chunks.together(partition, self._valid(partition, records, odd))
        folded = self._compacted.get(partition)
        return left if folded is None else folded.remaining(left)

    def left_out(self, partition: int) -> Mapping[int, BatchAckSet]:
        """Returns the messages of batch entries, by offset, that are not delivered though their entry is."""
        folded = self._compacted.get(partition)
        return MappingProxyType({}) if folded is None else folded.parts

    def skip(self, partitions: Iterable[int]) -> None:
        """Skips the records up to where these partitions are read next."""
        for partition in partitions:
            self._fences.setdefault(partition, Fences()).add(self._fences_of(partition))

    def forget(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._chunks.forget(partition)
            if partition in self.committed:
                self.committed[partition].rewind()

    def _valid(self, partition: int, records: list[Any], odd: list[int]) -> list[Any]:
        fences = self._fences.setdefault(partition, Fences())
        if not odd and not fences:
            return records
        lost = {records[i].offset() for i in odd if not self._transaction_can_be_read(partition, records[i])}
        valid = fences.valid(records, odd)
        return [record for record in valid if record.offset() not in lost] if lost else valid

    def _transaction_can_be_read(self, partition: int, record: Any) -> bool:
        try:
            in_transaction(headers_of(record))
        except CorruptRecord as reason:
            _log.error("partition=%d offset=%d is skipped, it cannot be read: %s", partition, record.offset(), reason)
            return False
        return True
