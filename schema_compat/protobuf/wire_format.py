"""Protobuf's wire format is read as far as descriptors need it.

field   = key value;  key = varint(number << 3 | wire type)
value   = varint (0) | 8 bytes (1) | varint length, bytes (2) | fields, end of group (3 ... 4) | 4 bytes (5)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

VARINT: Final = 0
LENGTH_DELIMITED: Final = 2
_START_GROUP: Final = 3
_END_GROUP: Final = 4
_FIXED: Final = {1: 8, 5: 4}
_MAX_NUMBER: Final = (1 << 29) - 1


class NotProtobuf(ValueError):
    """The bytes are no message."""


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field of a message: an unsigned integer or bytes. Other wire types are passed over.

    Raises:
        NotProtobuf: the bytes end too early or a key is none.
    """
    at = 0
    groups: list[int] = []
    while at < len(data):
        key, at = _varint(data, at)
        number, wire_type = key >> 3, key & 7
        if not 0 < number <= _MAX_NUMBER:
            raise NotProtobuf(f"field number {number} before byte {at}")
        if wire_type == VARINT:
            value, at = _varint(data, at)
            if not groups:
                yield number, value
        elif wire_type == LENGTH_DELIMITED:
            size, at = _varint(data, at)
            end = _end(data, at, size)
            if not groups:
                yield number, data[at:end]
            at = end
        elif wire_type in _FIXED:
            at = _end(data, at, _FIXED[wire_type])
        elif wire_type == _START_GROUP:
            groups.append(number)
        elif wire_type == _END_GROUP and groups and groups[-1] == number:
            groups.pop()
        else:
            raise NotProtobuf(f"wire type {wire_type} of field {number} before byte {at}")
    if groups:
        raise NotProtobuf(f"group {groups[-1]} does not end")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned 64-bit integer and where the next byte is."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise NotProtobuf(f"ends within a number at byte {at}")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise NotProtobuf(f"a number of more than 10 bytes before byte {at}")


def _end(data: bytes, at: int, size: int) -> int:
    if size > len(data) - at:
        raise NotProtobuf(f"{size} bytes promised at byte {at}, {len(data) - at} are left")
    return at + size


def signed(value: int) -> int:
    """A varint read as int32 or int64."""
    return value - (1 << 64) if value >> 63 else value
