"""Arrays and rows as Spark holds them in memory, so that a large literal of a plan costs one call to the JVM.

Pure. All of it is little endian, and a multiple of 8 bytes long:

    array = count i64, a bit for each element that is null (in words of 8 bytes), elements, zeros
    row   = a bit for each field that is null (in words of 8 bytes), fields of 8 bytes, what lies outside of them

An element of 4 or 8 bytes stands where it is. Any other one, and such a field, is `place << 32 | length` of what lies
behind all of them, its place counted from the array's (the row's) first byte. Source: `UnsafeArrayData` and `UnsafeRow`
of Spark 4.0 to 4.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack
from typing import Final

_WORD: Final = 8


def longs(values: Sequence[int], zeros: int = 0) -> bytes:
    """An array of bigint: so many zeros, and these."""
    count = zeros + len(values)
    return _head(count) + bytes(_WORD * zeros) + pack(f"<{len(values)}q", *values)


def ints(values: Sequence[int]) -> bytes:
    """An array of int."""
    return _head(len(values)) + pack(f"<{len(values)}i", *values) + bytes(len(values) % 2 * 4)


def arrays(values: Sequence[bytes | None]) -> bytes:
    """An array of arrays or rows."""
    nulls = sum(1 << number for number, value in enumerate(values) if value is None)
    return _outside(_head(len(values), nulls), values)


def row(values: Sequence[bytes]) -> bytes:
    """A row whose fields are arrays, none of them null."""
    return _outside(bytes(_bitmap(len(values))), values)


def _outside(head: bytes, values: Sequence[bytes | None]) -> bytes:
    place, slots, parts = len(head) + _WORD * len(values), [], []
    for value in values:
        part = value or b""
        slots.append(place << 32 | len(part) if part else 0)
        parts.append(part)
        place += len(part)
    return b"".join([head, pack(f"<{len(slots)}q", *slots), *parts])


def _head(count: int, nulls: int = 0) -> bytes:
    return pack("<q", count) + nulls.to_bytes(_bitmap(count), "little")


def _bitmap(count: int) -> int:
    return (count + 63) // 64 * _WORD
