"""Values of the `subscription_progress` state topic say which messages a subscription has done with, by where they
began.

    head    = format | life: two varints | count varint, (origin, acknowledgements)*
              | count varint, (origin, deliveries)*: only where there are any
    origin  = length varint | name of the cluster, UTF-8 | incarnation of the topic there, varint
    acknowledgements
            = below varint | here: count varint, (block varint, holes)*
              | apart: count varint, (block varint, count varint, (save varint, number varint, offset varint)*)*
    segment = format | block varint | holes
    holes, deliveries: see cursor_state and deliveries

Positions are Kafka offsets in the origin, the cluster that a message was first published in; a block is `BLOCK` of
them, and holes count from its beginning. Decision: mapping/decisions/0021.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pulsar_on_kafka.mapping.encoding.varint import Reader, write_varint
from pulsar_on_kafka.mapping.errors import CorruptRecord
from pulsar_on_kafka.mapping.state.cursors.cursor_state import Holes, read_holes, write_holes
from pulsar_on_kafka.mapping.state.cursors.delivery_counts import Deliveries, read_deliveries, write_deliveries

FORMAT: Final = 1
BLOCK: Final = 1 << 18
"""Offsets in a block: a bitmap of 32 KiB at most."""

SAYS: Final = "says"
"""In a key: what the cluster that it names says of its own side of the subscription."""
KNOWS: Final = "knows"
"""In a key: what the cluster that it names has been told, and what was taken over from it."""
DELIVERED: Final = "delivered"
"""In a key: what the cluster that it names says of deliveries of what it has not acknowledged."""
BEGINS: Final = "begins"
"""In a key: what lies below the subscription's beginning in the cluster that it names; part of what it says, and
acknowledged by nobody. Written before what it says; of the same life."""
LEFT: Final = "left"
"""In a key: the subscription was deleted here, or is replicated no more, and what the cluster that it names says does
not make it anew. Its head has no acknowledgements; its `life` is the one there that is not heard."""
SNAPSHOTS: Final = "snapshots"
"""In a key: the cluster that it names says how far its side is by markers in the topic (`subscription_markers`). Its
head has no acknowledgements; its `life` is the one that markers name."""


class Origin(NamedTuple):
    """A message was first published in this cluster, in this life (`incarnation`) of the topic there."""

    cluster: str
    incarnation: int


class SegmentPlace(NamedTuple):
    """A segment lies here: the save that wrote it, its number in that, and its offset in the state topic."""

    save: int
    number: int
    offset: int


@dataclass(frozen=True, slots=True)
class SavedAcks:
    """A head says of one origin: everything `below` this offset, and by block what lies above. `here` has the blocks
    that fit into the head, `apart` where the others lie, in parts that make a union."""

    below: int = 0
    here: Mapping[int, Holes] = field(default_factory=dict)
    apart: Mapping[int, tuple[SegmentPlace, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProgressHead:
    """A head holds all that one writer says of one partition of one subscription.

    `life`: the incarnations of topic and subscription in the cluster whose topic that is. `deliveries`: counts and
    put-off times, in offsets of the origin.
    """

    life: tuple[int, int]
    origins: Mapping[Origin, SavedAcks] = field(default_factory=dict)
    deliveries: Mapping[Origin, Deliveries] = field(default_factory=dict)


def encode_head(head: ProgressHead) -> bytes:
    out = bytearray([FORMAT])
    for number in head.life:
        write_varint(out, number)
    write_varint(out, len(head.origins))
    for origin in sorted(head.origins):
        _write_origin(out, origin)
        _write_acks(out, head.origins[origin])
    if head.deliveries:
        write_varint(out, len(head.deliveries))
        for origin in sorted(head.deliveries):
            _write_origin(out, origin)
            write_deliveries(out, head.deliveries[origin])
    return bytes(out)


def decode_head(value: bytes) -> ProgressHead:
    """Raises CorruptRecord."""
    reader = _opened(value, "head of a subscription's progress")
    life = (reader.varint(), reader.varint())
    origins = {_read_origin(reader): _read_acks(reader) for _ in range(reader.count(5))}
    deliveries: dict[Origin, Deliveries] = {}
    for _ in range(0 if reader.at_end else reader.count(6)):
        origin = _read_origin(reader)
        deliveries[origin] = read_deliveries(reader)
    reader.expect_end()
    return ProgressHead(life, origins, deliveries)


def encode_segment(block: int, holes: Holes) -> bytes:
    out = bytearray([FORMAT])
    write_varint(out, block)
    write_holes(out, holes)
    return bytes(out)


def decode_segment(value: bytes) -> tuple[int, Holes]:
    """(block, what is acknowledged in it). Raises CorruptRecord."""
    reader = _opened(value, "segment of a subscription's progress")
    block, holes = reader.varint(), read_holes(reader)
    reader.expect_end()
    return block, holes


def _opened(value: bytes, what: str) -> Reader:
    reader = Reader(value, what)
    found = reader.take(1)[0]
    if found != FORMAT:
        raise CorruptRecord(f"{what} has format {found}, expected {FORMAT}")
    return reader


def _write_acks(out: bytearray, acks: SavedAcks) -> None:
    write_varint(out, acks.below)
    write_varint(out, len(acks.here))
    for block in sorted(acks.here):
        write_varint(out, block)
        write_holes(out, acks.here[block])
    write_varint(out, len(acks.apart))
    for block in sorted(acks.apart):
        write_varint(out, block)
        write_varint(out, len(acks.apart[block]))
        for place in acks.apart[block]:
            for number in place:
                write_varint(out, number)


def _read_acks(reader: Reader) -> SavedAcks:
    below = reader.varint()
    here = {reader.varint(): read_holes(reader) for _ in range(reader.count(6))}
    apart: dict[int, tuple[SegmentPlace, ...]] = {}
    for _ in range(reader.count(2)):
        block = reader.varint()
        apart[block] = tuple(
            SegmentPlace(reader.varint(), reader.varint(), reader.varint()) for _ in range(reader.count(3))
        )
    return SavedAcks(below, here, apart)


def _write_origin(out: bytearray, origin: Origin) -> None:
    name = origin.cluster.encode("utf-8")
    write_varint(out, len(name))
    out += name
    write_varint(out, origin.incarnation)


def _read_origin(reader: Reader) -> Origin:
    raw = reader.take(reader.varint())
    try:
        return Origin(raw.decode("utf-8"), reader.varint())
    except UnicodeDecodeError as error:
        raise CorruptRecord(f"{reader.what} names the cluster {raw[:40]!r}, expected UTF-8") from error
