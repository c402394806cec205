"""A cursor is saved as the metadata of its group commit, and as segments.

    commit metadata = "pok1:" base85( lineage kind body )        at most 4,095 characters
    lineage  = topic id (22 ASCII) | topic incarnation u64 | subscription incarnation u64
             | session (16) | cursor version u64 | save u64
    kind u8  = with 128 added: before the body, which requests took effect: count varint, (id (8), result varint)*
               with 64 added: transactions acknowledge here, see `CommitMetadata.pending_acks`
               with 32 added: before the body, behind the requests, `CommitMetadata.leased_from`, a varint
               0: body is a holes block, offsets relative to the committed one, then deliveries
               1: body is the offset (u64) of the marker record in the `cursors` topic
               2: both: a marker (u64), and a holes block and deliveries that came after it
    holes    = bitmap length u32 | roaring bitmap | batch ack sets
    batch ack sets = count varint | (offset delta varint, batch size varint, acked bits: length varint, bytes)*

    segment  = format u8 | lineage | ledger index u64 | holes        offsets are entry ids of that ledger
    deliveries = nothing
             | limit varint | suspects bitmap
             | counts: count varint, (deliveries varint, redeliveries varint, bitmap)*
             | put off: count varint, (Unix ms varint, bitmap)*
             | floors: nothing, or count varint, (slot varint, offset varint)*
             | reasons: nothing, or count varint, (text: length varint, UTF-8; bitmap of messages)*
               each bitmap here = length varint | portable 64-bit roaring bitmap of offsets

How often messages were delivered is all on record where a dead letter policy is set; elsewhere only redeliveries as the
application saw them (`only_seen`).

A ledger whose holes do not fit one record has several segments, each with a part of them. The marker, which indexes
all live segments, is in `mapping.state.cursors.cursor_marker`.

Everything big endian. Bitmaps are roaring's portable serialization. Pure: no I/O.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from pyroaring import BitMap, BitMap64

from pulsar_on_kafka_mapping.encoding.varint import ByteReader, write_varint
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.state.codecs.json_records import Count, Int64, json_record
from pulsar_on_kafka_mapping.state.codecs.layouts import (
    BITMAP,
    TEXT,
    U64,
    VARINT,
    Layout,
    Whole,
    as_other,
    ends_with,
    if_any,
    raw,
    record,
    row,
    table,
)


@dataclass(frozen=True, slots=True)
class Deliveries:
    """The delivery state that a new owner needs from the former one.

    `limit`: no offset at or above it was handed out; 0 after an orderly end, when no consumer holds a message.
    `suspects`: offsets that were held by a process that died. `counts`: offsets by (deliveries up to and including the
    one that this save permits, redeliveries as the application sees them); an offset below `limit` that is not named
    was delivered once at most. 0 deliveries: not counted. `put_off`: offsets without a holder that are redelivered, by
    Unix time in ms. `floors`: by slot of keys (Key_Shared): no offset of it at or above this one was handed out, unless
    it is named. `reasons`: messages by the reason of their last negative acknowledgement, each as
    offset << 16 | batch index + 1, with 0 for a message that is not in a batch.
    """

    limit: int
    suspects: BitMap64 = field(default_factory=BitMap64)
    counts: Mapping[tuple[int, int], BitMap64] = field(default_factory=dict)
    put_off: Mapping[int, BitMap64] = field(default_factory=dict)
    floors: Mapping[int, int] = field(default_factory=dict)
    reasons: Mapping[str, BitMap64] = field(default_factory=dict)

    @property
    def only_seen(self) -> bool:
        counted = self.limit or self.suspects or self.put_off
        return not counted and all(delivered == 0 for delivered, _ in self.counts)

    def matter_from(self, next_unacked: int) -> bool:
        """Whether they concern an offset at or above this one."""
        return self.limit > next_unacked or bool(self.suspects or self.counts or self.put_off)


_DELIVERIES: Final[Mapping[str, Layout[Any]]] = {
    "limit": VARINT,
    "suspects": BITMAP,
    "counts": table(row(VARINT, VARINT), BITMAP),
    "put_off": table(VARINT, BITMAP),
}
DELIVERIES: Final = record(Deliveries, **_DELIVERIES)
"""Without floors and reasons, which belong to the owner alone."""
_NOTHING: Final[Mapping[Any, Any]] = {}
REASONS: Final = table(TEXT, BITMAP)
"""See `Deliveries.reasons`."""


METADATA_PREFIX: Final = "pok1:"
MAX_METADATA_CHARS: Final = 4095
"""Kafka refuses 4,096 (`offset.metadata.max.bytes`)."""

REQUEST_ID_BYTES: Final = 8

FORMAT: Final = 2
_KIND_HOLES: Final = 0
_KIND_MARKER: Final = 1
_KIND_MARKER_AND_HOLES: Final = 2
_WITH_REQUESTS: Final = 128
_WITH_PENDING_ACKS: Final = 64
_WITH_LEASES: Final = 32
_U32: Final = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Lineage:
    """The lineage identifies a state: the incarnations of topic and subscription, the owner, the save.

    `session` is 16 random bytes of the owner; `version` grows by one at each take-over; `save` counts an owner's saves.
    """

    topic_id: str
    topic_incarnation: int
    subscription_incarnation: int
    session: bytes
    version: int
    save: int

    @property
    def life(self) -> tuple[int, int]:
        """The incarnations of topic and subscription; a later one is greater."""
        return (self.topic_incarnation, self.subscription_incarnation)

    def same_life(self, other: Lineage) -> bool:
        """Both speak of the same topic and the same subscription, not of one deleted and made anew."""
        return (self.topic_id, self.topic_incarnation, self.subscription_incarnation) == (
            other.topic_id,
            other.topic_incarnation,
            other.subscription_incarnation,
        )


@dataclass(frozen=True, slots=True)
class Holes:
    """Holes are acknowledged positions above the mark-delete position; `batches` maps position to (batch size, acked
    bits)."""

    acked: BitMap
    batches: Mapping[int, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """A group commit carries holes (relative to the committed offset), where the marker lies, or both.

    With both, the holes were acknowledged after the marker was written, when no segment could be (`CursorStore`).
    """

    lineage: Lineage
    holes: Holes | None
    marker_offset: int | None = None
    deliveries: Deliveries | None = None
    """The deliveries; with a marker and without holes, the marker contains them."""
    requests: Mapping[bytes, int] = field(default_factory=dict)
    """Requests of other processes that this state has applied, by id, oldest first, each with its result."""
    pending_acks: bool = False
    """Transactions acknowledge on this cursor: `__transaction_pending_ack` may hold something that its next owner has
    to know before it serves."""
    leased_from: int | None = None
    """The offset from which other processes may hold messages: their acknowledgements are in `deliveries` from this
    offset on, and the next owner requests their holdings before it serves."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment holds all holes of one ledger as one save saw them."""

    lineage: Lineage
    ledger_index: int
    holes: Holes


def encode_commit_metadata(metadata: CommitMetadata) -> str:
    """Text for the group commit; may come out longer than `MAX_METADATA_CHARS` (then use a marker)."""
    reported = _KIND_MARKER if metadata.holes is None else _KIND_MARKER_AND_HOLES
    if metadata.marker_offset is None:
        reported, metadata = _KIND_HOLES, replace(metadata, holes=metadata.holes or Holes(BitMap()))
    reported |= _WITH_REQUESTS if metadata.requests else 0
    reported |= _WITH_PENDING_ACKS if metadata.pending_acks else 0
    reported |= _WITH_LEASES if metadata.leased_from is not None else 0
    out = bytearray()
    LINEAGE.write(out, metadata.lineage)
    out.append(reported)
    for name, part in _parts(reported).items():
        part.write(out, getattr(metadata, name))
    return METADATA_PREFIX + base64.b85encode(bytes(out)).decode("ascii")


def decode_commit_metadata(text: str) -> CommitMetadata | None:
    """The decoded metadata; None for those of another program (a Kafka tool's commit).

    Raises:
        CorruptRecord: it is marked as this product's and cannot be read.
    """
    if not text.startswith(METADATA_PREFIX):
        return None
    try:
        data = base64.b85decode(text[len(METADATA_PREFIX) :])
    except (ValueError, binascii.Error) as error:
        raise CorruptRecord(f"commit metadata {text[:40]!r}... is no base85: {error}") from error
    reader = ByteReader(data, "commit metadata")
    lineage = LINEAGE.read(reader)
    reported = reader.take(1)[0]
    fields = {"holes": None, **{name: part.read(reader) for name, part in _parts(reported).items()}}
    reader.expect_end()
    return CommitMetadata(lineage, **fields, pending_acks=bool(reported & _WITH_PENDING_ACKS))


def _parts(reported: int) -> dict[str, Layout[Any]]:
    """The fields that stand behind a kind, in their order."""
    kind = reported & ~(_WITH_REQUESTS | _WITH_PENDING_ACKS | _WITH_LEASES)
    if kind > _KIND_MARKER_AND_HOLES:
        raise CorruptRecord(f"commit metadata is of kind {kind}, expected {_KIND_HOLES} to {_KIND_MARKER_AND_HOLES}")
    parts: dict[str, Layout[Any]] = {"requests": _REQUESTS} if reported & _WITH_REQUESTS else {}
    if reported & _WITH_LEASES:
        parts["leased_from"] = VARINT
    if kind != _KIND_HOLES:
        parts["marker_offset"] = U64
    if kind != _KIND_MARKER:
        parts |= {"holes": HOLES, "deliveries": DELIVERIES_IF_ANY}
    return parts


def _topic_id(written: bytes) -> str:
    try:
        return written.decode("ascii").rstrip()
    except UnicodeDecodeError as error:
        raise CorruptRecord(f"a cursor's state names topic id {written!r}, expected ASCII") from error


def _write_ack_set(out: bytearray, batch: tuple[int, int]) -> None:
    size, acked = batch
    write_varint(out, size)
    if size:
        bits = acked.to_bytes((acked.bit_length() + 7) // 8, "big")
        write_varint(out, len(bits))
        out += bits


def _read_ack_set(reader: ByteReader) -> tuple[int, int]:
    size = reader.varint()
    acked = int.from_bytes(reader.take(reader.varint()), "big") if size else 0
    if acked.bit_length() > size:
        raise CorruptRecord(f"{reader.what}: an ack set is wider than its batch of {size}")
    return size, acked


def _write_holes(out: bytearray, holes: Holes) -> None:
    bitmap = holes.acked.copy()
    bitmap.run_optimize()
    raw_bitmap = bitmap.serialize()
    out += _U32.pack(len(raw_bitmap))
    out += raw_bitmap
    write_varint(out, len(holes.batches))
    previous = 0
    for position in sorted(holes.batches):
        write_varint(out, position - previous)
        previous = position
        _write_ack_set(out, holes.batches[position])


def _read_holes(reader: ByteReader) -> Holes:
    raw_bitmap = reader.take(_U32.unpack(reader.take(4))[0])
    try:
        acked = BitMap.deserialize(raw_bitmap)
    except (ValueError, IndexError) as error:  # IndexError: of no bytes
        raise CorruptRecord(f"{reader.what} holds no readable bitmap: {error}") from error
    batches: dict[int, tuple[int, int]] = {}
    position = 0
    for _ in range(reader.count(2)):
        position += reader.varint()
        batches[position] = _read_ack_set(reader)
    return Holes(acked, batches)


_OWN: Final = ends_with((table(VARINT, VARINT), _NOTHING), (REASONS, _NOTHING))
DELIVERIES_IF_ANY: Final[Layout[Deliveries | None]] = if_any(
    cast(
        "Layout[Deliveries | None]",
        as_other(
            row(DELIVERIES, _OWN),
            lambda found: (found, (found.floors, found.reasons)),
            lambda parts: replace(parts[0], floors=parts[1][0], reasons=parts[1][1]),
        ),
    ),
    None,
)
ACK_SET: Final = Layout(_write_ack_set, _read_ack_set, 1)
"""Batch size and acknowledged bits, most significant byte first; a size of 0 stands alone."""
HOLES: Final = Layout(_write_holes, _read_holes, 5)
"""Holes; positions count from a base that the record defines."""
LINEAGE: Final = record(
    Lineage,
    topic_id=as_other(raw(22), lambda name: name.encode("ascii").ljust(22), _topic_id),
    topic_incarnation=U64,
    subscription_incarnation=U64,
    session=raw(16),
    version=U64,
    save=U64,
)
_REQUESTS: Final = table(raw(REQUEST_ID_BYTES), VARINT, ordered=False)
encode_segment, decode_segment = Whole(
    "cursor segment", record(Segment, lineage=LINEAGE, ledger_index=U64, holes=HOLES), FORMAT
).both


@dataclass(frozen=True, slots=True)
class CursorCheckpoint:
    """A value of the `cursor_checkpoints` state topic is a copy of an accepted group commit, as JSON:

    {"v":1,"version":5,"save":300,"kafka_offset":120,"metadata":"pok1:...","written_ms":1700000000000}

    It counts if it has the highest (`version`, `save`) of its cursor."""

    version: Count
    save: Count
    kafka_offset: Int64
    metadata: str
    written_ms: Int64


encode_checkpoint, decode_checkpoint = json_record("cursor checkpoint", CursorCheckpoint).both
