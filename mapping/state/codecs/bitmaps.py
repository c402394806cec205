"""Bitmaps of offsets are written in roaring's portable form with its length before it; an empty one has no bytes."""

from __future__ import annotations

from pyroaring import BitMap64

from pulsar_on_kafka.mapping.encoding.varint import Reader, write_varint
from pulsar_on_kafka.mapping.errors import CorruptRecord


def write_bitmap(out: bytearray, offsets: BitMap64) -> None:
    """Append length (varint) and bytes."""
    raw = compressed(offsets)
    write_varint(out, len(raw))
    out += raw


def read_bitmap(reader: Reader) -> BitMap64:
    """Raises CorruptRecord."""
    raw = reader.take(reader.varint())
    if not raw:
        return BitMap64()
    try:
        return BitMap64.deserialize(raw)
    except (ValueError, IndexError) as error:  # IndexError: of no bytes
        raise CorruptRecord(f"{reader.what} holds no readable bitmap: {error}") from error


def compressed(offsets: BitMap64) -> bytes:
    """The portable form, as small as it gets."""
    if not offsets:
        return b""
    optimized = offsets.copy()
    optimized.run_optimize()
    return bytes(optimized.serialize())


def pieces(offsets: BitMap64, largest_bytes: int) -> list[BitMap64]:
    """The same offsets in ascending bitmaps, none of which is longer than `largest_bytes` (1,000 or more) as bytes; one
    empty bitmap for none."""
    if len(compressed(offsets)) <= largest_bytes:
        return [offsets]
    low, high = int(offsets.min()), int(offsets.max())
    middle = low + (high - low + 1) // 2
    lower, upper = offsets.copy(), offsets.copy()
    lower.remove_range(middle, high + 1)
    upper.remove_range(low, middle)
    return pieces(lower, largest_bytes) + pieces(upper, largest_bytes)
