"""Binary values of transactions begin with a head, by which a changed byte never passes for another fact.

value = format u8 | kind u8 | CRC-32 of kind and body, 4 bytes big endian | body
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from pulsar_on_kafka.mapping.encoding.varint import Reader
from pulsar_on_kafka.mapping.errors import CorruptRecord

FORMAT: Final = 1


def checked_value(kind: int, body: bytes) -> bytes:
    """The whole value of a record."""
    return bytes((FORMAT, kind)) + crc32(bytes((kind,)) + body).to_bytes(4, "big") + body


def open_checked(value: bytes, kind: int, what: str) -> Reader:
    """The body, to be read.

    Raises:
        CorruptRecord: another format or kind, or a body that is not what was written.
    """
    reader = Reader(value, what)
    if (found := reader.take(1)[0]) != FORMAT:
        raise CorruptRecord(f"{what} has format {found}, this version reads {FORMAT}")
    if (found := reader.take(1)[0]) != kind:
        raise CorruptRecord(f"{what} is of kind {found}, expected {kind}")
    wanted = int.from_bytes(reader.take(4), "big")
    if (found := crc32(value[1:2] + value[6:])) != wanted:
        raise CorruptRecord(f"{what} of {len(value)} bytes has CRC-32 {found:08x}, written was {wanted:08x}")
    return reader
