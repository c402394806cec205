"""Ack sets of Pulsar's commands select messages of a batch: signed words of 64 bits, the lowest first. Source:
BitSetRecyclable of pulsar-common 4.0.7."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

_WORD_BITS: Final = 64
_WORD_BYTES: Final = 8


def words_of(bits: int, size: int) -> list[int]:
    """The ack set of the first `size` bits."""
    count = -(-size // _WORD_BITS)
    data = (bits & (1 << size) - 1).to_bytes(count * _WORD_BYTES, "little")
    return list(struct.unpack(f"<{count}q", data))


def bits_of(words: Sequence[int], size: int) -> int:
    """The first `size` bits of an ack set; further bits of a client are ignored."""
    first = words[: -(-size // _WORD_BITS)]
    data = struct.pack(f"<{len(first)}q", *first)
    return int.from_bytes(data, "little") & (1 << size) - 1


def indexes_of(bits: int) -> Iterator[int]:
    """The indexes of the set bits, in their order."""
    digits = bin(bits)[:1:-1]
    at = digits.find("1")
    while at >= 0:
        yield at
        at = digits.find("1", at + 1)
