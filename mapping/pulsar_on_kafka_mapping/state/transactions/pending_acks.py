"""Values of `__transaction_pending_ack`: acknowledgements that open transactions hold on a cursor, their outcomes, and
the cursor's owner.

    ACK      = life | version varint | whole entries: bitmap
             | batches: count varint, (offset varint, batch)* | cumulative: 0 u8, or 1 u8, offset varint, batch
    batch    = size varint | acknowledged: a bit for each message, little endian, (size + 7) / 8 bytes
    END      = 1 u8 for committed, 0 for aborted
    TAKEOVER = life
    life     = topic's incarnation varint | subscription's incarnation varint

each with the head of `layouts.Checked` before it. Bit i of `acknowledged` is set when message i is acknowledged
(Pulsar's ack sets have it the other way round). An END needs no life: transaction ids are never given twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from pyroaring import BitMap64

from pulsar_on_kafka_mapping.encoding.varint import ByteReader, write_varint
from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka_mapping.state.codecs.layouts import (
    BITMAP,
    FLAG,
    VARINT,
    Checked,
    Layout,
    as_other,
    optional,
    pieces,
    record,
    row,
    table,
)

MAX_ACK_BYTES: Final = 900_000
"""The limit of one record; the state topic allows a bit more than a million."""

_BATCH_OVERHEAD: Final = 20


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


def split_ack(ack: TxnAck) -> list[TxnAck]:
    """The same in acks of which none makes a record of more than a million bytes."""
    parts = [TxnAck(piece) for piece in pieces(ack.whole, MAX_ACK_BYTES // 2) if piece]
    parts += [TxnAck(batches=group) for group in _fitting(ack.batches)]
    if ack.cumulative is not None:
        parts.append(TxnAck(cumulative=ack.cumulative))
    if len(parts) > 1 and len(encode_pending_ack(PendingAck(CursorIncarnation(0, 0), 0, ack))) <= MAX_ACK_BYTES:
        return [ack]
    return parts


def _fitting(batches: Mapping[int, tuple[int, int]]) -> list[dict[int, tuple[int, int]]]:
    groups: list[dict[int, tuple[int, int]]] = []
    room = 0
    for offset, (size, acked) in batches.items():
        needed = _BATCH_OVERHEAD + (size + 7) // 8
        if needed > room:
            groups.append({})
            room = MAX_ACK_BYTES
        groups[-1][offset] = (size, acked)
        room -= needed
    return groups


def _write_batch(out: bytearray, batch: tuple[int, int]) -> None:
    size, acked = batch
    if acked < 0 or acked >> max(0, size):
        raise MappingError(f"pending ack of a batch entry has bits beyond its {size} messages")
    write_varint(out, size)
    out += acked.to_bytes((size + 7) // 8, "little")


def _read_batch(reader: ByteReader) -> tuple[int, int]:
    size = reader.varint()
    acked = int.from_bytes(reader.take((size + 7) // 8), "little")
    if acked >> size:
        raise CorruptRecord(f"{reader.what} of a batch entry has bits beyond its {size} messages")
    return size, acked


_BATCH: Final = Layout(_write_batch, _read_batch, 1)
_CUMULATIVE: Final[Layout[CumulativeAck]] = as_other(
    row(VARINT, _BATCH), lambda ack: (ack.offset, ack[1:]), lambda reported: CumulativeAck(reported[0], *reported[1])
)
_LIFE: Final = record(CursorIncarnation, topic_incarnation=VARINT, subscription_incarnation=VARINT)
ACK: Final = record(TxnAck, whole=BITMAP, batches=table(VARINT, _BATCH), cumulative=optional(_CUMULATIVE))
encode_pending_ack, decode_pending_ack = Checked(
    "pending ack", 1, record(PendingAck, life=_LIFE, version=VARINT, ack=ACK)
).both
encode_end, decode_end = Checked(
    "end of a transaction", 2, as_other(FLAG, lambda outcome: bool(outcome.value), TxnOutcome)
).both
encode_cursor_takeover, decode_cursor_takeover = Checked("take-over of a cursor", 3, _LIFE).both

# They raise MappingError for a negative number, or bits beyond a batch's size.
