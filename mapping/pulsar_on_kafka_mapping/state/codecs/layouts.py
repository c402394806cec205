"""Layouts declare binary forms once, for both directions: parts are put together to records, lists and mappings.

    PLACE = record(SegmentPlace, save=VARINT, number=VARINT, offset=VARINT)
    PLACES = listed(PLACE)          count varint, (save varint, number varint, offset varint)*

What cannot be read raises CorruptRecord, a number below 0 that is written MappingError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar
from zlib import crc32

from pyroaring import BitMap64

from pulsar_on_kafka_mapping.encoding.varint import ByteReader, write_text, write_varint
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.state.codecs.formats import expect_format


def write_bitmap(out: bytearray, offsets: BitMap64) -> None:
    """Append length (varint) and bytes."""
    raw = compressed(offsets)
    write_varint(out, len(raw))
    out += raw


def read_bitmap(reader: ByteReader) -> BitMap64:
    """Raises CorruptRecord."""
    return bitmap_of(reader.take(reader.varint()), reader.what)


def bitmap_of(raw: bytes, what: str) -> BitMap64:
    """The inverse of `compressed`. Raises CorruptRecord, which names the record as `what`."""
    if not raw:
        return BitMap64()
    try:
        return BitMap64.deserialize(raw)
    except (ValueError, IndexError) as error:  # IndexError: of no bytes
        raise CorruptRecord(f"{what} holds no readable bitmap: {error}") from error


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


T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
_U64: Final = struct.Struct(">Q")


@dataclass(frozen=True)  # with slots, `Layout[int](...)` cannot be made
class Layout(Generic[T]):
    """A form of values: `write` appends one, `read` takes one from the front, and each takes `least` bytes or more."""

    write: Callable[[bytearray, T], None]
    read: Callable[[ByteReader], T]
    least: int


# Parts ----------------------------------------------------------------------------------------------------------------


def _read_flag(reader: ByteReader) -> bool:
    found = reader.take(1)[0]
    if found > 1:
        raise CorruptRecord(f"{reader.what} has {found}, expected 0 or 1")
    return bool(found)


VARINT: Final = Layout(write_varint, ByteReader.varint, 1)
"""0 to 2^64 - 1, as in Protobuf."""
U64: Final = Layout[int](
    lambda out, number: out.extend(_U64.pack(number)), lambda reader: int(_U64.unpack(reader.take(8))[0]), 8
)
"""Eight bytes, big endian."""
TEXT: Final = Layout(write_text, ByteReader.text, 1)
"""Length (varint) and UTF-8."""
FLAG: Final = Layout[bool](lambda out, flag: out.append(flag), _read_flag, 1)
"""0 u8 or 1 u8."""
BITMAP: Final[Layout[BitMap64]] = Layout(write_bitmap, read_bitmap, 1)
"""Length (varint) and a portable 64-bit roaring bitmap."""


def raw(length: int) -> Layout[bytes]:
    return Layout(bytearray.extend, lambda reader: reader.take(length), length)


# Whole of parts -------------------------------------------------------------------------------------------------------


def record(kind: Callable[..., T], **parts: Layout[Any]) -> Layout[T]:
    """Two or more fields of a dataclass or named tuple, in this order on the wire; no other field of it is kept."""
    names, get = tuple(parts), attrgetter(*parts)
    whole = row(*parts.values())
    write_row, read_row, least = whole.write, whole.read, whole.least
    in_order = names == getattr(kind, "__match_args__", ())[: len(names)]

    def read_by_name(reader: ByteReader) -> T:
        return kind(**dict(zip(names, read_row(reader), strict=True)))

    return Layout(
        lambda out, value: write_row(out, get(value)),
        (lambda reader: kind(*read_row(reader))) if in_order else read_by_name,
        least,
    )


def row(*parts: Layout[Any]) -> Layout[Any]:
    """A tuple of values, one for each part."""
    number = len(parts)
    if all(part is VARINT for part in parts):
        return Layout(_write_numbers, lambda reader: reader.varints(number), number)
    writers = [part.write for part in parts]
    readers = [part.read for part in parts]

    def write(out: bytearray, values: tuple[Any, ...]) -> None:
        for write_part, value in zip(writers, values):  # noqa: B905 - strict costs a tenth
            write_part(out, value)

    return Layout(write, lambda reader: tuple([read(reader) for read in readers]), sum(part.least for part in parts))


def _write_numbers(out: bytearray, numbers: tuple[int, ...]) -> None:
    for number in numbers:
        if 0 <= number < 0x80:
            out.append(number)
        else:
            write_varint(out, number)


def listed(item: Layout[T]) -> Layout[tuple[T, ...]]:
    """Count (varint), and the items."""
    write_item, read_item, least = item.write, item.read, item.least

    def write(out: bytearray, items: tuple[T, ...]) -> None:
        write_varint(out, len(items))
        for each in items:
            write_item(out, each)

    return Layout(write, lambda reader: tuple([read_item(reader) for _ in range(reader.count(least))]), 1)


def table(key: Layout[K], value: Layout[V], *, ordered: bool = True) -> Layout[Mapping[K, V]]:
    """Count (varint), and key and value of each; `ordered` by key, else in the mapping's own order."""
    write_key, read_key = key.write, key.read
    write_value, read_value = value.write, value.read
    least = key.least + value.least

    def write(out: bytearray, items: Mapping[K, V]) -> None:
        write_varint(out, len(items))
        for each in sorted(items) if ordered else items:  # type: ignore[type-var]
            write_key(out, each)
            write_value(out, items[each])

    def read(reader: ByteReader) -> Mapping[K, V]:
        return {read_key(reader): read_value(reader) for _ in range(reader.count(least))}

    return Layout(write, read, 1)


def optional(part: Layout[T]) -> Layout[T | None]:
    """0 u8 for None, or 1 u8 and the value."""

    def write(out: bytearray, value: T | None) -> None:
        out.append(value is not None)
        if value is not None:
            part.write(out, value)

    return Layout(write, lambda reader: part.read(reader) if _read_flag(reader) else None, 1)


def if_any(part: Layout[T], nothing: T) -> Layout[T]:
    """The end of a record, which has no bytes for `nothing`: what earlier versions knew nothing of."""

    def write(out: bytearray, value: T) -> None:
        if value != nothing:
            part.write(out, value)

    def read(reader: ByteReader) -> T:
        if reader.at_end:
            return nothing
        value = part.read(reader)
        if value == nothing:
            raise CorruptRecord(f"{reader.what} has meaningless bytes at its end")
        return value

    return Layout(write, read, 0)


def ends_with(*parts: tuple[Layout[Any], Any]) -> Layout[tuple[Any, ...]]:
    """The end of a record in several parts, each with its value for nothing: `if_any` for each part that an earlier
    version did not have. There are bytes up to the last part that is something."""

    def write(out: bytearray, values: tuple[Any, ...]) -> None:
        last = max((n for n, (_, nothing) in enumerate(parts) if values[n] != nothing), default=-1)
        for (part, _), value in zip(parts[: last + 1], values[: last + 1], strict=True):
            part.write(out, value)

    def read(reader: ByteReader) -> tuple[Any, ...]:
        values: list[Any] = []
        for part, _ in parts:
            if reader.at_end:
                break
            values.append(part.read(reader))
        if values and values[-1] == parts[len(values) - 1][1]:
            raise CorruptRecord(f"{reader.what} has meaningless bytes at its end")
        return (*values, *(nothing for _, nothing in parts[len(values) :]))

    return Layout(write, read, 0)


def as_other(part: Layout[K], out_of: Callable[[T], K], into: Callable[[K], T]) -> Layout[T]:
    """Values that stand there as others: `out_of` gives what is written, `into` may raise CorruptRecord."""
    return Layout(lambda out, value: part.write(out, out_of(value)), lambda reader: into(part.read(reader)), part.least)


# Values ---------------------------------------------------------------------------------------------------------------


class Whole(Generic[T]):
    """A value of a state topic is a format byte and nothing but this layout; without a number, the layout alone."""

    def __init__(self, what: str, layout: Layout[T], number: int | None = None) -> None:
        self._what = what
        self._layout = layout
        self._format = number

    def encode(self, value: T) -> bytes:
        out = bytearray() if self._format is None else bytearray((self._format,))
        self._layout.write(out, value)
        return bytes(out)

    def decode(self, data: bytes) -> T:
        """Raises CorruptRecord."""
        reader = ByteReader(data, self._what)
        if self._format is not None:
            expect_format(reader.take(1)[0], self._format, self._what)
        value = self._layout.read(reader)
        reader.expect_end()
        return value

    @property
    def both(self) -> tuple[Callable[[T], bytes], Callable[[bytes], T]]:
        """`encode` and `decode`."""
        return self.encode, self.decode


class Checked(Whole[T]):
    """A value of a transaction's topics begins with a head, by which a changed byte never passes for another fact.

    value = format u8 | kind u8 | CRC-32 of kind and body, 4 bytes big endian | body
    """

    _FORMAT: Final = 1
    _BODY_AT: Final = 6

    def __init__(self, what: str, kind: int, layout: Layout[T]) -> None:
        super().__init__(what, layout, self._FORMAT)
        self._kind = kind

    def encode(self, value: T) -> bytes:
        body = bytearray((self._kind,))
        self._layout.write(body, value)
        return bytes((self._FORMAT, self._kind)) + crc32(body).to_bytes(4, "big") + body[1:]

    def decode(self, data: bytes) -> T:
        """Raises CorruptRecord: another format or kind, or a body that is not what was written."""
        reader = ByteReader(data, self._what)
        expect_format(reader.take(1)[0], self._FORMAT, self._what)
        if (kind := reader.take(1)[0]) != self._kind:
            raise CorruptRecord(f"{self._what} is of kind {kind}, expected {self._kind}")
        required = int.from_bytes(reader.take(4), "big")
        if (found := crc32(data[1:2] + data[self._BODY_AT :])) != required:
            raise CorruptRecord(f"{self._what} of {len(data)} bytes has CRC-32 {found:08x}, written was {required:08x}")
        value = self._layout.read(reader)
        reader.expect_end()
        return value
