"""Values of `__transaction_pending_ack` say what open transactions hold of a cursor, how they ended, and who owns it.

    ACK      = life | version varint | whole entries: bitmap
             | batches: count varint, (offset varint, batch)* | cumulative: 0 u8, or 1 u8, offset varint, batch
    batch    = size varint | acknowledged: a bit for each message, little endian, (size + 7) / 8 bytes
    END      = 1 u8 for committed, 0 for aborted
    TAKEOVER = life
    life     = topic's incarnation varint | subscription's incarnation varint

each with the head of `checked_values` before it. Bit i of `acknowledged` is set when message i is acknowledged
(Pulsar's ack sets have it the other way round). An END needs no life: transaction ids are never given twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from pyroaring import BitMap64

from pulsar_on_kafka.mapping.encoding.varint import Reader, write_varint
from pulsar_on_kafka.mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka.mapping.state.codecs.bitmaps import pieces, read_bitmap, write_bitmap
from pulsar_on_kafka.mapping.state.codecs.checked_values import checked_value, open_checked

MOST_ACK_BYTES: Final = 900_000
"""Of one record; the state topic takes a bit more than a million."""

_BATCH_OVERHEAD: Final = 20
_ACK: Final = 1
_END: Final = 2
_TAKEOVER: Final = 3


class TxnOutcome(Enum):
    """A transaction ended in one of two ways."""

    COMMITTED = True
    ABORTED = False


class CursorIncarnation(NamedTuple):
    """A cursor belongs to this life of a topic's and a subscription's name."""

    topic_incarnation: int
    subscription_incarnation: int


class CumulativeAck(NamedTuple):
    """A cumulative ack covers everything below `offset`, and of the entry there the messages in `acked` (all of it:
    `batch_size` 0)."""

    offset: int
    batch_size: int = 0
    acked: int = 0


@dataclass(frozen=True, slots=True)
class TxnAck:
    """A transaction acknowledges these positions: whole entries, messages of batch entries as offset -> (size, bits),
    and everything up to a position."""

    whole: BitMap64 = field(default_factory=BitMap64)
    batches: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    cumulative: CumulativeAck | None = None


@dataclass(frozen=True, slots=True)
class PendingAck:
    """An owner of version `version` held this for a transaction."""

    life: CursorIncarnation
    version: int
    ack: TxnAck


def encode_pending_ack(pending: PendingAck) -> bytes:
    """Raises MappingError for a negative number, or bits beyond a batch's size."""
    body = bytearray()
    _write(body, *pending.life, pending.version)
    write_ack(body, pending.ack)
    return checked_value(_ACK, bytes(body))


def write_ack(body: bytearray, ack: TxnAck) -> None:
    """Raises MappingError as `encode_pending_ack`."""
    write_bitmap(body, ack.whole)
    write_varint(body, len(ack.batches))
    for offset in sorted(ack.batches):
        _write_batch(body, offset, *ack.batches[offset])
    body.append(ack.cumulative is not None)
    if ack.cumulative is not None:
        _write_batch(body, *ack.cumulative)


def decode_pending_ack(value: bytes) -> PendingAck:
    """Raises CorruptRecord."""
    reader = open_checked(value, _ACK, "pending ack")
    life, version = CursorIncarnation(reader.varint(), reader.varint()), reader.varint()
    ack = read_ack(reader)
    reader.expect_end()
    return PendingAck(life, version, ack)


def read_ack(reader: Reader) -> TxnAck:
    """Raises CorruptRecord."""
    whole = read_bitmap(reader)
    batches: dict[int, tuple[int, int]] = {}
    for _ in range(reader.count(2)):
        offset, size, acked = _read_batch(reader)
        batches[offset] = (size, acked)
    cumulative = None
    if reader.take(1)[0]:
        cumulative = CumulativeAck(*_read_batch(reader))
    return TxnAck(whole, batches, cumulative)


def split_ack(ack: TxnAck) -> list[TxnAck]:
    """The same in acks of which none makes a record of more than a million bytes."""
    parts = [TxnAck(piece) for piece in pieces(ack.whole, MOST_ACK_BYTES // 2) if piece]
    parts += [TxnAck(batches=group) for group in _fitting(ack.batches)]
    if ack.cumulative is not None:
        parts.append(TxnAck(cumulative=ack.cumulative))
    if len(parts) > 1 and len(encode_pending_ack(PendingAck(CursorIncarnation(0, 0), 0, ack))) <= MOST_ACK_BYTES:
        return [ack]
    return parts


def _fitting(batches: Mapping[int, tuple[int, int]]) -> list[dict[int, tuple[int, int]]]:
    groups: list[dict[int, tuple[int, int]]] = []
    room = 0
    for offset, (size, acked) in batches.items():
        needed = _BATCH_OVERHEAD + (size + 7) // 8
        if needed > room:
            groups.append({})
            room = MOST_ACK_BYTES
        groups[-1][offset] = (size, acked)
        room -= needed
    return groups


def encode_end(outcome: TxnOutcome) -> bytes:
    return checked_value(_END, bytes((outcome.value,)))


def decode_end(value: bytes) -> TxnOutcome:
    """Raises CorruptRecord."""
    reader = open_checked(value, _END, "end of a transaction")
    outcome = reader.take(1)[0]
    reader.expect_end()
    if outcome > 1:
        raise CorruptRecord(f"{reader.what} is {outcome}, expected 0 or 1")
    return TxnOutcome(bool(outcome))


def encode_cursor_takeover(life: CursorIncarnation) -> bytes:
    """Raises MappingError for a negative number."""
    body = bytearray()
    _write(body, *life)
    return checked_value(_TAKEOVER, bytes(body))


def decode_cursor_takeover(value: bytes) -> CursorIncarnation:
    """Raises CorruptRecord."""
    reader = open_checked(value, _TAKEOVER, "take-over of a cursor")
    life = CursorIncarnation(reader.varint(), reader.varint())
    reader.expect_end()
    return life


def _write(out: bytearray, *numbers: int) -> None:
    for number in numbers:
        if number < 0:
            raise MappingError(f"pending ack has {number} among {numbers}, expected 0 or more")
        write_varint(out, number)


def _write_batch(out: bytearray, offset: int, size: int, acked: int) -> None:
    if acked < 0 or acked >> max(0, size):
        raise MappingError(f"pending ack of the batch entry at offset {offset} has bits beyond its {size} messages")
    _write(out, offset, size)
    out += acked.to_bytes((size + 7) // 8, "little")


def _read_batch(reader: Reader) -> tuple[int, int, int]:
    offset, size = reader.varint(), reader.varint()
    acked = int.from_bytes(reader.take((size + 7) // 8), "little")
    if acked >> size:
        raise CorruptRecord(f"{reader.what} of the batch entry at offset {offset} has bits beyond its {size} messages")
    return offset, size, acked
