"""The saved form of a cursor: the metadata of its group commit, its segments and its marker.

    commit metadata = "pok1:" base85( lineage kind body )        at most 4,095 characters
    lineage  = topic id (22 ASCII) | topic incarnation u64 | subscription incarnation u64
             | session (16) | cursor version u64 | save u64
    kind u8  = 0: body is a holes block, offsets relative to the committed one
               1: body is the offset (u64) of the marker record in the `cursors` topic
    holes    = bitmap length u32 | roaring bitmap | batch ack sets
    batch ack sets = count varint | (offset delta varint, batch size varint, acked bits: length varint, bytes)*

    segment  = format u8 | lineage | ledger index u64 | holes        offsets are entry ids of that ledger
    marker   = format u8 | lineage | sessions: count varint, (16)*
             | live segments | obsolete segments | obsolete markers
    segments = count varint | (ledger index, offset, session number, save, segment: varints)*
    markers  = count varint | (session number, save: varints)*

Everything big endian. Bitmaps are roaring's portable serialization. Pure: no I/O.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyroaring import BitMap

from mapping.errors import CorruptRecord
from mapping.varint import Reader, write_varint

METADATA_PREFIX: Final = "pok1:"
MAX_METADATA_CHARS: Final = 4095
"""Kafka refuses 4,096 (`offset.metadata.max.bytes`)."""

FORMAT: Final = 1
_KIND_HOLES: Final = 0
_KIND_MARKER: Final = 1
_LINEAGE: Final = struct.Struct(">22sQQ16sQQ")
_U64: Final = struct.Struct(">Q")
_U32: Final = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Lineage:
    """Whose state this is: which life of topic and subscription, which owner, which save.

    `session` is 16 random bytes of the owner; `version` grows by one at each take-over; `save` counts an owner's saves.
    """

    topic_id: str
    topic_incarnation: int
    subscription_incarnation: int
    session: bytes
    version: int
    save: int

    def same_life(self, other: Lineage) -> bool:
        """Both speak of the same topic and the same subscription, not of one deleted and made anew."""
        return (self.topic_id, self.topic_incarnation, self.subscription_incarnation) == (
            other.topic_id,
            other.topic_incarnation,
            other.subscription_incarnation,
        )


@dataclass(frozen=True, slots=True)
class Holes:
    """Acknowledged positions above the mark-delete position; `batches` maps position to (batch size, acked bits)."""

    acked: BitMap
    batches: Mapping[int, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """What rides in the group commit: all holes (relative to the committed offset), or where the marker lies."""

    lineage: Lineage
    holes: Holes | None
    marker_offset: int | None = None


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """One segment record: the ledger it speaks of, its offset in `cursors`, and the variable parts of its key."""

    ledger_index: int
    kafka_offset: int
    session: bytes
    save: int
    segment: int


@dataclass(frozen=True, slots=True)
class MarkerRef:
    """The variable parts of a marker's key."""

    session: bytes
    save: int


@dataclass(frozen=True, slots=True)
class Segment:
    """All holes of one ledger as one save saw them."""

    lineage: Lineage
    ledger_index: int
    holes: Holes


@dataclass(frozen=True, slots=True)
class Marker:
    """The index of a save: its live segments, and what it made obsolete (tombstoned once the commit was accepted)."""

    lineage: Lineage
    live: tuple[SegmentRef, ...]
    obsolete: tuple[SegmentRef, ...] = ()
    obsolete_markers: tuple[MarkerRef, ...] = ()


def encode_commit_metadata(metadata: CommitMetadata) -> str:
    """Text for the group commit; may come out longer than `MAX_METADATA_CHARS` (then use a marker)."""
    out = bytearray(_lineage_bytes(metadata.lineage))
    if metadata.marker_offset is not None:
        out.append(_KIND_MARKER)
        out += _U64.pack(metadata.marker_offset)
    else:
        out.append(_KIND_HOLES)
        _write_holes(out, metadata.holes or Holes(BitMap()))
    return METADATA_PREFIX + base64.b85encode(bytes(out)).decode("ascii")


def decode_commit_metadata(text: str) -> CommitMetadata | None:
    """None for metadata of somebody else's (a Kafka tool's commit).

    Raises:
        CorruptRecord: it claims to be ours and cannot be read.
    """
    if not text.startswith(METADATA_PREFIX):
        return None
    try:
        raw = base64.b85decode(text[len(METADATA_PREFIX) :])
    except (ValueError, binascii.Error) as error:
        raise CorruptRecord(f"commit metadata {text[:40]!r}... is no base85: {error}") from error
    reader = Reader(raw, "commit metadata")
    lineage = _read_lineage(reader)
    kind = reader.take(1)[0]
    if kind == _KIND_MARKER:
        metadata = CommitMetadata(lineage, None, _U64.unpack(reader.take(8))[0])
    elif kind == _KIND_HOLES:
        metadata = CommitMetadata(lineage, _read_holes(reader))
    else:
        raise CorruptRecord(f"commit metadata is of kind {kind}, expected {_KIND_HOLES} or {_KIND_MARKER}")
    reader.expect_end()
    return metadata


def encode_segment(segment: Segment) -> bytes:
    out = bytearray([FORMAT])
    out += _lineage_bytes(segment.lineage)
    out += _U64.pack(segment.ledger_index)
    _write_holes(out, segment.holes)
    return bytes(out)


def decode_segment(value: bytes) -> Segment:
    """Raises CorruptRecord."""
    reader = _open(value, "cursor segment")
    lineage = _read_lineage(reader)
    segment = Segment(lineage, _U64.unpack(reader.take(8))[0], _read_holes(reader))
    reader.expect_end()
    return segment


def encode_marker(marker: Marker) -> bytes:
    out = bytearray([FORMAT])
    out += _lineage_bytes(marker.lineage)
    refs: list[SegmentRef | MarkerRef] = [*marker.live, *marker.obsolete, *marker.obsolete_markers]
    sessions = sorted({ref.session for ref in refs})
    numbers = {session: number for number, session in enumerate(sessions)}
    write_varint(out, len(sessions))
    for session in sessions:
        out += session
    for group in (marker.live, marker.obsolete):
        write_varint(out, len(group))
        for ref in group:
            for value in (ref.ledger_index, ref.kafka_offset, numbers[ref.session], ref.save, ref.segment):
                write_varint(out, value)
    write_varint(out, len(marker.obsolete_markers))
    for old in marker.obsolete_markers:
        write_varint(out, numbers[old.session])
        write_varint(out, old.save)
    return bytes(out)


def decode_marker(value: bytes) -> Marker:
    """Raises CorruptRecord."""
    reader = _open(value, "cursor marker")
    lineage = _read_lineage(reader)
    sessions = [reader.take(16) for _ in range(reader.count(16))]

    def session(number: int) -> bytes:
        if number >= len(sessions):
            raise CorruptRecord(f"cursor marker names session {number} of {len(sessions)}")
        return sessions[number]

    groups: list[tuple[SegmentRef, ...]] = []
    for _ in range(2):
        refs = []
        for _ in range(reader.count(5)):
            ledger_index, offset, number, save, segment = (reader.varint() for _ in range(5))
            refs.append(SegmentRef(ledger_index, offset, session(number), save, segment))
        groups.append(tuple(refs))
    old = []
    for _ in range(reader.count(2)):
        number, save = reader.varint(), reader.varint()
        old.append(MarkerRef(session(number), save))
    reader.expect_end()
    return Marker(lineage, groups[0], groups[1], tuple(old))


def _open(value: bytes, what: str) -> Reader:
    reader = Reader(value, what)
    found = reader.take(1)[0]
    if found != FORMAT:
        raise CorruptRecord(f"{what} has format {found}, expected {FORMAT}")
    return reader


def _lineage_bytes(lineage: Lineage) -> bytes:
    return _LINEAGE.pack(
        lineage.topic_id.encode("ascii").ljust(22),
        lineage.topic_incarnation,
        lineage.subscription_incarnation,
        lineage.session,
        lineage.version,
        lineage.save,
    )


def _read_lineage(reader: Reader) -> Lineage:
    topic_id, topic, subscription, session, version, save = _LINEAGE.unpack(reader.take(_LINEAGE.size))
    try:
        name = topic_id.decode("ascii").rstrip()
    except UnicodeDecodeError as error:
        raise CorruptRecord(f"{reader.what} names topic id {topic_id!r}, expected ASCII") from error
    return Lineage(name, topic, subscription, session, version, save)


def _write_holes(out: bytearray, holes: Holes) -> None:
    bitmap = holes.acked.copy()
    bitmap.run_optimize()
    raw = bitmap.serialize()
    out += _U32.pack(len(raw))
    out += raw
    write_varint(out, len(holes.batches))
    previous = 0
    for position in sorted(holes.batches):
        size, acked = holes.batches[position]
        write_varint(out, position - previous)
        previous = position
        write_varint(out, size)
        bits = acked.to_bytes((acked.bit_length() + 7) // 8, "big")
        write_varint(out, len(bits))
        out += bits


def _read_holes(reader: Reader) -> Holes:
    raw = reader.take(_U32.unpack(reader.take(4))[0])
    try:
        acked = BitMap.deserialize(raw)
    except ValueError as error:
        raise CorruptRecord(f"{reader.what} holds no readable bitmap: {error}") from error
    batches: dict[int, tuple[int, int]] = {}
    position = 0
    for _ in range(reader.count(3)):
        position += reader.varint()
        size = reader.varint()
        acked_bits = int.from_bytes(reader.take(reader.varint()), "big")
        if acked_bits.bit_length() > size:
            raise CorruptRecord(f"{reader.what}: ack set of position {position} is wider than its batch of {size}")
        batches[position] = (size, acked_bits)
    return Holes(acked, batches)


def obsolete_after(live: Sequence[SegmentRef], kept: Sequence[SegmentRef]) -> tuple[SegmentRef, ...]:
    """Segments of `live` that `kept` no longer names."""
    names = {(ref.session, ref.save, ref.segment) for ref in kept}
    return tuple(ref for ref in live if (ref.session, ref.save, ref.segment) not in names)
