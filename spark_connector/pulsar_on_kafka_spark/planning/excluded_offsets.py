"""Excluded offsets of a partition become blocks of bits, which Spark tests (`record_filters`). Pure.

A block is 65,536 offsets: 1,024 words of 64 bits, of which only those from the first to the last that is not 0 are
kept. It is the unit of roaring bitmaps, too: a container of their portable format (RoaringFormatSpec) holds the offsets
of one block, as a bitmap, as sorted numbers or as runs.

    bitmap      = cookie u32 (12346), count u32 | 12347 u16, count - 1 u16, a bit for each container that holds runs
                | (block u16, members - 1 u16) for each container
                | place u32 for each container, unless the cookie is 12347 and there are fewer than 4
                | containers
    container   = 8,192 bytes, when there are more than 4,096 members | member u16* | runs u16, (start u16, more u16)*
    64 bits     = count u64, (upper half u32, bitmap)*

all little endian.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from struct import iter_unpack, pack, unpack, unpack_from
from typing import Final

from pyroaring import BitMap, BitMap64

from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka_spark.base.errors import NotReadable
from pulsar_on_kafka_spark.planning.offset_ranges import Range

BLOCK_BITS: Final = 16
BLOCK: Final = 1 << BLOCK_BITS
SLOT_BITS: Final = 40
"""A block's key is `partition << 40 | block`."""
MAX_BLOCKS: Final = 16_384
"""Touched blocks of a topic: 1,073,741,824 offsets where they lie densely. A touched block takes 9 kB of the driver's
memory, and its words some 40 kB more while they are handed to Spark: 800 MB at most."""

_ALL: Final = (1 << BLOCK) - 1
_BITMAP_BYTES: Final = BLOCK // 8
_PLAIN_COOKIE: Final = 12_346
_RUN_COOKIE: Final = 12_347
_PLACES_FROM: Final = 4
_MAX_LISTED: Final = 4_096
_WORD_BYTES: Final = 8


@dataclass(slots=True)
class ExcludedOffsets:
    """A partition excludes these offsets. Bit i of a block's number stands for its offset i.

    Memory: 9 kB for each block that is touched.
    """

    blocks: dict[int, int] = field(default_factory=dict)
    batches: dict[int, BatchAckSet] = field(default_factory=dict)
    """The excluded messages of batch entries that are not excluded as a whole, by offset."""

    def add(self, base: int, members: BitMap) -> None:
        """Exclude `base` plus each member, all of them below 2^32 - 65,536."""
        if members:
            self._merge(base >> BLOCK_BITS, members.shift(base & (BLOCK - 1)).serialize())

    def add_all(self, members: BitMap64) -> None:
        data = members.serialize() if members else b""
        at = 8
        while at < len(data):
            (upper,) = unpack_from("<I", data, at)
            at = self._merge(upper << 32 - BLOCK_BITS, data, at + 4)

    def _merge(self, first_block: int, data: bytes, at: int = 0) -> int:
        """Take in a serialized bitmap; gives the place behind it."""
        containers = list(_containers(data, at))
        for key, bits, end in containers:
            block = first_block + key
            self.blocks[block] = self.blocks.get(block, 0) | bits
            at = end
        return at

    def __contains__(self, offset: int) -> bool:
        return bool(self.blocks.get(offset >> BLOCK_BITS, 0) >> (offset & BLOCK - 1) & 1)

    def __bool__(self) -> bool:
        return bool(self.blocks or self.batches)

    def count_left(self, whole: Range) -> int:
        """The number of offsets of a range that are not excluded."""
        left = whole.length
        for block, bits in self.blocks.items():
            start = max(whole.start - (block << BLOCK_BITS), 0)
            end = min(whole.end - (block << BLOCK_BITS), BLOCK)
            if start < end:
                left -= (bits >> start & (1 << end - start) - 1).bit_count()
        return left

    def clip(self, whole: Range) -> None:
        """Forget what lies in no block of this range, and the ack sets outside of it."""
        first, last = whole.start >> BLOCK_BITS, whole.end - 1 >> BLOCK_BITS
        self.blocks = {block: bits for block, bits in self.blocks.items() if bits and first <= block <= last}
        self.batches = {offset: acks for offset, acks in self.batches.items() if whole.start <= offset < whole.end}

    def holes(self, whole: Range) -> list[Range]:
        """Runs of excluded blocks within a range, ascending; what is excluded beside them is not looked at."""
        found: list[Range] = []
        for block in sorted(block for block, bits in self.blocks.items() if bits == _ALL):
            start, end = max(whole.start, block << BLOCK_BITS), min(whole.end, block + 1 << BLOCK_BITS)
            if start >= end:
                continue
            if found and found[-1].end == start:
                found[-1] = Range(found[-1].start, end)
            else:
                found.append(Range(start, end))
        return found


BlockRow = tuple[int, int, list[int], list[int], list[list[int]]]
"""Key; number of the first word; words; then, of batch entries of which some messages are excluded, the low 16 bits of
the offset, and words of bits by batch index."""


def block_rows(excluded: Mapping[int, ExcludedOffsets]) -> list[BlockRow]:
    """The rows for Spark, by partition given, without blocks that have nothing.

    Raises:
        NotReadable: more than `MAX_BLOCKS`.
    """
    rows: list[BlockRow] = []
    for partition, offsets in excluded.items():
        sets: dict[int, dict[int, BatchAckSet]] = {}
        for offset, acks in offsets.batches.items():
            sets.setdefault(offset >> BLOCK_BITS, {})[offset & BLOCK - 1] = acks
        for block in sorted(offsets.blocks.keys() | sets.keys()):
            first, words = _words(offsets.blocks.get(block, 0), BLOCK)
            acked = sets.get(block, {})
            whole_sets = [_whole_words(acks) for acks in acked.values()]
            rows.append((partition << SLOT_BITS | block, first, words, list(acked), whole_sets))
            if len(rows) > MAX_BLOCKS:
                raise NotReadable(
                    f"what is acknowledged and aborted lies in more than {MAX_BLOCKS} blocks of {BLOCK} offsets; "
                    "read a part of it (startingOffsets, endingOffsets, or single partitions)"
                )
    return rows


def _words(bits: int, size: int) -> tuple[int, list[int]]:
    """Signed words of 64 bits, without those that are 0 at both ends; and the number of the first one."""
    if not bits:
        return 0, []
    first = (bits & -bits).bit_length() - 1 >> 6
    count = (bits.bit_length() - 1 >> 6) + 1 - first
    data = (bits >> 64 * first).to_bytes(count * _WORD_BYTES, "little")
    return first, [word for (word,) in iter_unpack("<q", data)]


def _whole_words(acks: BatchAckSet) -> list[int]:
    count = (acks.batch_size + 63) // 64
    return list(unpack(f"<{count}q", acks.acked.to_bytes(count * _WORD_BYTES, "little")))


def _containers(data: bytes, at: int) -> Iterator[tuple[int, int, int]]:
    """(Block, its bits, place behind it) of each container of a serialized bitmap."""
    (cookie,) = unpack_from("<I", data, at)
    runs = b""
    if cookie & 0xFFFF == _RUN_COOKIE:
        count = (cookie >> 16) + 1
        runs = data[at + 4 : at + 4 + (count + 7) // 8]
        at += 4 + len(runs)
    elif cookie == _PLAIN_COOKIE:
        (count,) = unpack_from("<I", data, at + 4)
        at += 8
    else:
        raise ValueError(f"cookie of a roaring bitmap is {cookie}, expected {_PLAIN_COOKIE} or {_RUN_COOKIE}")
    heads = list(iter_unpack("<HH", data[at : at + 4 * count]))
    at += 4 * count
    if not runs or count >= _PLACES_FROM:
        at += 4 * count
    for number, (block, most) in enumerate(heads):
        if runs and runs[number >> 3] >> (number & 7) & 1:
            (many,) = unpack_from("<H", data, at)
            bits = _of_runs(data[at + 2 : at + 2 + 4 * many])
            at += 2 + 4 * many
        elif most >= _MAX_LISTED:
            bits = int.from_bytes(data[at : at + _BITMAP_BYTES], "little")
            at += _BITMAP_BYTES
        else:
            bits = _of_members(unpack_from(f"<{most + 1}H", data, at))
            at += 2 * (most + 1)
        yield block, bits, at


def _of_runs(data: bytes) -> int:
    """The bits from s to e are 2 ** (e + 1) - 2 ** s, and no run touches the next one."""
    runs = list(iter_unpack("<HH", data))
    return _of_members([start + more + 1 for start, more in runs]) - _of_members([start for start, _ in runs])


def _of_members(members: Sequence[int]) -> int:
    """The bits from 0 to `BLOCK`, the end of its last run."""
    found = bytearray(_BITMAP_BYTES + 1)
    for member in members:
        found[member >> 3] |= 1 << (member & 7)
    return int.from_bytes(found, "little")


def members(bits: int) -> BitMap:
    """The members in one block's number."""
    data = bits.to_bytes(_BITMAP_BYTES, "little")
    count = bits.bit_count()
    if count > _MAX_LISTED:
        return BitMap.deserialize(pack("<IIHHI", _PLAIN_COOKIE, 1, 0, count - 1, 16) + data)
    return BitMap(set_bits(data))


def set_bits(data: bytes) -> list[int]:
    """The indexes of the 1 bits, the lowest of the first byte being bit 0."""
    return [8 * at + bit for at, byte in enumerate(data) if byte for bit in _BITS[byte]]


_BITS: Final = [[bit for bit in range(8) if byte >> bit & 1] for byte in range(256)]
