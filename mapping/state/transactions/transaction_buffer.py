"""Values of `__transaction_buffer_snapshot` say what is known of transactions in one partition of a data topic.

    OPEN      = incarnation varint | lower bound varint
    ABORTED   = incarnation varint | sealed u8 | parts varint | lower bound varint | end varint | late until varint
                | bitmap
    VOID      = incarnation varint | bitmap
    LOW_WATER = least significant bits varint

each with the head of `checked_values` before it. A large bitmap is spread over several records, whose keys differ by
`part`; what counts is the union. `incarnation` is the topic's: entries of another life of its name say nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

import msgspec
from pyroaring import BitMap64

from pulsar_on_kafka.mapping.encoding.varint import write_varint
from pulsar_on_kafka.mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka.mapping.state.codecs.bitmaps import pieces, read_bitmap, write_bitmap
from pulsar_on_kafka.mapping.state.codecs.checked_values import checked_value, open_checked
from pulsar_on_kafka.mapping.state.state_keys import TransactionBufferKey

MOST_BITMAP_BYTES: Final = 900_000
"""Of one record; the state topic takes a bit more than a million."""

_LOW_WATER: Final = 4
_LEAST_BITS_MAX: Final = 2**64 - 1


class BufferKind(str, Enum):
    """An entry says one of these things; the kind is the `kind` of its key."""

    OPEN = "OPEN"
    ABORTED = "ABORTED"
    VOID = "VOID"


_KIND_BYTES: Final = {BufferKind.OPEN: 1, BufferKind.ABORTED: 2, BufferKind.VOID: 3}


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
        end: none of its records lies at or above, but for late ones while it is not `sealed`.
        sealed: `offsets` are all there are and ever will be.
        parts: how many records say this together, when their writer wrote them.
        late_until_ms: no record of it comes after this Unix time, where the brokers refuse old ones; 0 when that is
            not known.
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
    """The records that say this, none above a million bytes; `key` has the kind of the entry and part 0.

    Raises:
        MappingError: a negative number, or a key of another kind.
    """
    if key.kind != kind_of(entry).value or key.part != 0:
        raise MappingError(f"{key!r} is no key of part 0 of {type(entry).__name__}")
    if isinstance(entry, OpenEntry):
        return [(key, encode_buffer_entry(entry))]
    found = pieces(entry.offsets, MOST_BITMAP_BYTES)
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


def encode_buffer_entry(entry: BufferEntry) -> bytes:
    """One record's value, however large.

    Raises:
        MappingError: a negative number.
    """
    body = bytearray()
    _write(body, "incarnation", entry.incarnation)
    match entry:
        case OpenEntry(_, lower_bound):
            _write(body, "lower bound", lower_bound)
        case AbortedEntry(_, lower_bound, end, sealed, offsets, parts, late_until_ms):
            body.append(sealed)
            _write(body, "number of parts", parts)
            _write(body, "lower bound", lower_bound)
            _write(body, "end", end)
            _write(body, "time", late_until_ms)
            write_bitmap(body, offsets)
        case VoidEntry(_, offsets):
            write_bitmap(body, offsets)
    return checked_value(_KIND_BYTES[kind_of(entry)], bytes(body))


def decode_buffer_entry(kind: str, value: bytes) -> BufferEntry:
    """The inverse of `encode_buffer_entry`; `kind` is the key's.

    Raises:
        CorruptRecord: no such kind, or bytes that are no entry of it.
    """
    try:
        wanted = BufferKind(kind)
    except ValueError as error:
        raise CorruptRecord(f"entry of a transaction buffer is of kind {kind!r:.60}") from error
    reader = open_checked(value, _KIND_BYTES[wanted], f"{wanted.value} entry of a transaction buffer")
    incarnation = reader.varint()
    entry: BufferEntry
    if wanted is BufferKind.OPEN:
        entry = OpenEntry(incarnation, reader.varint())
    elif wanted is BufferKind.ABORTED:
        sealed, parts, lower_bound, end = reader.take(1)[0], reader.varint(), reader.varint(), reader.varint()
        late_until_ms = reader.varint()
        if sealed > 1 or parts < 1:
            raise CorruptRecord(f"{reader.what} has sealed={sealed} and {parts} parts")
        entry = AbortedEntry(incarnation, lower_bound, end, bool(sealed), read_bitmap(reader), parts, late_until_ms)
    else:
        entry = VoidEntry(incarnation, read_bitmap(reader))
    reader.expect_end()
    return entry


def encode_low_water(least_bits: int) -> bytes:
    """Every transaction of this coordinator up to this one (least significant bits) is over.

    Raises:
        MappingError: no 64 bits.
    """
    body = bytearray()
    _write(body, "low-water mark", least_bits)
    if least_bits > _LEAST_BITS_MAX:
        raise MappingError(f"low-water mark is {least_bits}, expected 0 to {_LEAST_BITS_MAX}")
    return checked_value(_LOW_WATER, bytes(body))


def decode_low_water(value: bytes) -> int:
    """Raises CorruptRecord."""
    reader = open_checked(value, _LOW_WATER, "low-water mark of a coordinator")
    least_bits = reader.varint()
    reader.expect_end()
    return least_bits


def _write(out: bytearray, what: str, number: int) -> None:
    if number < 0:
        raise MappingError(f"{what} of a transaction buffer's entry is {number}, expected 0 or more")
    write_varint(out, number)
