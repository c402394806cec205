"""Values of the `subscription_progress` state topic list the acknowledged messages of a subscription, by their origin.

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

from pulsar_on_kafka_mapping.state.codecs.layouts import TEXT, VARINT, Whole, if_any, listed, record, row, table
from pulsar_on_kafka_mapping.state.cursors.cursor_state import DELIVERIES, HOLES, Deliveries, Holes

FORMAT: Final = 1
BLOCK: Final = 1 << 18
"""Offsets in a block: a bitmap of 32 KiB at most."""

SAYS: Final = "says"
"""In a key: the report of the named cluster about its own side of the subscription."""
KNOWS: Final = "knows"
"""In a key: the progress that was reported to the named cluster, and applied from it."""
DELIVERED: Final = "delivered"
"""In a key: the report of the named cluster about deliveries of unacknowledged messages."""
BEGINS: Final = "begins"
"""In a key: the range below the subscription's beginning in the named cluster; part of its report, without
acknowledgements. Written before the report; of the same incarnation."""
LEFT: Final = "left"
"""In a key: the subscription was deleted here, or is no longer replicated, and reports of the named cluster do not
recreate it. Its head has no acknowledgements; its `life` is the ignored one there."""
SNAPSHOTS: Final = "snapshots"
"""In a key: version 0.2.0 replicated the subscription by snapshots. The cluster that wrote its head removes it, and the
others ignore it (mapping/decisions/0023)."""


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
    """The acknowledgements of one origin in a head: everything `below` this offset, and by block those above. `here`
    has the blocks that fit into the head, `apart` the places of the others, in parts that form a union."""

    below: int = 0
    here: Mapping[int, Holes] = field(default_factory=dict)
    apart: Mapping[int, tuple[SegmentPlace, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProgressHead:
    """A head holds the whole report of one writer on one partition of one subscription.

    `life`: the incarnations of topic and subscription in the cluster whose topic that is. `deliveries`: counts and
    delay times, in offsets of the origin.
    """

    life: tuple[int, int]
    origins: Mapping[Origin, SavedAcks] = field(default_factory=dict)
    deliveries: Mapping[Origin, Deliveries] = field(default_factory=dict)


_PLACE: Final = record(SegmentPlace, save=VARINT, number=VARINT, offset=VARINT)
_ACKS: Final = record(SavedAcks, below=VARINT, here=table(VARINT, HOLES), apart=table(VARINT, listed(_PLACE)))
_ORIGIN: Final = record(Origin, cluster=TEXT, incarnation=VARINT)
_NO_DELIVERIES: Final[Mapping[Origin, Deliveries]] = {}
encode_head, decode_head = Whole(
    "head of a subscription's progress",
    record(
        ProgressHead,
        life=row(VARINT, VARINT),
        origins=table(_ORIGIN, _ACKS),
        deliveries=if_any(table(_ORIGIN, DELIVERIES), _NO_DELIVERIES),
    ),
    FORMAT,
).both
_SEGMENTS: Final = Whole("segment of a subscription's progress", row(VARINT, HOLES), FORMAT)


def encode_segment(block: int, holes: Holes) -> bytes:
    return _SEGMENTS.encode((block, holes))


def decode_segment(value: bytes) -> tuple[int, Holes]:
    """(block, what is acknowledged in it). Raises CorruptRecord."""
    block, holes = _SEGMENTS.decode(value)
    return block, holes
