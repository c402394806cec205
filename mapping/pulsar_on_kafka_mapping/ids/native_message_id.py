"""`NativeMessageId` stands for the message id of the official client's C extension, which `producer.send`,
`message.message_id()` and `MessageId.deserialize` give. It is unhashable, as officially, and compares also with the
official `MessageId`, which is a class around one.
"""

from __future__ import annotations

from functools import total_ordering
from operator import index
from typing import ClassVar, Final

from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.ids.message_id import FirstChunk, decode_message_id, encode_message_id

_LATEST: Final = 9_223_372_036_854_775_807


@total_ordering
class NativeMessageId:
    """Ledger id, entry id, partition (-1 on a non-partitioned topic), batch index (-1 outside of a batch)."""

    __slots__ = ("_batch_index", "_batch_size", "_entry_id", "_first_chunk", "_ledger_id", "_partition", "_topic")

    earliest: ClassVar[NativeMessageId]
    latest: ClassVar[NativeMessageId]

    def __init__(self, partition: int, ledger_id: int, entry_id: int, batch_index: int) -> None:
        self._partition = index(partition)
        self._ledger_id = index(ledger_id)
        self._entry_id = index(entry_id)
        self._batch_index = index(batch_index)
        self._batch_size = 0
        self._first_chunk: FirstChunk | None = None
        self._topic = ""

    def ledger_id(self) -> int:
        return self._ledger_id

    def entry_id(self) -> int:
        return self._entry_id

    def partition(self) -> int:
        return self._partition

    def batch_index(self) -> int:
        return self._batch_index

    def batch_size(self) -> int:
        """The number of messages of the batch; 0 when the id does not contain it. Not in the official client."""
        return self._batch_size

    def first_chunk(self) -> FirstChunk | None:
        """The beginning of a message that was sent in chunks: the id itself is its last chunk's. Not in the official
        client."""
        return self._first_chunk

    def topic_name(self, name: str) -> None:
        """Set the topic this id belongs to (it is not part of the serialized form)."""
        self._topic = name

    def topic_of_message(self) -> str:
        """The topic of this id, '' when the id has none; not in the official client, for consumers of several
        topics."""
        return self._topic

    def in_batch(self, batch_index: int, batch_size: int) -> NativeMessageId:
        """The id of one message of the batch entry that this one names; ours."""
        made = NativeMessageId(self.partition(), self.ledger_id(), self.entry_id(), batch_index)
        made._batch_size = batch_size
        made._topic = self.topic_of_message()
        return made

    def serialize(self) -> bytes:
        """The same bytes as the official client's."""
        return encode_message_id(
            self.ledger_id(), self.entry_id(), self.partition(), self.batch_index(), self._batch_size, self._first_chunk
        )

    @staticmethod
    def deserialize(message_id_bytes: bytes) -> NativeMessageId:
        """Raises ValueError (as the official client does) when the bytes are no message id."""
        if not isinstance(message_id_bytes, bytes):
            raise ValueError(f"a message id is made of bytes, got {type(message_id_bytes).__name__}")
        parts = decode_message_id(message_id_bytes)
        made = NativeMessageId(parts.partition, parts.ledger_id, parts.entry_id, parts.batch_index)
        made._batch_size = parts.batch_size
        made._first_chunk = parts.first_chunk
        return made

    def _order(self) -> tuple[int, int, int, int]:
        return self.ledger_id(), self.entry_id(), self.batch_index(), self.partition()

    def __eq__(self, other: object) -> bool:
        their = _order_of(other)
        return NotImplemented if their is None else self._order() == their

    def __lt__(self, other: object) -> bool:
        their = _order_of(other)
        return NotImplemented if their is None else self._order() < their

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        text = f"({self.ledger_id()},{self.entry_id()},{self.partition()},{self.batch_index()})"
        first = self.first_chunk()
        return text if first is None else f"({first.ledger_id},{first.entry_id},{self.partition()},-1);{text}"

    __repr__ = __str__


class PartitionOrigin:
    """The origin of a partition's records has what their ids have in common. `partition` is -1 on a non-partitioned
    topic."""

    __slots__ = ("layout", "partition", "topic")

    def __init__(self, layout: LedgerLayout, partition: int, topic: str) -> None:
        self.layout = layout
        self.partition = partition
        self.topic = topic


class StoredMessageId(NativeMessageId):
    """The id of the record at an offset. Computes ledger and entry on demand: most ids never need them."""

    __slots__ = ("_offset", "_origin")

    def __init__(self, origin: PartitionOrigin, offset: int) -> None:
        self._origin = origin
        self._offset = offset

    def ledger_id(self) -> int:
        origin = self._origin
        return origin.layout.position(max(0, origin.partition), self._offset)[0]

    def entry_id(self) -> int:
        return self._offset % self._origin.layout.entries_per_ledger

    def partition(self) -> int:
        return self._origin.partition

    def batch_index(self) -> int:
        return -1

    def batch_size(self) -> int:
        return 0

    def first_chunk(self) -> FirstChunk | None:
        return None

    @property
    def layout(self) -> LedgerLayout:
        """The layout of the topic's incarnation of this id; not in the official client."""
        return self._origin.layout

    def topic_name(self, name: str) -> None:
        self._origin = PartitionOrigin(self._origin.layout, self._origin.partition, name)

    def topic_of_message(self) -> str:
        return self._origin.topic

    def serialize(self) -> bytes:
        return encode_message_id(self.ledger_id(), self.entry_id(), self.partition())


class BatchedMessageId(StoredMessageId):
    """The id of one message of a batch entry: batch index 0 to `batch_size` - 1."""

    __slots__ = ()

    def __init__(self, origin: PartitionOrigin, offset: int, batch_index: int, batch_size: int) -> None:
        self._origin = origin
        self._offset = offset
        self._batch_index = batch_index
        self._batch_size = batch_size

    def batch_index(self) -> int:
        return self._batch_index

    def batch_size(self) -> int:
        return self._batch_size

    def serialize(self) -> bytes:
        return encode_message_id(
            self.ledger_id(), self.entry_id(), self.partition(), self._batch_index, self._batch_size
        )


class ChunkedMessageId(StoredMessageId):
    """The id of a message that was sent in chunks: its last one's, with the first one's at hand."""

    __slots__ = ("_first_offset",)

    def __init__(self, origin: PartitionOrigin, first_offset: int, last_offset: int) -> None:
        super().__init__(origin, last_offset)
        self._first_offset = first_offset

    def first_chunk(self) -> FirstChunk | None:
        origin = self._origin
        return FirstChunk(*origin.layout.position(max(0, origin.partition), self._first_offset))

    def serialize(self) -> bytes:
        return encode_message_id(self.ledger_id(), self.entry_id(), self.partition(), first_chunk=self.first_chunk())


NativeMessageId.earliest = NativeMessageId(-1, -1, -1, -1)
NativeMessageId.latest = NativeMessageId(-1, _LATEST, _LATEST, -1)


def _order_of(other: object) -> tuple[int, int, int, int] | None:
    their = getattr(other, "_msg_id", other)  # the official `MessageId` is a class around one
    return their._order() if isinstance(their, NativeMessageId) else None
