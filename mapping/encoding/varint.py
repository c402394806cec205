"""Unsigned varints are written as in Protobuf, and read by a reader that says what ended too early."""

from __future__ import annotations

from typing import Final

from pulsar_on_kafka.mapping.errors import CorruptRecord, MappingError

_MOST: Final = 2**64 - 1
_MOST_BYTES: Final = 10


def write_varint(out: bytearray, value: int) -> None:
    """Append `value`, seven bits a byte, lowest first. Raises MappingError below 0."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    try:
        out.append(value)
    except ValueError:
        raise MappingError(f"number is {value}, expected 0 or more") from None


class Reader:
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
        value = shift = 0
        for byte in data[at : at + _MOST_BYTES]:
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                self._at = at + shift // 7
                if value > _MOST:
                    raise CorruptRecord(
                        f"{self.what} has the number {value} before byte {self._at}, expected up to {_MOST}"
                    )
                return value
        if shift == 7 * _MOST_BYTES:
            raise CorruptRecord(f"{self.what} has a number of more than ten bytes behind byte {at}")
        raise CorruptRecord(f"{self.what} ends at byte {len(data)}, within the number that begins at byte {at}")

    def varints(self, count: int) -> tuple[int, ...]:
        """So many of them."""
        at = self._at
        few = self._data[at : at + count]
        if len(few) == count and few.isascii():  # one byte each
            self._at = at + count
            return tuple(few)
        return tuple([self.varint() for _ in range(count)])

    def count(self, least_bytes_each: int) -> int:
        """A number of items; refused when that many cannot follow (so that garbage allocates nothing)."""
        number = self.varint()
        if number * least_bytes_each > len(self._data) - self._at:
            raise CorruptRecord(f"{self.what} announces {number} items in {len(self._data) - self._at} bytes")
        return number

    @property
    def at_end(self) -> bool:
        return self._at == len(self._data)

    def expect_end(self) -> None:
        if self._at != len(self._data):
            raise CorruptRecord(f"{self.what} has {len(self._data) - self._at} bytes too many")
