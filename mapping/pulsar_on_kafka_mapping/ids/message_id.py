"""Message ids are serialized as by the official client: as the Protobuf message `MessageIdData`.

    08 ledger id (uint64)  10 entry id (uint64)  [18 partition]  [20 batch index]  [30 batch size]
    [3a length, id of the first chunk]

The id of a chunked message is its last chunk's, with the first chunk's in field 7.

Numbers are varints; negative ones are written as 64-bit two's complement (ten bytes). Partition and batch index are
written unless they are -1, batch size unless it is 0. Compared byte for byte with pulsar-client 3.13.0 in the tests.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pulsar_on_kafka_mapping.encoding.varint import write_varint
from pulsar_on_kafka_mapping.errors import InvalidMessageId

_LONG_MAX: Final = 2**63 - 1
_U64: Final = 2**64 - 1
_LEDGER, _ENTRY, _PARTITION, _BATCH_INDEX, _BATCH_SIZE, _FIRST_CHUNK = 1, 2, 3, 4, 6, 7
_FIXED_SIZES: Final = {1: 8, 5: 4}  # by wire type


class FirstChunk(NamedTuple):
    """The first chunk of a chunked message lies here, in the same partition as the last one."""

    ledger_id: int
    entry_id: int


class MessageIdParts(NamedTuple):
    """A message id consists of these numbers: -1 stands for "no partition" and "in no batch"."""

    ledger_id: int
    entry_id: int
    partition: int = -1
    batch_index: int = -1
    batch_size: int = 0
    first_chunk: FirstChunk | None = None


EARLIEST: Final = MessageIdParts(-1, -1)
LATEST: Final = MessageIdParts(_LONG_MAX, _LONG_MAX)


def encode_message_id(
    ledger_id: int,
    entry_id: int,
    partition: int = -1,
    batch_index: int = -1,
    batch_size: int = 0,
    first_chunk: FirstChunk | None = None,
) -> bytes:
    """The bytes that `MessageId.serialize()` of the official client gives.

    Raises:
        InvalidMessageId: ledger or entry id is no 64-bit number, or one of the others no 32-bit number.
    """
    for what, number, bits in (
        ("ledger id", ledger_id, 63),
        ("entry id", entry_id, 63),
        ("partition", partition, 31),
        ("batch index", batch_index, 31),
        ("batch size", batch_size, 31),
    ):
        if number >> bits not in (0, -1):
            raise InvalidMessageId(f"{what} is {number}, expected a signed number of {bits + 1} bits")
    out = bytearray(b"\x08")
    write_varint(out, ledger_id & _U64)
    out.append(_ENTRY << 3)
    write_varint(out, entry_id & _U64)
    for number, absent, field in (
        (partition, -1, _PARTITION),
        (batch_index, -1, _BATCH_INDEX),
        (batch_size, 0, _BATCH_SIZE),
    ):
        if number != absent:
            out.append(field << 3)
            write_varint(out, number & _U64)
    if first_chunk is not None:
        first = encode_message_id(*first_chunk, partition)
        out += bytes((_FIRST_CHUNK << 3 | 2, len(first)))  # 33 bytes at most
        out += first
    return bytes(out)


def decode_message_id(data: bytes) -> MessageIdParts:
    """Reads a serialized message id of any client.

    As Protobuf has it: fields in any order, the last one of a number counts, unknown ones (and the unused ack set) are
    skipped.

    Raises:
        InvalidMessageId: the bytes end early, are no Protobuf, or lack ledger or entry id.
    """
    numbers: dict[int, int] = {}
    first_chunk: FirstChunk | None = None
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if number == 0 or number >> 29:
            raise InvalidMessageId(f"message id {data[:40].hex()} has a field number {number} before byte {at}")
        if wire_type == 0:
            numbers[number], at = _varint(data, at)
        elif wire_type == 2:
            length, at = _varint(data, at)
            if number == _FIRST_CHUNK and at + length <= len(data):
                first_chunk = FirstChunk(*decode_message_id(data[at : at + length])[:2])
            at += length
        elif wire_type in _FIXED_SIZES:
            at += _FIXED_SIZES[wire_type]
        else:
            raise InvalidMessageId(f"message id {data[:40].hex()} has wire type {wire_type} before byte {at}")
    if at > len(data):
        raise InvalidMessageId(f"message id {data[:40].hex()} ends at byte {len(data)}, expected {at}")
    if _LEDGER not in numbers or _ENTRY not in numbers:
        raise InvalidMessageId(f"message id {data[:40].hex()} lacks a ledger id or an entry id")
    return MessageIdParts(
        _signed(numbers[_LEDGER], 64),
        _signed(numbers[_ENTRY], 64),
        _signed(numbers.get(_PARTITION, -1), 32),
        _signed(numbers.get(_BATCH_INDEX, -1), 32),
        _signed(numbers.get(_BATCH_SIZE, 0), 32),
        first_chunk,
    )


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(Number, place behind it); bits beyond the 64th are dropped, as Protobuf does."""
    number = 0
    for length, byte in enumerate(data[at : at + 10]):
        number |= (byte & 0x7F) << 7 * length
        if byte < 0x80:
            return number & _U64, at + length + 1
    raise InvalidMessageId(f"message id {data[:40].hex()} has an unfinished number at byte {at}")


def _signed(number: int, bits: int) -> int:
    number &= 2**bits - 1
    return number - 2**bits if number >> (bits - 1) else number
