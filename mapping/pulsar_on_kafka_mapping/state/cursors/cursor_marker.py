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

from pulsar_on_kafka_mapping.encoding.varint import ByteReader
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.state.codecs.formats import expect_format
from pulsar_on_kafka_mapping.state.codecs.layouts import VARINT, Whole, listed, raw, record, row
from pulsar_on_kafka_mapping.state.cursors.cursor_state import DELIVERIES_IF_ANY, FORMAT, LINEAGE, Deliveries, Lineage

_WHOLE: Final = 0
_IN_PAGES: Final = 1
_PAGE: Final = 2
_PAGE_OFFSETS: Final = Whole("cursor marker", listed(VARINT))


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
    """The summary of a ledger's acknowledged entries, available without reading its segments.

    Attributes:
        acked: the number of acknowledged entries.
        lowest: the first of them (entry id; 0 when there is none).
        highest: the last of them.
        leading: the number of acknowledged entries from 0 on.
        runs: the number of their ranges.
        batches: batch entries of which some messages are acknowledged.
        size_bytes: the size of the segments' records.
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


_SUMMARY: Final = record(
    LedgerSummary, acked=VARINT, lowest=VARINT, highest=VARINT, leading=VARINT, runs=VARINT, batches=VARINT,
    size_bytes=VARINT,
)  # fmt: skip
_INDEX: Final = Whole(
    "cursor marker",
    row(
        LINEAGE,
        listed(raw(16)),
        listed(row(VARINT, _SUMMARY, listed(row(VARINT, VARINT, VARINT, VARINT)))),
        listed(row(VARINT, VARINT, VARINT, VARINT, VARINT)),
        listed(row(VARINT, VARINT, VARINT)),
        DELIVERIES_IF_ANY,
    ),
)


def encode_index(marker: Marker) -> bytes:
    """The marker's contents, of any length; `pages_of` and `whole_marker` make records of it."""
    named: list[SegmentRef | MarkerRef] = [ref for ledger in marker.live for ref in ledger.parts]
    sessions = sorted({ref.session for ref in [*named, *marker.obsolete, *marker.obsolete_markers]})
    numbers = {session: number for number, session in enumerate(sessions)}
    live = [
        (
            ledger.ledger_index,
            ledger.summary,
            [(ref.kafka_offset, numbers[ref.session], ref.save, ref.segment) for ref in ledger.parts],
        )
        for ledger in marker.live
    ]
    obsolete = [
        (ref.ledger_index, ref.kafka_offset, numbers[ref.session], ref.save, ref.segment) for ref in marker.obsolete
    ]
    old = [(numbers[ref.session], ref.save, ref.pages) for ref in marker.obsolete_markers]
    return _INDEX.encode((marker.lineage, sessions, live, obsolete, old, marker.deliveries))


def decode_index(index: bytes) -> Marker:
    """Raises CorruptRecord."""
    lineage, sessions, live, obsolete, old, deliveries = _INDEX.decode(index)
    if not all(parts for _, _, parts in live):
        raise CorruptRecord("cursor marker names no segment of a ledger")
    try:
        return Marker(
            lineage,
            tuple(
                [
                    SavedLedger(
                        summary, tuple([SegmentRef(ledger, at, sessions[number], *of) for at, number, *of in parts])
                    )
                    for ledger, summary, parts in live
                ]
            ),
            tuple([SegmentRef(ledger, at, sessions[number], *of) for ledger, at, number, *of in obsolete]),
            tuple([MarkerRef(sessions[number], *of) for number, *of in old]),
            deliveries,
        )
    except IndexError as error:
        raise CorruptRecord(f"cursor marker names another session than the {len(sessions)} that it has") from error


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
    return bytes((FORMAT, _IN_PAGES)) + _PAGE_OFFSETS.encode(tuple(page_offsets))


def open_marker(value: bytes) -> bytes | tuple[int, ...]:
    """The index in a marker record, or the offsets of its pages. Raises CorruptRecord."""
    kind = _kind(value, "cursor marker")
    if kind == _WHOLE:
        return value[2:]
    if kind != _IN_PAGES:
        raise CorruptRecord(f"cursor marker is of kind {kind}, expected {_WHOLE} or {_IN_PAGES}")
    return _PAGE_OFFSETS.decode(value[2:])


def _kind(value: bytes, what: str) -> int:
    reader = ByteReader(value, what)
    expect_format(reader.take(1)[0], FORMAT, what)
    return reader.take(1)[0]


def page_contents(value: bytes) -> bytes:
    """Raises CorruptRecord."""
    kind = _kind(value, "page of a cursor marker")
    if kind != _PAGE:
        raise CorruptRecord(f"page of a cursor marker is of kind {kind}, expected {_PAGE}")
    return value[2:]


def obsolete_after(live: Iterable[SegmentRef], kept: Iterable[SegmentRef]) -> tuple[SegmentRef, ...]:
    """Segments of `live` that `kept` no longer names."""
    names = {(ref.session, ref.save, ref.segment) for ref in kept}
    return tuple(ref for ref in live if (ref.session, ref.save, ref.segment) not in names)
