"""The marker of a cursor's save is the index of its live segments; it is written after them and before the group
commit.

    marker   = format u8 | 0 u8 | index                          all in one record
             | format u8 | 1 u8 | page offsets: count varint, (varint)*      the index in pages
    page     = format u8 | 2 u8 | a piece of the index
    index    = lineage | sessions: count varint, (16)*
             | ledgers: count varint, (ledger index varint, summary, parts)*
             | obsolete segments: count varint, (ledger index varint, segment)*
             | obsolete markers: count varint, (session number, save, pages: varints)* | deliveries
    summary  = acked, lowest, highest, leading, runs, batches, size: varints
    parts    = count varint, (segment)*
    segment  = offset, session number, save, segment: varints

The summaries let a cursor be opened without reading a single segment. Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pulsar_on_kafka.mapping.encoding.varint import Reader, write_varint
from pulsar_on_kafka.mapping.errors import CorruptRecord
from pulsar_on_kafka.mapping.state.cursors.cursor_state import (
    FORMAT,
    Lineage,
    lineage_bytes,
    opened,
    read_deliveries_if_any,
    read_lineage,
)
from pulsar_on_kafka.mapping.state.cursors.delivery_counts import Deliveries, write_deliveries

_WHOLE: Final = 0
_IN_PAGES: Final = 1
_PAGE: Final = 2


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """A reference finds one segment record: the ledger it speaks of, its offset in `cursors`, and the variable parts of
    its key."""

    ledger_index: int
    kafka_offset: int
    session: bytes
    save: int
    segment: int


@dataclass(frozen=True, slots=True)
class MarkerRef:
    """A reference has the variable parts of a marker's key, and how many pages it has beside its own record."""

    session: bytes
    save: int
    pages: int = 0


@dataclass(frozen=True, slots=True)
class LedgerSummary:
    """A summary tells what is known of a ledger's acknowledged entries without reading its segments.

    Attributes:
        acked: how many entries are acknowledged.
        lowest: the first of them (entry id; 0 when there is none).
        highest: the last of them.
        leading: how many entries from 0 on are acknowledged.
        runs: how many ranges they make.
        batches: batch entries of which some messages are acknowledged.
        size_bytes: of the segments' records.
    """

    acked: int
    lowest: int
    highest: int
    leading: int
    runs: int
    batches: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SavedLedger:
    """The holes of a ledger lie here: usually in one segment."""

    summary: LedgerSummary
    parts: tuple[SegmentRef, ...]

    @property
    def ledger_index(self) -> int:
        return self.parts[0].ledger_index


@dataclass(frozen=True, slots=True)
class Marker:
    """A marker lists a save's live segments, and what it made obsolete (tombstoned once the commit was accepted)."""

    lineage: Lineage
    live: tuple[SavedLedger, ...]
    obsolete: tuple[SegmentRef, ...] = ()
    obsolete_markers: tuple[MarkerRef, ...] = ()
    deliveries: Deliveries | None = None


def encode_index(marker: Marker) -> bytes:
    """The marker's contents, of any length; `marker_records` makes records of it."""
    out = bytearray(lineage_bytes(marker.lineage))
    named: list[SegmentRef | MarkerRef] = [ref for ledger in marker.live for ref in ledger.parts]
    named += [*marker.obsolete, *marker.obsolete_markers]
    sessions = sorted({ref.session for ref in named})
    numbers = {session: number for number, session in enumerate(sessions)}
    write_varint(out, len(sessions))
    for session in sessions:
        out += session

    def write(*values: int) -> None:
        for value in values:
            write_varint(out, value)

    write(len(marker.live))
    for ledger in marker.live:
        summary = ledger.summary
        write(ledger.ledger_index, summary.acked, summary.lowest, summary.highest, summary.leading, summary.runs)
        write(summary.batches, summary.size_bytes, len(ledger.parts))
        for ref in ledger.parts:
            write(ref.kafka_offset, numbers[ref.session], ref.save, ref.segment)
    write(len(marker.obsolete))
    for ref in marker.obsolete:
        write(ref.ledger_index, ref.kafka_offset, numbers[ref.session], ref.save, ref.segment)
    write(len(marker.obsolete_markers))
    for old in marker.obsolete_markers:
        write(numbers[old.session], old.save, old.pages)
    if marker.deliveries is not None:
        write_deliveries(out, marker.deliveries)
    return bytes(out)


def decode_index(index: bytes) -> Marker:
    """Raises CorruptRecord."""
    reader = Reader(index, "cursor marker")
    lineage = read_lineage(reader)
    sessions = [reader.take(16) for _ in range(reader.count(16))]

    def session() -> bytes:
        number = reader.varint()
        if number >= len(sessions):
            raise CorruptRecord(f"cursor marker names session {number} of {len(sessions)}")
        return sessions[number]

    def segment(ledger_index: int) -> SegmentRef:
        return SegmentRef(ledger_index, reader.varint(), session(), reader.varint(), reader.varint())

    live = []
    for _ in range(reader.count(13)):
        ledger_index = reader.varint()
        summary = LedgerSummary(*(reader.varint() for _ in range(7)))
        parts = tuple(segment(ledger_index) for _ in range(reader.count(4)))
        if not parts:
            raise CorruptRecord(f"cursor marker names no segment of ledger {ledger_index}")
        live.append(SavedLedger(summary, parts))
    obsolete = tuple(segment(reader.varint()) for _ in range(reader.count(5)))
    old = tuple(MarkerRef(session(), reader.varint(), reader.varint()) for _ in range(reader.count(3)))
    deliveries = read_deliveries_if_any(reader)
    reader.expect_end()
    return Marker(lineage, tuple(live), obsolete, old, deliveries)


def pages_of(index: bytes, largest_bytes: int) -> list[bytes]:
    """The page records of an index that is longer than `largest_bytes`; none for a shorter one."""
    if len(index) + 2 <= largest_bytes:
        return []
    step = largest_bytes - 2
    return [bytes((FORMAT, _PAGE)) + index[at : at + step] for at in range(0, len(index), step)]


def whole_marker(index: bytes) -> bytes:
    """The marker record of an index without pages."""
    return bytes((FORMAT, _WHOLE)) + index


def paged_marker(page_offsets: Sequence[int]) -> bytes:
    """The marker record of an index whose pages lie at these offsets, in order."""
    out = bytearray((FORMAT, _IN_PAGES))
    write_varint(out, len(page_offsets))
    for offset in page_offsets:
        write_varint(out, offset)
    return bytes(out)


def open_marker(value: bytes) -> bytes | tuple[int, ...]:
    """The index in a marker record, or the offsets of its pages. Raises CorruptRecord."""
    reader = opened(value, "cursor marker")
    kind = reader.take(1)[0]
    if kind == _WHOLE:
        return value[2:]
    if kind != _IN_PAGES:
        raise CorruptRecord(f"cursor marker is of kind {kind}, expected {_WHOLE} or {_IN_PAGES}")
    offsets = tuple(reader.varint() for _ in range(reader.count(1)))
    reader.expect_end()
    return offsets


def page_contents(value: bytes) -> bytes:
    """Raises CorruptRecord."""
    kind = opened(value, "page of a cursor marker").take(1)[0]
    if kind != _PAGE:
        raise CorruptRecord(f"page of a cursor marker is of kind {kind}, expected {_PAGE}")
    return value[2:]


def obsolete_after(live: Iterable[SegmentRef], kept: Iterable[SegmentRef]) -> tuple[SegmentRef, ...]:
    """Segments of `live` that `kept` no longer names."""
    names = {(ref.session, ref.save, ref.segment) for ref in kept}
    return tuple(ref for ref in live if (ref.session, ref.save, ref.segment) not in names)
