"""Compacted reading: of what lay in the topic at its last compaction, only the newest message of each key.

Kafka's compaction is never on for data topics (other subscriptions need every message), so a compacted read folds: one
pass over the log finds the newest message of every key, the reading itself then leaves the others out. What was sent
after the last `AdminClient.compact` is delivered as it comes. Below it, messages without a key are left out; a newest
message without a payload stays, but inside of a batch it takes its key with it. With the policy
`compaction_empty_payloads` of 5 it always does. Void records count for nothing. Source: Pulsar 4.0.7 as observed;
RawBatchConverter.rebatchMessage; AbstractTwoPhaseCompactor.extractKeyAndSize, 5.0.1.

A batch entry whose messages cannot be read (encrypted, of a later version, corrupt) stays whole, and supersedes
nothing.

Differs from Pulsar: the C++ client delivers an empty message in the place of each one that compaction took out of a
batch; here, as with the Java client, nothing comes in its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyroaring import BitMap64

from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.metadata.producers.fences import Fences
from pulsar_on_kafka.broker.subscriptions.records.batches import batch_size, is_batch, is_marker, messages_in
from pulsar_on_kafka.broker.subscriptions.records.chunks import ChunkAssembly, ChunkRules, chunk_info
from pulsar_on_kafka.broker.subscriptions.records.decryption import is_encrypted
from pulsar_on_kafka.kafka.records import packed_headers_of
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.records.batch_entry import EntryMessages
from pulsar_on_kafka_mapping.records.message_record import is_plain


class CompactedRange:
    """The newest messages of a partition's offsets below `end` (exclusive).

    Memory: a key and a place for each key while the log is read, then one bit or less for each entry that stays, and
    one bit for each message of a batch of which only a part does.
    """

    def __init__(self, end: int, fences: Fences | None = None, *, empty_removes_key: bool = False) -> None:
        """`fences`: those of the partition as it is now. `empty_removes_key`: a newest message without a payload
        removes its key also outside of a batch."""
        self.end = end
        self.parts: Mapping[int, BatchAckSet] = {}
        """The removed messages of batch entries that stay in part, by offset."""
        self._fences = fences or Fences()
        self._empty_removes_key = empty_removes_key
        self._newest: dict[bytes, int | tuple[int, int]] = {}
        """By key: the offset of a message, or of its batch entry and its index there."""
        self._sizes: dict[int, int] = {}
        self._chunks = ChunkAssembly(lambda: ChunkRules(max_pending=0))
        self._stays = BitMap64()

    def fold(self, records: Sequence[Any]) -> None:
        newest = self._newest
        odd = {i for i, record in enumerate(records) if not is_plain(packed_headers_of(record))}
        if odd or self._fences:
            records = self._fences.valid(list(records), odd)
        for record in records:
            if not is_plain(packed_headers_of(record)):
                if is_marker(record):
                    continue
                if is_batch(record):
                    self._fold_batch(record)
                    continue
                if not self._ends_here(record):
                    continue
            key = record.key()
            if key is None:
                continue
            if self._empty_removes_key and not record.value():
                newest.pop(key, None)
            else:
                newest[key] = record.offset()

    def _ends_here(self, record: Any) -> bool:
        """Whether this is a message, or the last chunk of a complete one: an incomplete one supersedes nothing."""
        try:
            info = chunk_info(record)
        except CorruptRecord:  # its reader reports that
            return True
        whole = None if info is None else self._chunks.add(record.offset(), info, None)
        self._chunks.given_up.clear()
        return info is None or whole is not None

    def _fold_batch(self, record: Any) -> None:
        offset = record.offset()
        columns = _columns(record)
        if columns is None:
            self._stays.add(offset)
            return
        self._sizes[offset] = len(columns)
        for index in range(len(columns)):
            key = columns.message(index).key
            if key is None:
                continue
            if columns.payload(index):
                self._newest[key] = (offset, index)
            else:
                self._newest.pop(key, None)

    def seal(self) -> None:
        """All below the end was looked at."""
        left: dict[int, int] = {}
        for place in self._newest.values():
            if isinstance(place, int):
                self._stays.add(place)
            else:
                offset, index = place
                left[offset] = left.get(offset, 0) | 1 << index
        self._stays.update(left)
        everything = {offset: (1 << self._sizes[offset]) - 1 for offset in left}
        self.parts = {
            offset: BatchAckSet(self._sizes[offset], everything[offset] & ~bits)
            for offset, bits in left.items()
            if bits != everything[offset]
        }
        self._newest, self._sizes = {}, {}
        self._chunks.clear()

    def remaining(self, records: Sequence[Any]) -> list[Any]:
        """Returns those of a run of records that a compacted read delivers; ignores markers. See `parts`."""
        end, stays = self.end, self._stays
        if records and records[0].offset() >= end:
            return list(records)
        return [record for record in records if record.offset() >= end or record.offset() in stays]


def _columns(record: Any) -> EntryMessages | None:
    """The messages of a batch entry; None when they cannot be read."""
    value = record.value()
    if value is None or is_encrypted(record):
        return None
    try:
        return messages_in(record, value, batch_size(record))
    except CorruptRecord:
        return None
