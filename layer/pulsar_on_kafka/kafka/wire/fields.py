"""Fields of Kafka's protocol in bytes: numbers, strings, arrays, and the compact forms of flexible versions (KIP-482).
No I/O.

Reading is bounded: a length or a count that the message cannot hold raises `CorruptRecord` before it allocates.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeVar

from pulsar_on_kafka_mapping.encoding.varint import ByteReader, text_of, utf8, varint
from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError

MAX_STRING_BYTES: Final = 0x7FFF
"""The limit of Kafka's strings, in bytes of UTF-8."""
NO_TAGS: Final = b"\0"
"""The tagged fields of a structure that has none."""
NULL: Final = b"\xff\xff"
"""The null string."""

int16: Final = Struct(">h").pack
int32: Final = Struct(">i").pack
INT16: Final = Struct(">h")
INT32: Final = Struct(">i")
INT64: Final = Struct(">q")
THROTTLE_AND_ERROR: Final = Struct(">ih")

Response_co = TypeVar("Response_co", covariant=True)


class Api(NamedTuple):
    """A kind of request in the version that this client sends. Kafka 3.7 to 4.4 know all of these versions."""

    name: str
    key: int
    version: int
    is_flexible: bool


class WireRequest(Protocol[Response_co]):
    """The body of a request, and the decoder of its response."""

    API: ClassVar[Api]

    def encode(self) -> bytes:
        """The body, without the header. Raises MappingError: a string is too long or not UTF-8."""
        ...

    @staticmethod
    def decode_response(reader: FieldReader) -> Response_co:
        """The response behind its header. Raises CorruptRecord."""
        ...


def string(text: str) -> bytes:
    data = utf8(text, "a string")
    if len(data) > MAX_STRING_BYTES:
        raise MappingError(f"a string has {len(data)} bytes, expected up to {MAX_STRING_BYTES}: {text[:40]!r}...")
    return int16(len(data)) + data


def nullable_string(text: str | None) -> bytes:
    return NULL if text is None else string(text)


def sized(data: bytes) -> bytes:
    """Bytes behind their length."""
    return int32(len(data)) + data


def array(items: Iterable[bytes]) -> bytes:
    parts = list(items)
    return int32(len(parts)) + b"".join(parts)


def compact_string(text: str) -> bytes:
    data = utf8(text, "a string")
    return varint(len(data) + 1) + data


def compact_nullable_string(text: str | None) -> bytes:
    return b"\0" if text is None else compact_string(text)


def compact_array(items: Iterable[bytes]) -> bytes:
    parts = list(items)
    return varint(len(parts) + 1) + b"".join(parts)


class FieldReader(ByteReader):
    """Reads the fields of one message, front to back. Each method raises CorruptRecord."""

    __slots__ = ()

    def numbers(self, layout: Struct) -> tuple[Any, ...]:
        at = self._at
        try:
            found = layout.unpack_from(self._data, at)
        except struct.error:
            raise CorruptRecord(
                f"{self.what} ends at byte {len(self._data)}, expected {layout.size} more from byte {at}"
            ) from None
        self._at = at + layout.size
        return found

    def int16(self) -> int:
        number: int = self.numbers(INT16)[0]
        return number

    def int32(self) -> int:
        number: int = self.numbers(INT32)[0]
        return number

    def int64(self) -> int:
        number: int = self.numbers(INT64)[0]
        return number

    def flag(self) -> bool:
        return self.take(1) != b"\0"

    def string(self) -> str:
        return text_of(self.take(self._length(self.int16(), "string")), self.what)

    def nullable_string(self) -> str | None:
        length = self.int16()
        return None if length == -1 else text_of(self.take(self._length(length, "string")), self.what)

    def sized(self) -> bytes:
        """Bytes behind their length."""
        return self.take(self._length(self.int32(), "field"))

    def nullable_sized(self) -> bytes:
        """Bytes behind their length; none where they are null."""
        length = self.int32()
        return b"" if length == -1 else self.take(self._length(length, "field"))

    def array(self, min_bytes_each: int) -> range:
        """The numbers of an array's items, each of which has so many bytes at least."""
        return self._items(self._length(self.int32(), "array"), min_bytes_each)

    def nullable_array(self, min_bytes_each: int) -> range:
        """The same, where a null array counts as empty."""
        count = self.int32()
        return range(0) if count == -1 else self._items(self._length(count, "array"), min_bytes_each)

    def compact_string(self) -> str:
        length = self.varint() - 1
        return text_of(self.take(self._length(length, "string")), self.what)

    def compact_nullable_string(self) -> str | None:
        length = self.varint() - 1
        return None if length < 0 else text_of(self.take(length), self.what)

    def compact_view(self) -> memoryview:
        """Bytes behind their length, not copied; none where they are null."""
        length = self.varint() - 1
        if length <= 0:
            return memoryview(b"")
        at = self._at
        end = at + length
        if end > len(self._data):
            raise CorruptRecord(f"{self.what} ends at byte {len(self._data)}, expected {length} more from byte {at}")
        self._at = end
        return memoryview(self._data)[at:end]

    def compact_array(self, min_bytes_each: int) -> range:
        """The numbers of an array's items. A null array counts as empty: none of our responses distinguishes them."""
        return self._items(max(0, self.varint() - 1), min_bytes_each)

    def compact_int32s(self) -> tuple[int, ...]:
        count = len(self.compact_array(4))
        return self.numbers(Struct(f">{count}i"))

    def tagged(self) -> Iterator[tuple[int, FieldReader]]:
        """The tagged fields of a structure, each with its number."""
        for _ in range(self.count(2)):
            tag = self.varint()
            yield tag, FieldReader(self.take(self.varint()), f"{self.what}, tagged field {tag},")

    def skip_tagged(self) -> None:
        for _ in range(self.count(2)):
            self.varint()
            self.take(self.varint())

    def skip_rest(self) -> None:
        self._at = len(self._data)

    def _length(self, length: int, of: str) -> int:
        if length < 0:
            raise CorruptRecord(f"{self.what} has a {of} of length {length} before byte {self._at}, expected 0 or more")
        return length

    def _items(self, count: int, min_bytes_each: int) -> range:
        left = len(self._data) - self._at
        if count * min_bytes_each > left:
            raise CorruptRecord(
                f"{self.what} announces {count} items before byte {self._at}, expected up to "
                f"{left // min_bytes_each} in the {left} bytes behind"
            )
        return range(count)
