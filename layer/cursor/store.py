"""How a cursor's state gets to Kafka and back: the group commit, and segments behind it when the holes do not fit.

The group commit is the moment of truth: it is atomic per partition and refused for a member that lost its place. What
a commit refers to (a marker, which refers to segments) is durable before; what it made obsolete is tombstoned after.
Source: design.md 6; Pulsar's ManagedCursorImpl keeps the index in the metadata store and the body in a cursor ledger.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pyroaring import BitMap

from layer.cursor.machine import BatchAckSet, CursorState
from layer.cursor.positions import PositionSet
from layer.deadline import Deadline
from layer.errors import Corrupt
from layer.kafka.records import CommittedOffset
from layer.statelog.api import StateLog
from mapping.errors import CorruptRecord
from mapping.state_keys import CursorCheckpointKey, CursorSegmentKey, encode_key
from mapping.state_records.cursor_checkpoint import CursorCheckpoint, encode_checkpoint
from mapping.state_records.cursor_state import (
    MAX_METADATA_CHARS,
    CommitMetadata,
    Holes,
    Lineage,
    Marker,
    MarkerRef,
    Segment,
    SegmentRef,
    decode_commit_metadata,
    decode_marker,
    decode_segment,
    encode_commit_metadata,
    encode_marker,
    encode_segment,
    obsolete_after,
)
from mapping.state_topics import CURSOR_CHECKPOINTS, CURSORS

_log = logging.getLogger(__name__)

MARKER_SEGMENT = -1
"""Stands where a segment's number stands in the key of a marker."""

_INLINE_BITMAP_BYTES = MAX_METADATA_CHARS * 4 // 5
_TOO_MANY_LEDGERS_TO_INLINE = 512


@dataclass(frozen=True, slots=True)
class CursorIdentity:
    """Which cursor: a subscription on one partition of one life of a topic. `topic` is the partitioned topic's name."""

    topic: str
    partition: int
    subscription: str
    kafka_topic: str
    kafka_topic_id: str
    topic_incarnation: int
    subscription_incarnation: int
    entries_per_ledger: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.subscription}[{self.partition}]"

    def lineage(self, session: bytes, version: int, save: int) -> Lineage:
        return Lineage(
            self.kafka_topic_id, self.topic_incarnation, self.subscription_incarnation, session, version, save
        )


@dataclass(slots=True)
class Saved:
    """What the last accepted save left on Kafka: its lineage, live segments by ledger index, and its marker."""

    lineage: Lineage
    segments: dict[int, SegmentRef] = field(default_factory=dict)
    marker: MarkerRef | None = None


@dataclass(frozen=True, slots=True)
class Recovered:
    """A cursor as read back. `source` says from what: commit, seek, checkpoint or start."""

    state: CursorState
    saved: Saved | None
    source: str


@dataclass(frozen=True, slots=True)
class Save:
    """One save, ready for the group commit; `accept` it once the commit was."""

    commit: CommittedOffset
    saved: Saved
    obsolete: tuple[SegmentRef, ...]
    obsolete_markers: tuple[MarkerRef, ...]
    revision: int
    written_ledgers: frozenset[int]
    """Ledgers that it took along; dirty no more once accepted, dirty again if refused."""
    new_segments: tuple[SegmentRef, ...]
    size_bytes: int


def new_session() -> bytes:
    return secrets.token_bytes(16)


class CursorStore:
    """Reads and prepares saves of the cursors of one subscription. Blocking; used by the owner's thread."""

    def __init__(self, log: StateLog) -> None:
        self._log = log

    # Reading ------------------------------------------------------------------------------------------------------

    def recover(
        self,
        identity: CursorIdentity,
        committed: CommittedOffset | None,
        checkpoint: CommittedOffset | None,
        start_offset: int,
        deadline: Deadline,
    ) -> Recovered:
        """The cursor as its last accepted save left it.

        A commit without our metadata was made by a Kafka tool and is taken as a seek. State of another life of the
        topic or the subscription is ignored. Without a commit the checkpoint counts, then `start_offset`.

        Raises:
            Corrupt: metadata, marker or segment claims to be this cursor's and cannot be read.
        """
        for source, candidate in (("commit", committed), ("checkpoint", checkpoint)):
            if candidate is None:
                continue
            metadata = self._metadata(identity, candidate)
            if metadata is None:
                if source == "commit":
                    return Recovered(CursorState(candidate.kafka_offset, identity.entries_per_ledger), None, "seek")
                continue
            if not metadata.lineage.same_life(identity.lineage(b"", 0, 0)):
                _log.info("cursor=%s ignored state of another life, %s", identity, metadata.lineage)
                continue
            return self._restore(identity, candidate.kafka_offset, metadata, source, deadline)
        return Recovered(CursorState(start_offset, identity.entries_per_ledger), None, "start")

    def _metadata(self, identity: CursorIdentity, candidate: CommittedOffset) -> CommitMetadata | None:
        try:
            return decode_commit_metadata(candidate.metadata)
        except CorruptRecord as error:
            raise Corrupt(f"cursor {identity}: committed offset {candidate.kafka_offset}: {error}") from error

    def _restore(
        self, identity: CursorIdentity, next_unacked: int, metadata: CommitMetadata, source: str, deadline: Deadline
    ) -> Recovered:
        size = identity.entries_per_ledger
        state = CursorState(next_unacked, size)
        deleted = PositionSet(size)
        batches: dict[int, BatchAckSet] = {}
        saved = Saved(metadata.lineage)
        if metadata.marker_offset is not None:
            marker = self._read_marker(identity, metadata.marker_offset, deadline)
            saved.segments = {ref.ledger_index: ref for ref in marker.live}
            saved.marker = MarkerRef(marker.lineage.session, marker.lineage.save)
            for segment in self._read_segments(identity, marker, deadline):
                base = segment.ledger_index * size
                deleted.put_ledger(segment.ledger_index, segment.holes.acked)
                batches.update((base + entry, BatchAckSet(*acks)) for entry, acks in segment.holes.batches.items())
            self._tombstone(identity, marker.obsolete, marker.obsolete_markers, deadline)
        elif metadata.holes is not None:
            if metadata.holes.acked:
                deleted.add_all([next_unacked + relative for relative in metadata.holes.acked])
            batches = {next_unacked + relative: BatchAckSet(*acks) for relative, acks in metadata.holes.batches.items()}
        state.restore(deleted, batches)
        return Recovered(state, saved, source)

    def _read_marker(self, identity: CursorIdentity, offset: int, deadline: Deadline) -> Marker:
        partition = CURSORS.partition_for(identity.topic)
        record = self._log.read_at(CURSORS, partition, [offset], deadline).get(offset)
        here = f"marker of cursor {identity} at {CURSORS.kafka_name}-{partition} offset {offset}"
        if record is None or record.value is None:
            raise Corrupt(f"{here} is gone")
        try:
            return decode_marker(record.value)
        except CorruptRecord as error:
            raise Corrupt(f"{here}: {error}") from error

    def _read_segments(self, identity: CursorIdentity, marker: Marker, deadline: Deadline) -> list[Segment]:
        partition = CURSORS.partition_for(identity.topic)
        offsets = sorted(ref.kafka_offset for ref in marker.live)
        records = self._log.read_at(CURSORS, partition, offsets, deadline)
        segments = []
        for offset in offsets:
            here = f"segment of cursor {identity} at {CURSORS.kafka_name}-{partition} offset {offset}"
            record = records.get(offset)
            if record is None or record.value is None:
                raise Corrupt(f"{here} is gone")
            try:
                segments.append(decode_segment(record.value))
            except CorruptRecord as error:
                raise Corrupt(f"{here}: {error}") from error
        return segments

    # Writing ------------------------------------------------------------------------------------------------------

    def prepare(
        self, identity: CursorIdentity, state: CursorState, last: Saved, lineage: Lineage, deadline: Deadline
    ) -> Save:
        """Make everything that the next group commit refers to durable, and give that commit.

        Writes nothing when the holes fit into the commit's metadata; else the segments of the dirty ledgers and then
        a marker that names all live ones. `state.dirty_ledgers` is emptied; see `Save.written_ledgers`.
        """
        inline = _inline_metadata(state, lineage)
        if inline is not None:
            taken = frozenset(state.dirty_ledgers)
            state.dirty_ledgers = set()  # once accepted there are no live segments, so every ledger counts as dirty
            return Save(
                CommittedOffset(state.next_unacked, inline),
                Saved(lineage),
                tuple(last.segments.values()),
                (last.marker,) if last.marker is not None else (),
                state.revision,
                taken,
                (),
                len(inline),
            )
        return self._prepare_segments(identity, state, last, lineage, deadline)

    def _prepare_segments(
        self, identity: CursorIdentity, state: CursorState, last: Saved, lineage: Lineage, deadline: Deadline
    ) -> Save:
        partition = CURSORS.partition_for(identity.topic)
        with_state = _ledgers_with_state(state)
        dirty = sorted(index for index in with_state if index in state.dirty_ledgers or index not in last.segments)
        records: list[tuple[bytes, bytes]] = []
        for number, index in enumerate(dirty):
            value = encode_segment(Segment(lineage, index, _holes_of_ledger(state, index)))
            records.append((encode_key(_segment_key(identity, lineage.session, lineage.save, number)), value))
        offsets = self._log.append_many(CURSORS, partition, records, deadline)
        new = tuple(
            SegmentRef(index, offset, lineage.session, lineage.save, number)
            for number, (index, offset) in enumerate(zip(dirty, offsets, strict=True))
        )
        segments = {index: ref for index, ref in last.segments.items() if index in with_state}
        segments.update((ref.ledger_index, ref) for ref in new)
        live = tuple(segments[index] for index in sorted(segments))
        obsolete = obsolete_after(tuple(last.segments.values()), live)
        old_markers = (last.marker,) if last.marker is not None else ()
        marker = encode_marker(Marker(lineage, live, obsolete, old_markers))
        marker_key = encode_key(_segment_key(identity, lineage.session, lineage.save, MARKER_SEGMENT))
        marker_offset = self._log.append(CURSORS, partition, marker_key, marker, deadline)
        metadata = encode_commit_metadata(CommitMetadata(lineage, None, marker_offset))
        state.dirty_ledgers = set()
        return Save(
            CommittedOffset(state.next_unacked, metadata),
            Saved(lineage, segments, MarkerRef(lineage.session, lineage.save)),
            obsolete,
            old_markers,
            state.revision,
            frozenset(dirty),
            new,
            len(metadata) + len(marker) + sum(len(value) for _, value in records),
        )

    def clean(
        self,
        identity: CursorIdentity,
        segments: tuple[SegmentRef, ...],
        markers: tuple[MarkerRef, ...],
        deadline: Deadline,
    ) -> None:
        """Tombstone what an accepted save made obsolete."""
        self._tombstone(identity, segments, markers, deadline)

    def _tombstone(
        self,
        identity: CursorIdentity,
        segments: tuple[SegmentRef, ...],
        markers: tuple[MarkerRef, ...],
        deadline: Deadline,
    ) -> None:
        keys = [_segment_key(identity, ref.session, ref.save, ref.segment) for ref in segments]
        keys += [_segment_key(identity, ref.session, ref.save, MARKER_SEGMENT) for ref in markers]
        if keys:
            partition = CURSORS.partition_for(identity.topic)
            self._log.append_many(CURSORS, partition, [(encode_key(key), None) for key in keys], deadline)

    def forget(self, identity: CursorIdentity, saved: Saved, deadline: Deadline) -> None:
        """Tombstone everything that `saved` refers to: the subscription is gone."""
        markers = (saved.marker,) if saved.marker is not None else ()
        self._tombstone(identity, tuple(saved.segments.values()), markers, deadline)

    def write_checkpoint(
        self, identity: CursorIdentity, commit: CommittedOffset, lineage: Lineage, now_ms: int, deadline: Deadline
    ) -> None:
        """Copy an accepted commit to where Kafka does not forget it when the group stays empty for days."""
        value = encode_checkpoint(
            CursorCheckpoint(lineage.version, lineage.save, commit.kafka_offset, commit.metadata, now_ms)
        )
        key = encode_key(checkpoint_key(identity, lineage.session))
        self._log.append(CURSOR_CHECKPOINTS, CURSOR_CHECKPOINTS.partition_for(identity.topic), key, value, deadline)

    def drop_checkpoint(self, identity: CursorIdentity, session: bytes, deadline: Deadline) -> None:
        """Tombstone the checkpoint of a session that is over."""
        key = encode_key(checkpoint_key(identity, session))
        self._log.append(CURSOR_CHECKPOINTS, CURSOR_CHECKPOINTS.partition_for(identity.topic), key, None, deadline)


def checkpoint_key(identity: CursorIdentity, session: bytes) -> CursorCheckpointKey:
    return CursorCheckpointKey(identity.topic, identity.partition, identity.subscription, session.hex())


def _segment_key(identity: CursorIdentity, session: bytes, save: int, segment: int) -> CursorSegmentKey:
    return CursorSegmentKey(identity.topic, identity.partition, identity.subscription, session.hex(), save, segment)


def _ledgers_with_state(state: CursorState) -> set[int]:
    size = state.deleted.entries_per_ledger
    return state.deleted.ledger_indexes() | {offset // size for offset in state.batches}


def _holes_of_ledger(state: CursorState, index: int) -> Holes:
    size = state.deleted.entries_per_ledger
    base = index * size
    batches = {
        offset - base: (acks.batch_size, acks.acked)
        for offset, acks in state.batches.items()
        if base <= offset < base + size
    }
    return Holes(state.deleted.ledger(index) or BitMap(), batches)


def _inline_metadata(state: CursorState, lineage: Lineage) -> str | None:
    """The commit's metadata with all holes in it, or None when it would be too long."""
    ledgers = (
        list(state.deleted.ledgers()) if len(state.deleted.ledger_indexes()) < _TOO_MANY_LEDGERS_TO_INLINE else None
    )
    if ledgers is None or len(state.batches) > _INLINE_BITMAP_BYTES:
        return None
    origin = state.next_unacked
    size = state.deleted.entries_per_ledger
    acked = BitMap()
    for index, bitmap in ledgers:
        if len(acked) > 0 and len(acked.serialize()) > 2 * _INLINE_BITMAP_BYTES:
            return None
        shift = index * size - origin
        if shift + int(bitmap.max()) > 0xFFFF_FFFF:
            return None
        acked |= bitmap.shift(shift)
    batches = {offset - origin: (acks.batch_size, acks.acked) for offset, acks in state.batches.items()}
    text = encode_commit_metadata(CommitMetadata(lineage, Holes(acked, batches)))
    return text if len(text) <= MAX_METADATA_CHARS else None


def next_save(lineage: Lineage) -> Lineage:
    return replace(lineage, save=lineage.save + 1)


def describe_holes(state: CursorState, limit: int) -> Mapping[str, object]:
    """What an operator wants to know of the individually deleted positions."""
    return {
        "individually_deleted": len(state.deleted),
        "ledgers_with_holes": len(state.deleted.ledger_indexes()),
        "holes": state.deleted.gaps(state.next_unacked, limit),
    }
