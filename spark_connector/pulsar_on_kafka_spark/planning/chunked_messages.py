"""Assembles chunks of a partition into whole messages. Pure.

The rules are those of readers (`subscriptions.records.chunks`), applied to headers instead of records: a message exists
when all its chunks do, each unacknowledged, and its place is that of the last one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final, NamedTuple

from pyroaring import BitMap64

from pulsar_on_kafka.broker.subscriptions.records.chunks import ChunkAssembly
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.records.message_record import ChunkInfo, decode_headers
from pulsar_on_kafka_mapping.records.record_headers import CHUNK
from pulsar_on_kafka_spark.base.errors import NotReadable

MAX_CHUNKS: Final = 500_000
"""Chunks that one read looks at: some 300 MB of the driver's memory. Messages of 5 MiB chunks: 2.5 TB."""


Chunks = Mapping[int, ChunkInfo | None]
"""Chunk headers by offset; None for an unreadable one."""


class WholeChunkedMessage(NamedTuple):
    """A message is complete: its chunks' offsets in their order, and the bytes that they have together."""

    offsets: tuple[int, ...]
    total_bytes: int


@dataclass(frozen=True, slots=True)
class ChunkedMessages:
    """A partition holds these messages in chunks. `parts` has the offsets of all chunks; `messages` the complete ones
    by their last chunk's offset; `pending` the chunks of those that may become complete with what comes later."""

    parts: BitMap64 = field(default_factory=BitMap64)
    messages: Mapping[int, WholeChunkedMessage] = field(default_factory=dict)
    pending: BitMap64 = field(default_factory=BitMap64)

    def __bool__(self) -> bool:
        return bool(self.parts)

    def places(self, offsets: BitMap64) -> BitMap64:
        """The places of messages among these records' offsets: each whole one lies at its last chunk."""
        return (offsets - self.parts) | (offsets & BitMap64(self.messages))

    def without_place(self) -> BitMap64:
        """Chunks that are of no complete message."""
        return self.parts - BitMap64(offset for each in self.messages.values() for offset in each.offsets)


def put_together(chunks: Iterable[tuple[int, ChunkInfo]]) -> ChunkedMessages:
    """The messages of chunks of one partition, by ascending offset and without gaps in the list."""
    assembly = ChunkAssembly()
    parts, messages = BitMap64(), {}
    given_up = BitMap64()
    for offset, info in chunks:
        parts.add(offset)
        whole = assembly.add(offset, info, None)
        if whole is not None:
            messages[whole.offset()] = WholeChunkedMessage(tuple(whole.offsets), whole.total_bytes)
        if assembly.given_up:
            given_up.update(offset for each in assembly.given_up for offset in each.offsets)
            assembly.given_up.clear()
    found = ChunkedMessages(parts, messages)
    return ChunkedMessages(parts, messages, found.without_place() - given_up)


def read_chunk(header: str) -> ChunkInfo | None:
    """The decoded header of a chunk; None when it cannot be read: consumers skip such a record."""
    try:
        return decode_headers([(CHUNK, header.encode())]).chunk
    except CorruptRecord:
        return None


class KnownChunks:
    """Chunks that were found of one partition so far are kept, so that no offset is looked at twice.

    Memory: a bitmap of the offsets that were looked at, and 200 bytes for each chunk among those that still matter.
    """

    def __init__(self) -> None:
        self._looked = BitMap64()
        self._chunks: dict[int, ChunkInfo | None] = {}

    def unknown(self, offsets: BitMap64) -> BitMap64:
        """The offsets that were not examined. Forgets the results for others than `offsets`."""
        self._looked &= offsets
        self._chunks = {offset: info for offset, info in self._chunks.items() if offset in offsets}
        return offsets - self._looked

    def learn(self, looked: BitMap64, chunks: Chunks) -> None:
        """Raises NotReadable: they are more than `MAX_CHUNKS`."""
        self._looked |= looked
        self._chunks.update(chunks)
        check_count(self._chunks)

    def together(self) -> ChunkedMessages:
        return all_together(self._chunks)


def all_together(chunks: Chunks) -> ChunkedMessages:
    """`put_together` of what was found; what cannot be read is part of no message."""
    found = put_together(
        (offset, info) for offset, info in sorted(chunks.items(), key=itemgetter(0)) if info is not None
    )
    unreadable = BitMap64(offset for offset, info in chunks.items() if info is None)
    return ChunkedMessages(found.parts | unreadable, found.messages, found.pending)


def check_count(chunks: Sequence[object] | Mapping[int, object]) -> None:
    """Raises NotReadable when there are more than `MAX_CHUNKS`."""
    if len(chunks) > MAX_CHUNKS:
        raise NotReadable(
            f"the read has more than {MAX_CHUNKS} chunks of messages; read a part of it (startingOffsets, "
            "endingOffsets, or single partitions; in a stream maxOffsetsPerTrigger)"
        )
