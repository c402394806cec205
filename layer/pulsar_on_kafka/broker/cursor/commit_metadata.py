"""Holes of a cursor ride in the metadata of its commit, as long as they fit. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from pyroaring import BitMap, BitMap64

from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka_mapping.state.cursors.cursor_state import (
    MAX_METADATA_CHARS,
    CommitMetadata,
    Holes,
    Lineage,
    encode_commit_metadata,
)

_INLINE_BITMAP_BYTES: Final = MAX_METADATA_CHARS * 4 // 5
_TOO_MANY_LEDGERS_TO_INLINE: Final = 512


def positions(state: CursorState) -> BitMap64:
    return BitMap64(offset for index in state.ledgers_with_state() for offset in _offsets(state, index))


def holes_at(state: CursorState, origin: int, offsets: Iterable[int]) -> Holes:
    """Holes at these positions, as far as they are known, relative to `origin`."""
    acked = BitMap()
    batches: dict[int, tuple[int, int]] = {}
    for offset in offsets:
        acks = state.batches.get(offset)
        if acks is None:
            acked.add(offset - origin)
        else:
            batches[offset - origin] = acks
    return Holes(acked, batches)


def left_out(state: CursorState, index: int, beside: BitMap64) -> int:
    size = state.deleted.entries_per_ledger
    held = int(beside.range_cardinality(index * size, (index + 1) * size))
    return max(0, len(state.deleted.ledger(index) or ()) + len(state.batches.ledger(index)) - held)


def _offsets(state: CursorState, index: int) -> Iterator[int]:
    base = index * state.deleted.entries_per_ledger
    yield from (base + entry for entry in state.deleted.ledger(index) or ())
    yield from state.batches.ledger(index)


def inline_metadata(state: CursorState, lineage: Lineage) -> str | None:
    """The commit's metadata with all holes in it, or None when it would be too long."""
    if state.deleted.away or state.batches.away:
        return None
    if len(state.deleted.ledger_indexes()) >= _TOO_MANY_LEDGERS_TO_INLINE or len(state.batches) > _INLINE_BITMAP_BYTES:
        return None
    origin = state.next_unacked
    size = state.deleted.entries_per_ledger
    acked = BitMap()
    for index, bitmap in state.deleted.ledgers():
        if len(acked) > 0 and len(acked.serialize()) > 2 * _INLINE_BITMAP_BYTES:
            return None
        shift = index * size - origin
        if shift + int(bitmap.max()) > 0xFFFF_FFFF:
            return None
        acked |= bitmap.shift(shift)
    batches = {offset - origin: acks for offset, acks in state.batches.items()}
    return fitting_metadata(state, lineage, Holes(acked, batches))


def fitting_metadata(
    state: CursorState, lineage: Lineage, holes: Holes, marker_offset: int | None = None
) -> str | None:
    """`metadata`, or None when it would be too long."""
    text = metadata(state, lineage, holes, marker_offset)
    return text if len(text) <= MAX_METADATA_CHARS else None


def metadata(state: CursorState, lineage: Lineage, holes: Holes | None, marker_offset: int | None) -> str:
    """The metadata of a commit for a state; without `holes` the marker has these, and the deliveries."""
    deliveries = None if holes is None else state.deliveries
    return encode_commit_metadata(
        CommitMetadata(lineage, holes, marker_offset, deliveries, state.requests, state.pending_acks, state.leased_from)
    )
