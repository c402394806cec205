"""Values of `__transaction_buffer_snapshot`: the transactions in one partition of a data topic.

    OPEN      = incarnation varint | lower bound varint
    ABORTED   = incarnation varint | sealed u8 | parts varint | lower bound varint | end varint | late until varint
                | bitmap
    VOID      = incarnation varint | bitmap
    LOW_WATER = least significant bits varint

each with the head of `layouts.Checked` before it. A large bitmap is spread over several records, whose keys differ by
`part`; the union counts. `incarnation` is the topic's: entries of another incarnation do not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

import msgspec
from pyroaring import BitMap64

from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka_mapping.state.codecs.layouts import BITMAP, FLAG, VARINT, Checked, pieces, record
from pulsar_on_kafka_mapping.state.state_keys import TransactionBufferKey

MAX_BITMAP_BYTES: Final = 900_000
"""The limit of one record; the state topic allows a bit more than a million."""

_MAX_LEAST_BITS: Final = 2**64 - 1


class BufferKind(str, Enum):
    """The kind of an entry, which is the `kind` of its key."""

    OPEN = "OPEN"
    ABORTED = "ABORTED"
    VOID = "VOID"


@dataclass(frozen=True, slots=True)
class OpenEntry:
    """All records of an open transaction lie at or above `lower_bound`, the partition's end when it was registered."""

    incarnation: int
    lower_bound: int


@dataclass(frozen=True, slots=True)
class AbortedEntry:
    """A transaction was aborted, and these offsets of its records are known.

    Attributes:
        lower_bound: none of its records lies below.
        end: none of its records lies at or above, except late ones while it is not `sealed`.
        sealed: `offsets` are final.
        parts: the number of records of this entry, as its writer wrote them.
        late_until_ms: no record of it arrives after this Unix time, where the brokers reject old ones; 0 when that is
            unknown.
    """

    incarnation: int
    lower_bound: int
    end: int
    sealed: bool
    offsets: BitMap64
    parts: int = 1
    late_until_ms: int = 0


@dataclass(frozen=True, slots=True)
class VoidEntry:
    """Records came after the end of the transaction that they name: whatever its outcome, they are not read."""

    incarnation: int
    offsets: BitMap64


BufferEntry = OpenEntry | AbortedEntry | VoidEntry


def buffer_records(key: TransactionBufferKey, entry: BufferEntry) -> list[tuple[TransactionBufferKey, bytes]]:
    """The records of an entry, none above a million bytes; `key` has the kind of the entry and part 0.

    Raises:
        MappingError: a negative number, or a key of another kind.
    """
    if key.kind != kind_of(entry).value or key.part != 0:
        raise MappingError(f"{key!r} is no key of part 0 of {type(entry).__name__}")
    if isinstance(entry, OpenEntry):
        return [(key, encode_buffer_entry(entry))]
    found = pieces(entry.offsets, MAX_BITMAP_BYTES)
    if isinstance(entry, AbortedEntry):
        entry = replace(entry, parts=len(found))
    return [
        (msgspec.structs.replace(key, part=part), encode_buffer_entry(replace(entry, offsets=piece)))
        for part, piece in enumerate(found)
    ]


def kind_of(entry: BufferEntry) -> BufferKind:
    match entry:
        case OpenEntry():
            return BufferKind.OPEN
        case AbortedEntry():
            return BufferKind.ABORTED
        case VoidEntry():
            return BufferKind.VOID


_ENTRIES: Final[Mapping[BufferKind, Checked[Any]]] = {
    BufferKind.OPEN: Checked(
        "OPEN entry of a transaction buffer", 1, record(OpenEntry, incarnation=VARINT, lower_bound=VARINT)
    ),
    BufferKind.ABORTED: Checked(
        "ABORTED entry of a transaction buffer",
        2,
        record(
            AbortedEntry, incarnation=VARINT, sealed=FLAG, parts=VARINT, lower_bound=VARINT, end=VARINT,
            late_until_ms=VARINT, offsets=BITMAP,
        ),
    ),
    BufferKind.VOID: Checked(
        "VOID entry of a transaction buffer", 3, record(VoidEntry, incarnation=VARINT, offsets=BITMAP)
    ),
}  # fmt: skip
_LOW_WATER: Final = Checked("low-water mark of a coordinator", 4, VARINT)


def encode_buffer_entry(entry: BufferEntry) -> bytes:
    """One record's value, however large.

    Raises:
        MappingError: a negative number.
    """
    return _ENTRIES[kind_of(entry)].encode(entry)


def decode_buffer_entry(kind: str, value: bytes) -> BufferEntry:
    """The inverse of `encode_buffer_entry`; `kind` is the key's.

    Raises:
        CorruptRecord: no such kind, or bytes that are no entry of it.
    """
    try:
        entry: BufferEntry = _ENTRIES[BufferKind(kind)].decode(value)
    except ValueError as error:
        raise CorruptRecord(f"entry of a transaction buffer is of kind {kind!r:.60}: {error}") from error
    if isinstance(entry, AbortedEntry) and entry.parts < 1:
        raise CorruptRecord(f"ABORTED entry of a transaction buffer has {entry.parts} parts")
    return entry


def encode_low_water(least_bits: int) -> bytes:
    """Every transaction of this coordinator up to this one (least significant bits) is over.

    Raises:
        MappingError: no 64 bits.
    """
    if least_bits > _MAX_LEAST_BITS:
        raise MappingError(f"low-water mark is {least_bits}, expected 0 to {_MAX_LEAST_BITS}")
    return _LOW_WATER.encode(least_bits)


decode_low_water: Final = _LOW_WATER.decode
