"""Unsigned varints and text are written and read as in Protobuf; the reader names the item that ended too early."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError

_MAX: Final = 2**64 - 1
_MAX_BYTES: Final = 10
_VARINT, _LENGTH_DELIMITED = 0, 2
_ONE_BYTE: Final = [bytes((value,)) for value in range(0x80)]
_FIXED_SIZES: Final = {1: 8, 5: 4}  # by wire type


def write_varint(out: bytearray, value: int) -> None:
    """Append `value`, seven bits a byte, lowest first. Raises MappingError below 0."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    try:
        out.append(value)
    except ValueError:
        raise MappingError(f"number is {value}, expected 0 or more") from None


def varint(value: int) -> bytes:
    """`value` as `write_varint` appends it. Raises MappingError below 0."""
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    if 0 < value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if 0 < value < 0x200000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


cached_varint: Final = lru_cache(1024)(varint)
"""`varint` of large numbers that are often repeated."""


def utf8(text: str, what: str) -> bytes:
    """Raises MappingError: text with lone surrogates."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise MappingError(f"{what} is {text[:40]!r}, expected text without lone surrogates") from error


def write_text(out: bytearray, text: str) -> None:
    """Append length (varint) and UTF-8."""
    raw = text.encode()
    write_varint(out, len(raw))
    out += raw


def text_of(data: bytes, what: str) -> str:
    """Raises CorruptRecord."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptRecord(f"{what} holds {data[:60]!r}, expected UTF-8") from error


def text_or_latin1(data: bytes) -> str:
    """Text of UTF-8; of any other bytes Latin-1, one character a byte: `encode("latin-1")` gives the bytes back.

    ASCII in it stays readable, and nothing downstream meets a lone surrogate.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


class ByteReader:
    """A reader takes bytes from the front; whatever is missing or left over raises CorruptRecord naming `what`."""

    __slots__ = ("_at", "_data", "what")

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._at = 0
        self.what = what

    def take(self, length: int) -> bytes:
        end = self._at + length
        if end > len(self._data):
            raise CorruptRecord(
                f"{self.what} ends at byte {len(self._data)}, expected {length} more from byte {self._at}"
            )
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def varint(self) -> int:
        data, at = self._data, self._at
        few = data[at : at + 1]
        if few and few[0] < 0x80:
            self._at = at + 1
            return few[0]
        value = shift = 0
        for byte in data[at : at + _MAX_BYTES]:
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                self._at = at + shift // 7
                if value > _MAX:
                    raise CorruptRecord(
                        f"{self.what} has the number {value} before byte {self._at}, expected up to {_MAX}"
                    )
                return value
        if shift == 7 * _MAX_BYTES:
            raise CorruptRecord(f"{self.what} has a number of more than ten bytes behind byte {at}")
        raise CorruptRecord(f"{self.what} ends at byte {len(data)}, within the number that begins at byte {at}")

    def varints(self, count: int) -> tuple[int, ...]:
        at = self._at
        few = self._data[at : at + count]
        if len(few) == count and few.isascii():  # one byte each
            self._at = at + count
            return tuple(few)
        return tuple([self.varint() for _ in range(count)])

    def text(self) -> str:
        return text_of(self.take(self.varint()), self.what)

    def count(self, min_bytes_each: int) -> int:
        """A number of items; refused when that many cannot follow (so that garbage allocates nothing)."""
        number = self.varint()
        if number * min_bytes_each > len(self._data) - self._at:
            raise CorruptRecord(f"{self.what} announces {number} items in {len(self._data) - self._at} bytes")
        return number

    def fields(self) -> Iterator[tuple[int, int | bytes]]:
        """The fields of a Protobuf message, in their order, each with its number, and a number or bytes; those of fixed
        size, which are never needed, are skipped."""
        data, end = self._data, len(self._data)
        while (at := self._at) < end:
            # Most have a tag of one byte, and another one as number or length.
            if at + 2 <= end and 8 <= (tag := data[at]) < 0x80 and (small := data[at + 1]) < 0x80:
                if tag & 7 == _VARINT:
                    self._at = at + 2
                    yield tag >> 3, small
                    continue
                if tag & 7 == _LENGTH_DELIMITED and at + 2 + small <= end:
                    self._at = at + 2 + small
                    yield tag >> 3, data[at + 2 : self._at]
                    continue
            tag = self.varint()
            number, wire_type = tag >> 3, tag & 7
            if number == 0 or number >> 29:
                raise CorruptRecord(f"{self.what} has a field of number {number}")
            if wire_type == _VARINT:
                yield number, self.varint()
            elif wire_type == _LENGTH_DELIMITED:
                yield number, self.take(self.varint())
            elif wire_type in _FIXED_SIZES:
                self.take(_FIXED_SIZES[wire_type])
            else:
                raise CorruptRecord(f"{self.what} has a field {number} of wire type {wire_type}")

    @property
    def position(self) -> int:
        """The number of consumed bytes."""
        return self._at

    @property
    def at_end(self) -> bool:
        return self._at == len(self._data)

    def expect_end(self) -> None:
        if self._at != len(self._data):
            raise CorruptRecord(f"{self.what} has {len(self._data) - self._at} bytes too many")
