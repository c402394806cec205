"""The records of a cursor in the state topic `cursors`: segments of ledgers, and the markers that index them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from pyroaring import BitMap

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Corrupt
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity
from pulsar_on_kafka.statelog.api import LogRecord, StateLog, tombstone
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.state.cursors.cursor_marker import (
    Marker,
    MarkerRef,
    SavedLedger,
    SegmentRef,
    decode_index,
    encode_index,
    open_marker,
    page_contents,
    paged_marker,
    pages_of,
    whole_marker,
)
from pulsar_on_kafka_mapping.state.cursors.cursor_state import Holes, Lineage, Segment, decode_segment, encode_segment
from pulsar_on_kafka_mapping.state.state_keys import CursorSegmentKey, encode_key
from pulsar_on_kafka_mapping.state.state_topics import CURSORS

MARKER_SEGMENT: Final = -1
"""Stands where a segment's number stands in the key of a marker; the pages of its index have -2, -3 ..."""
LARGEST_RECORD_BYTES: Final = 900_000
"""The limit of a value: with its key it stays below Kafka's usual `message.max.bytes`, and the state topic's."""

_MAX_IN_ONE_READ: Final = 500


class CursorSegments:
    """Reads and writes them. Blocking. No record exceeds `LARGEST_RECORD_BYTES`, however large a ledger's state is."""

    def __init__(self, log: StateLog) -> None:
        self._log = log

    def write_ledgers(
        self, identity: CursorIdentity, state: CursorState, indexes: Sequence[int], lineage: Lineage, deadline: Deadline
    ) -> dict[int, SavedLedger]:
        """Make the segments of these ledgers durable. Raises StoreError."""
        records: list[tuple[bytes, bytes]] = []
        owners: list[int] = []
        sizes: dict[int, int] = dict.fromkeys(indexes, 0)
        for index in indexes:
            for part in _parts(state.holes_of(index), LARGEST_RECORD_BYTES):
                value = encode_segment(Segment(lineage, index, part))
                records.append((encode_key(_key(identity, lineage.session, lineage.save, len(records))), value))
                owners.append(index)
                sizes[index] += len(value)
        offsets = self._log.append_many(CURSORS, CURSORS.partition_for(identity.topic), records, deadline)
        refs: dict[int, list[SegmentRef]] = {index: [] for index in indexes}
        for number, (index, offset) in enumerate(zip(owners, offsets, strict=True)):
            refs[index].append(SegmentRef(index, offset, lineage.session, lineage.save, number))
        return {index: SavedLedger(state.summary(index, sizes[index]), tuple(refs[index])) for index in indexes}

    def write_marker(self, identity: CursorIdentity, marker: Marker, deadline: Deadline) -> tuple[int, MarkerRef]:
        """Make an index of live segments durable; gives the marker's offset in the log. Raises StoreError."""
        partition = CURSORS.partition_for(identity.topic)
        session, save = marker.lineage.session, marker.lineage.save
        index = encode_index(marker)
        pages = pages_of(index, LARGEST_RECORD_BYTES)
        if pages:
            keys = [encode_key(_key(identity, session, save, MARKER_SEGMENT - 1 - page)) for page in range(len(pages))]
            value = paged_marker(
                self._log.append_many(CURSORS, partition, list(zip(keys, pages, strict=True)), deadline)
            )
        else:
            value = whole_marker(index)
        key = encode_key(_key(identity, session, save, MARKER_SEGMENT))
        offset = self._log.append(CURSORS, partition, key, value, deadline)
        return offset, MarkerRef(session, save, len(pages))

    def tombstone(
        self,
        identity: CursorIdentity,
        segments: Iterable[SegmentRef],
        markers: Iterable[MarkerRef],
        deadline: Deadline,
    ) -> None:
        """Raises StoreError."""
        keys = [_key(identity, ref.session, ref.save, ref.segment) for ref in segments]
        keys += [
            _key(identity, ref.session, ref.save, MARKER_SEGMENT - page)
            for ref in markers
            for page in range(ref.pages + 1)
        ]
        place = CURSORS.partition_for(identity.topic)
        tombstone(self._log, CURSORS, place, [encode_key(key) for key in keys], deadline)

    def read_marker(self, identity: CursorIdentity, offset: int, deadline: Deadline) -> tuple[Marker, MarkerRef]:
        """Raises Corrupt, StoreError."""
        with self._as_corrupt("marker", identity, offset):
            _, index, pages = self._marker(identity, offset, deadline)
            marker = decode_index(index if not pages else b"".join(map(page_contents, pages)))
        return marker, MarkerRef(marker.lineage.session, marker.lineage.save, len(pages))

    def marker_bytes(self, identity: CursorIdentity, offset: int, deadline: Deadline) -> list[int]:
        """Sizes of a marker's record and its pages'. Raises Corrupt, StoreError."""
        with self._as_corrupt("marker", identity, offset):
            found, _, pages = self._marker(identity, offset, deadline)
        return [len(found), *map(len, pages)]

    def _marker(self, identity: CursorIdentity, offset: int, deadline: Deadline) -> tuple[bytes, bytes, list[bytes]]:
        """Its record, and the index that it holds, or else its pages."""
        found = self._read(identity, {offset: _ALL}, "marker", deadline)[offset]
        index = open_marker(found)
        if isinstance(index, bytes):
            return found, index, []
        records = self._read(identity, dict.fromkeys(index, _ALL), "page of the marker", deadline)
        return found, b"", [records[page] for page in index]

    def read_ledgers(
        self, identity: CursorIdentity, ledgers: Mapping[int, SavedLedger], deadline: Deadline
    ) -> Iterator[tuple[int, Holes]]:
        """The holes of these ledgers, ascending. Raises Corrupt, StoreError."""
        waiting = sorted(ledgers)
        while waiting:
            some, waiting = waiting[:_MAX_IN_ONE_READ], waiting[_MAX_IN_ONE_READ:]
            requested = {
                ref.kafka_offset: _description(identity, ledgers[at]) for at in some for ref in ledgers[at].parts
            }
            records = self._read(identity, requested, "segment", deadline)
            for index in some:
                yield index, self._joined(identity, ledgers[index], records)

    def _joined(self, identity: CursorIdentity, ledger: SavedLedger, records: Mapping[int, bytes]) -> Holes:
        acked = BitMap()
        batches: dict[int, tuple[int, int]] = {}
        for ref in ledger.parts:
            with self._as_corrupt("segment", identity, ref.kafka_offset):
                segment = decode_segment(records[ref.kafka_offset])
            if segment.ledger_index != ledger.ledger_index or segment.lineage.session != ref.session:
                here = self._where("segment", identity, ref.kafka_offset)
                raise Corrupt(f"{here} speaks of ledger {segment.ledger_index}, expected {ledger.ledger_index}")
            acked |= segment.holes.acked
            batches.update(segment.holes.batches)
        return Holes(acked, batches)

    def _read(
        self, identity: CursorIdentity, requested: Mapping[int, str], what: str, deadline: Deadline
    ) -> Mapping[int, bytes]:
        """Values by offset; `requested` names the state that is lost if the record is missing."""
        partition = CURSORS.partition_for(identity.topic)
        records = self.records_at(partition, sorted(requested), deadline)
        values = {}
        for offset, lost in requested.items():
            record = records.get(offset)
            if record is None or record.value is None:
                raise Corrupt(
                    f"{self._where(what, identity, offset)} is gone, and with it which of {lost} are acknowledged"
                )
            values[offset] = record.value
        return values

    def records_at(self, partition: int, offsets: Sequence[int], deadline: Deadline) -> Mapping[int, LogRecord]:
        """The records at these offsets of one partition of `cursors`; what is gone is missing. Raises StoreError."""
        return self._log.read_at(CURSORS, partition, offsets, deadline)

    @contextmanager
    def _as_corrupt(self, what: str, identity: CursorIdentity, offset: int) -> Iterator[None]:
        try:
            yield
        except CorruptRecord as error:
            raise Corrupt(f"{self._where(what, identity, offset)}: {error}") from error

    def _where(self, what: str, identity: CursorIdentity, offset: int) -> str:
        partition = f"{self._log.kafka_name(CURSORS)}-{CURSORS.partition_for(identity.topic)}"
        return f"{what} of cursor {identity} at {partition} offset {offset}"


_ALL: Final = "all entries above its mark-delete position"


def _description(identity: CursorIdentity, ledger: SavedLedger) -> str:
    base, summary = ledger.ledger_index * identity.entries_per_ledger, ledger.summary
    if not summary.acked:
        return f"{summary.batches} batch entries from offset {base} on"
    return f"the offsets {base + summary.lowest} to {base + summary.highest} (there were {summary.acked})"


def _key(identity: CursorIdentity, session: bytes, save: int, segment: int) -> CursorSegmentKey:
    return CursorSegmentKey(identity.topic, identity.partition, identity.subscription, session.hex(), save, segment)


def _parts(holes: Holes, largest_bytes: int) -> Iterator[Holes]:
    """Parts that fit a record each. A bitmap always fits: a ledger has 4,194,304 entries at most."""
    room = largest_bytes - len(holes.acked.serialize()) - 200
    acked, batches = holes.acked, dict[int, tuple[int, int]]()
    for entry in sorted(holes.batches):
        size, bits = holes.batches[entry]
        needed = 20 + size // 8
        if needed > room and (batches or acked):
            yield Holes(acked, batches)
            acked, batches, room = BitMap(), {}, largest_bytes - 200
        batches[entry] = (size, bits)
        room -= needed
    yield Holes(acked, batches)
