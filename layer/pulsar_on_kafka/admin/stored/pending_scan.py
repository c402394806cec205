"""Pending messages are those of a partition that some subscription has not acknowledged. A scan finds them in Kafka."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyroaring import BitMap64

from pulsar_on_kafka.admin.stored.message_filter import Match, MessageFilter, NamedMessages, headers_by_name
from pulsar_on_kafka.admin.stored.partition_entries import PartitionEntries
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.subscriptions.records.chunks import chunk_info
from pulsar_on_kafka.kafka.records import KafkaRecord
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.ids.native_message_id import ChunkedMessageId, NativeMessageId, PartitionOrigin
from pulsar_on_kafka_mapping.records.message_record import ChunkInfo
from pulsar_on_kafka_mapping.records.record_headers import CHUNK

_BLOCK: Final = 4096
"""Offsets that are read at once."""
_MAX_INCOMPLETE: Final = 1000
"""Chunked messages without their last chunk that a scan remembers; those with the oldest chunks are forgotten."""


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message that some subscriptions have not acknowledged, as their cursors were last saved.

    Times are Unix times in ms. `deliver_at_ms` is 0 without a delivery time; `key` is '' without one, and for a message
    of an encrypted batch.
    """

    message_id: NativeMessageId
    publish_time_ms: int
    deliver_at_ms: int
    key: str
    subscriptions: tuple[str, ...]
    """Those that have not acknowledged it, by name."""


@dataclass(frozen=True, slots=True)
class PendingMessage:
    """A found message, and the offsets of its records: several for a message in chunks."""

    found: FoundMessage
    partition: int
    offsets: Sequence[int]
    index: int
    size: int


class FoundAcks:
    """Acknowledgements of pending messages by partition: whole entries, and messages of batches by offset. Memory: a
    compressed bitmap, and an entry for each batch."""

    def __init__(self) -> None:
        self.whole: dict[int, BitMap64] = {}
        self.batches: dict[int, dict[int, tuple[int, int]]] = {}
        self.messages = 0
        """A message in chunks counts as its chunks."""

    def add(self, message: PendingMessage) -> None:
        if message.size:
            batches = self.batches.setdefault(message.partition, {})
            bits = batches.get(message.offsets[0], (message.size, 0))[1]
            batches[message.offsets[0]] = (message.size, bits | 1 << message.index)
            self.messages += 1
        else:
            self.whole.setdefault(message.partition, BitMap64()).update(message.offsets)
            self.messages += len(message.offsets)

    def of(self, partition: int) -> tuple[BitMap64, dict[int, tuple[int, int]]]:
        return self.whole.get(partition, BitMap64()), self.batches.get(partition, {})

    def partitions(self) -> list[int]:
        return sorted({*self.whole, *self.batches})


@dataclass(slots=True)
class _Chunks:
    """The chunks of messages that have not ended yet, by uuid."""

    offsets: OrderedDict[str, list[int]] = field(default_factory=OrderedDict)

    def whole(self, offset: int, info: ChunkInfo) -> list[int] | None:
        """All offsets of a message, at its last chunk; None for any other chunk, and where an earlier one is
        missing."""
        if info.chunk_id == 0:
            self.offsets[info.uuid] = [offset]
            if len(self.offsets) > _MAX_INCOMPLETE:
                self.offsets.popitem(last=False)
        elif len(known := self.offsets.get(info.uuid, ())) == info.chunk_id:
            self.offsets[info.uuid] = [*known, offset]
        if info.chunk_id + 1 < info.chunks:
            return None
        found = self.offsets.pop(info.uuid, [])
        return found if len(found) == info.chunks else None


class PendingScan:
    """A scan of one partition, from its oldest unacknowledged message to the log's end at construction.

    Messages of open and of aborted transactions are passed over. Memory: the cursors, 4,096 records, and the offsets of
    1,000 incomplete messages in chunks.
    """

    def __init__(
        self,
        topic: Topic,
        partition: int,
        entries: PartitionEntries,
        cursors: Mapping[str, CursorState],
        requested: MessageFilter,
        named: NamedMessages | None,
        deadline: Callable[[], Deadline],
    ) -> None:
        """`cursors` by subscription. `named`: only these messages. `deadline`: of the next block."""
        self._topic = topic
        self._partition = partition
        self._entries = entries
        self._cursors = cursors
        self._filter = requested
        self._named = named
        self._deadline = deadline
        self._origin = PartitionOrigin(topic.layout, topic.partition_field(partition), str(topic.name))
        self._chunks = _Chunks()
        self._without_beginning = NamedMessages()

    def __iter__(self) -> Iterator[PendingMessage]:
        """Raises StoreError: a block was not read in time."""
        start, end = self._entries.start, self._entries.end
        if self._named is None:
            yield from self._between(start, end)
            return
        for first, last in _blocks(self._named.ranges()):
            yield from self._between(max(start, first), min(end, last + 1))
        left = self._without_beginning.ranges()  # ids that do not name the first chunk
        if left:
            self._named, self._chunks = self._without_beginning, _Chunks()
            yield from self._between(start, min(end, left[-1][1] + 1))

    def _between(self, start: int, end: int) -> Iterator[PendingMessage]:
        position = start
        while position < end:
            gaps = [state.deleted.first_gap(max(position, state.next_unacked)) for state in self._cursors.values()]
            position = min(gaps, default=end)
            upto = min(end, position + _BLOCK)
            if position < upto:
                yield from self._block(position, upto)
            position = upto

    def _block(self, start: int, end: int) -> Iterator[PendingMessage]:
        left = {name: state.unacknowledged(start, end) for name, state in self._cursors.items()}
        pending = BitMap64().union(*left.values())
        if not pending:
            return
        first, last = int(pending.min()), int(pending.max())
        for record in self._entries.committed(first, last + 1, self._deadline()):
            if record.offset() in pending:
                yield from self._of(record, left)

    def _of(self, record: KafkaRecord, pending: Mapping[str, BitMap64]) -> Iterator[PendingMessage]:
        offset, offsets = record.offset(), [record.offset()]
        named = self._named is None or offset in self._named
        headers = headers_by_name(record)
        try:
            info = chunk_info(record) if CHUNK in headers else None
        except CorruptRecord:
            return  # a consumer skips it, and reports it
        if info is not None:
            whole = self._chunks.whole(offset, info)
            if whole is None:
                if named and self._named is not None and info.chunk_id + 1 == info.chunks:
                    self._without_beginning.add(offset, -1)
                return
            offsets = whole
        if not named:
            return
        indexes = None if self._named is None else self._named.indexes(offset)
        for match in self._filter.matches(record, headers, indexes):
            left = [
                name
                for name, unacked in pending.items()
                if offset in unacked and not self._has_acknowledged(name, offset, match)
            ]
            if left:
                found = FoundMessage(
                    self._id(offsets, match), record.timestamp()[1], match.deliver_at_ms, match.key, tuple(left)
                )
                yield PendingMessage(found, self._partition, offsets, match.index, match.size)

    def _has_acknowledged(self, name: str, offset: int, match: Match) -> bool:
        acked = self._cursors[name].batches.get(offset) if match.size else None
        return acked is not None and bool(acked.acked >> match.index & 1)

    def _id(self, offsets: Sequence[int], match: Match) -> NativeMessageId:
        if len(offsets) > 1:
            chunked = ChunkedMessageId(self._origin, offsets[0], offsets[-1])
            return NativeMessageId.deserialize(chunked.serialize())
        entry = self._entries.id_of(offsets[0])
        return entry.in_batch(match.index, match.size) if match.size else entry


def _blocks(ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Ascending ranges, both ends inclusive, with near ones together: they are read in one go."""
    first, last = -1, -1
    for begin, end in ranges:
        if first >= 0 and begin - last > _BLOCK:
            yield first, last
            first = -1
        first, last = (begin if first < 0 else first), max(last, end)
    if first >= 0:
        yield first, last
