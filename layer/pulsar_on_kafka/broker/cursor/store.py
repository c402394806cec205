"""The cursor store saves a cursor's state to Kafka and reads it back: the group commit, and segments behind it when the
holes do not fit.

The group commit is the moment of truth: it is atomic per partition and refused for a member that lost its place. What a
commit refers to (a marker, which refers to segments) is durable before; what it made obsolete is tombstoned after. Why:
layer/pulsar_on_kafka/broker/cursor/README.md. Pulsar's ManagedCursorImpl keeps the index in the metadata store and the
body in a cursor ledger.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice

from pyroaring import BitMap, BitMap64

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Corrupt, StoreError
from pulsar_on_kafka.broker.cursor import commit_metadata
from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.cursor.budget import HoleBudget
from pulsar_on_kafka.broker.cursor.commit_metadata import (
    fitting_metadata,
    holes_at,
    inline_metadata,
    left_out,
    positions,
)
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState, Loader
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity, is_of_one_take_over, new_session
from pulsar_on_kafka.broker.cursor.prefetched_segments import SegmentsAtHand
from pulsar_on_kafka.broker.cursor.saved_cursor import (
    AcceptedSave,
    Candidate,
    RecoveredCursor,
    Save,
    SavedCursor,
    Unneeded,
    UnreadableCursor,
    newest,
)
from pulsar_on_kafka.broker.cursor.segments import CursorSegments
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka.statelog.api import StateLog
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.state.cursors.cursor_marker import Marker, obsolete_after
from pulsar_on_kafka_mapping.state.cursors.cursor_state import (
    CommitMetadata,
    CursorCheckpoint,
    Holes,
    Lineage,
    decode_commit_metadata,
    encode_checkpoint,
)
from pulsar_on_kafka_mapping.state.state_keys import CursorCheckpointKey, encode_key
from pulsar_on_kafka_mapping.state.state_topics import CURSOR_CHECKPOINTS

_log = logging.getLogger(__name__)

_LOAD_TIMEOUT_S = 10.0
_MAX_OFFSETS_BESIDE = 30_000
"""A commit's 4,095 characters hold 26,000 bits."""


class CursorStore:
    """Reads and prepares saves of cursors. Blocking; used by the thread that owns the cursor."""

    def __init__(self, log: StateLog, segments: CursorSegments | None = None) -> None:
        """`segments`: reads and writes segments, instead of the log on demand."""
        self._log = log
        self._segments = segments or CursorSegments(log)
        self.budget = HoleBudget()
        """The memory budget of the cursors that are opened here."""

    def with_segments_at_hand(self) -> tuple[CursorStore, SegmentsAtHand]:
        """A store for callers that read many cursors, and its prefetched segments of `cursors`."""
        segments = SegmentsAtHand(self._log)
        return CursorStore(self._log, segments), segments

    # Reading ------------------------------------------------------------------------------------------------------

    def recover(
        self,
        identity: CursorIdentity,
        committed: CommittedOffset | None,
        checkpoint: CommittedOffset | None,
        start_offset: int,
        deadline: Deadline,
        elsewhere: CommittedOffset | None = None,
        *,
        with_holes: bool = True,
    ) -> RecoveredCursor:
        """The cursor as its last accepted save left it.

        A commit without this product's metadata was made by a Kafka tool and counts as a seek. State of another
        incarnation of the topic or the subscription is ignored. `elsewhere` is the commit of the group that served it
        in the other way (see `saved_cursor.newest`). Without any the checkpoint counts, then `start_offset`.

        Not `with_holes`: as if nothing were acknowledged above mark-delete. Records of individual acknowledgements need
        not be readable and are left to housekeeping.

        Raises:
            UnreadableCursor: metadata, marker or segment claims to be this cursor's and cannot be read.
        """
        former: list[CommitMetadata] = []
        own = self._candidate(identity, "commit", committed, former, with_holes)
        other = self._candidate(identity, "commit", elsewhere, former, with_holes)
        needed = own is None or own.metadata is None or other is not None
        copy = self._candidate(identity, "checkpoint", checkpoint, former, with_holes and needed)
        with _unreadable(identity):
            found = self._newest(identity, own, other, copy, start_offset, with_holes, deadline)
        return replace(found, former=tuple(former))

    def _newest(
        self,
        identity: CursorIdentity,
        own: Candidate | None,
        other: Candidate | None,
        copy: Candidate | None,
        start_offset: int,
        with_holes: bool,
        deadline: Deadline,
    ) -> RecoveredCursor:
        candidates = [found for found in (own, other, copy) if found is not None]
        version = max((candidate.place[0] for candidate in candidates), default=0)
        found = newest(own, other, copy)
        if found is None:
            return RecoveredCursor(CursorState(start_offset, identity.entries_per_ledger), None, "start", version)
        if found.metadata is None:
            state = CursorState(found.commit.kafka_offset, identity.entries_per_ledger)
            state.pending_acks = any(each.metadata is not None and each.metadata.pending_acks for each in candidates)
            return RecoveredCursor(state, None, "seek", version)
        if with_holes:
            restored = self._restore(identity, found.commit.kafka_offset, found.metadata, found.source, deadline)
        else:
            restored = RecoveredCursor(
                _without_holes(identity, found.commit.kafka_offset, found.metadata), None, found.source
            )
        return replace(restored, version=version, commit_chars=len(found.commit.metadata))

    def _candidate(
        self,
        identity: CursorIdentity,
        source: str,
        commit: CommittedOffset | None,
        former: list[CommitMetadata],
        with_holes: bool,
    ) -> Candidate | None:
        if commit is None:
            return None
        try:
            metadata = decode_commit_metadata(commit.metadata)
        except CorruptRecord as error:
            if with_holes:
                what = f"cursor {identity}: committed offset {commit.kafka_offset}: {error}"
                raise UnreadableCursor(identity.partition, what) from error
            metadata = None
        if metadata is None:
            return None if source == "checkpoint" else Candidate("seek", commit, None)
        if not metadata.lineage.same_life(identity.lineage(b"", 0, 0)):
            _log.info("cursor=%s ignored state of another life, %s", identity, metadata.lineage)
            if metadata.lineage.life < identity.lineage(b"", 0, 0).life:
                former.append(metadata)
            return None
        return Candidate(source, commit, metadata)

    def _restore(
        self, identity: CursorIdentity, next_unacked: int, metadata: CommitMetadata, source: str, deadline: Deadline
    ) -> RecoveredCursor:
        state = _without_holes(identity, next_unacked, metadata)
        saved = SavedCursor(metadata.lineage, pending_acks=metadata.pending_acks, leased_from=metadata.leased_from)
        if metadata.marker_offset is not None:
            marker, saved.marker = self._segments.read_marker(identity, metadata.marker_offset, deadline)
            saved.marker_offset = metadata.marker_offset
            saved.segments = {ledger.ledger_index: ledger for ledger in marker.live}
            if metadata.holes is None:
                state.deliveries = marker.deliveries
            away = {index: ledger.summary for index, ledger in saved.segments.items()}
            state.restore({}, away, self.loader(identity, saved))
            state.dirty_ledgers |= {
                ledger.ledger_index
                for ledger in marker.live
                if not all(is_of_one_take_over(ref.session) for ref in ledger.parts)
            }
            saved.left_over = Unneeded(marker.obsolete, marker.obsolete_markers)
        if metadata.holes is not None:
            acked = [next_unacked + relative for relative in metadata.holes.acked]
            state.acknowledge(acked)
            batches = metadata.holes.batches.items()
            state.acknowledge_batches({next_unacked + relative: BatchAckSet(*acks) for relative, acks in batches})
            saved.beside = BitMap64((*acked, *(next_unacked + relative for relative in metadata.holes.batches)))
        return RecoveredCursor(state, saved, source)

    def loader(self, identity: CursorIdentity, saved: SavedCursor) -> Loader:
        """Reads ledgers of a save back, in 10 s at most. Its calls raise UnreadableCursor or StoreError."""

        def load(indexes: Sequence[int]) -> Iterator[tuple[int, Holes]]:
            requested = {index: saved.segments[index] for index in indexes}
            with _unreadable(identity):
                yield from self._segments.read_ledgers(identity, requested, Deadline.after(_LOAD_TIMEOUT_S))

        return load

    def load_all(self, identity: CursorIdentity, found: RecoveredCursor, deadline: Deadline) -> None:
        """Read every ledger of a recovered cursor. Raises UnreadableCursor, StoreError."""
        if found.saved is None:
            return
        away = {index: ledger for index, ledger in found.saved.segments.items() if found.state.is_away(index)}
        with _unreadable(identity):
            for index, holes in self._segments.read_ledgers(identity, away, deadline):
                found.state.put_ledger(index, holes)

    def marker_bytes(self, identity: CursorIdentity, found: RecoveredCursor, deadline: Deadline) -> list[int]:
        """Sizes of the marker that a recovered cursor has, and of its pages. Raises Corrupt, StoreError."""
        offset = found.saved.marker_offset if found.saved is not None else None
        return [] if offset is None else self._segments.marker_bytes(identity, offset, deadline)

    # Writing ------------------------------------------------------------------------------------------------------

    def take_over(self, identity: CursorIdentity, found: RecoveredCursor, deadline: Deadline) -> Save:
        """The first save of a new owner: the recovered state, with an unused session and the next version.

        Its saves from then on have the lineage of `PartitionSaves.next_lineage`. Ledgers whose records another
        take-over of the same process may have named, too, are written anew (see `cursor.identity`).

        Raises:
            UnreadableCursor: such a ledger cannot be read any more.
            StoreError: see `prepare`.
        """
        lineage = identity.lineage(new_session(), found.version + 1, 0)
        with _unreadable(identity):
            save = self.prepare(identity, found.state, found.saved or SavedCursor(lineage), lineage, deadline)
        return save if found.saved is None else replace(save, replaces=found.saved.lineage.session)

    def prepare(
        self, identity: CursorIdentity, state: CursorState, last: SavedCursor, lineage: Lineage, deadline: Deadline
    ) -> Save:
        """Make everything that the next group commit refers to durable, and give that commit.

        Writes nothing when the holes fit into the commit's metadata; else the segments of the dirty ledgers and then
        a marker that names all live ones. `state.dirty_ledgers` is emptied; see `Save.written_ledgers`.

        Raises:
            StoreError: segments or marker could not be written.
        """
        inline = inline_metadata(state, lineage)
        if inline is not None:
            taken = frozenset(state.dirty_ledgers)
            state.dirty_ledgers = set()  # once accepted there are no live segments, so every ledger counts as dirty
            return Save(
                CommittedOffset(state.next_unacked, inline),
                SavedCursor(
                    lineage,
                    beside=positions(state),
                    resets=state.resets,
                    pending_acks=state.pending_acks,
                    leased_from=state.leased_from,
                ),
                last.everything(),
                state.revision,
                taken,
                Unneeded(),
            )
        return self._prepare_segments(identity, state, last, lineage, deadline)

    def _prepare_segments(
        self, identity: CursorIdentity, state: CursorState, last: SavedCursor, lineage: Lineage, deadline: Deadline
    ) -> Save:
        with_state = state.ledgers_with_state()
        dirty = sorted(index for index in with_state if index in state.dirty_ledgers or index not in last.segments)
        state.need_ledgers(dirty)
        new = self._segments.write_ledgers(identity, state, dirty, lineage, deadline)
        segments = {index: ledger for index, ledger in last.segments.items() if index in with_state}
        segments.update(new)
        live = tuple(segments[index] for index in sorted(segments))
        superseded = obsolete_after(last.all_segments(), (ref for ledger in live for ref in ledger.parts))
        obsolete = Unneeded((*last.left_over.segments, *superseded), last.old_markers())
        marker_offset, marker = self._segments.write_marker(
            identity, Marker(lineage, live, *obsolete, state.deliveries), deadline
        )
        text = commit_metadata.metadata(state, lineage, None, marker_offset)
        state.dirty_ledgers = set()
        return Save(
            CommittedOffset(state.next_unacked, text),
            SavedCursor(
                lineage,
                segments,
                marker,
                marker_offset,
                resets=state.resets,
                pending_acks=state.pending_acks,
                leased_from=state.leased_from,
            ),
            obsolete,
            state.revision,
            frozenset(dirty),
            Unneeded(tuple(ref for ledger in new.values() for ref in ledger.parts), (marker,)),
        )

    def prepare_without_segments(
        self, identity: CursorIdentity, state: CursorState, last: SavedCursor, lineage: Lineage, deadline: Deadline
    ) -> Save | None:
        """A save without segments, while these cannot be written: mark-delete, and holes as far as they fit the commit.

        Nothing that the last save held is given up: its segments still count, and what rode in its commit goes first;
        then the lowest holes that no segment has. None when not even that fits. Writes nothing. Source:
        ManagedCursorImpl, which puts up to 1,000 ranges into the metadata store when its ledger cannot be written.
        """
        origin = state.next_unacked
        base = last if last.resets == state.resets else SavedCursor(lineage)
        changed = sorted(i for i in state.ledgers_with_state() if i in state.dirty_ledgers or i not in base.segments)
        kept = [offset for offset in base.beside if offset >= origin]
        news = (o for index in changed for o in self._unsaved(identity, state, base, index, deadline))
        more = list(islice(news, _MAX_OFFSETS_BESIDE))

        def commit_with(count: int) -> str | None:
            holes = holes_at(state, origin, (*kept, *more[:count]))
            return fitting_metadata(state, lineage, holes, base.marker_offset)

        fits = bisect_left(range(len(more) + 1), True, key=lambda count: commit_with(count) is None) - 1
        text = commit_with(fits) if fits >= 0 else None
        if text is None:
            return None
        beside = BitMap64((*kept, *more[:fits]))
        return Save(
            CommittedOffset(origin, text),
            SavedCursor(
                lineage,
                dict(base.segments),
                base.marker,
                base.marker_offset,
                beside,
                state.resets,
                state.pending_acks,
                state.leased_from,
            ),
            last.left_over if base is last else last.everything(),
            state.revision,
            frozenset(),
            Unneeded(),
            sum(left_out(state, index, beside) for index in changed),
        )

    def _unsaved(
        self, identity: CursorIdentity, state: CursorState, base: SavedCursor, index: int, deadline: Deadline
    ) -> Iterator[int]:
        """The positions of a ledger of which the saved segments know less; all, when those cannot be read."""
        saved = Holes(BitMap())
        if index in base.segments:
            try:
                requested = {index: base.segments[index]}
                ((_, saved),) = self._segments.read_ledgers(identity, requested, deadline)
            except StoreError as failure:
                _log.info("cursor=%s cannot compare with what was saved: %s", identity, failure)
        now = state.holes_of(index)
        first = index * identity.entries_per_ledger
        yield from (first + entry for entry in now.acked - saved.acked)
        yield from (first + entry for entry, acks in now.batches.items() if saved.batches.get(entry) != acks)

    def clean(self, identity: CursorIdentity, unneeded: Unneeded, deadline: Deadline) -> None:
        self._segments.tombstone(identity, *unneeded, deadline)

    def forget(self, identity: CursorIdentity, saved: SavedCursor, deadline: Deadline) -> None:
        """Tombstone everything that `saved` refers to: the subscription is gone."""
        self._segments.tombstone(identity, *saved.everything(), deadline)

    def forget_former(self, identity: CursorIdentity, metadata: CommitMetadata, deadline: Deadline) -> None:
        """Tombstones the records of a commit or checkpoint of an earlier incarnation, and that session's checkpoint.
        For the owner in this incarnation: no process recovers from them any more."""
        if metadata.marker_offset is not None:
            try:
                marker, ref = self._segments.read_marker(identity, metadata.marker_offset, deadline)
            except Corrupt:
                _log.info("cursor=%s the marker of a former life is gone", identity)
            else:
                segments = (*marker.obsolete, *(ref for ledger in marker.live for ref in ledger.parts))
                self._segments.tombstone(identity, segments, (*marker.obsolete_markers, ref), deadline)
        self.drop_checkpoint(identity, metadata.lineage.session, deadline)

    def write_checkpoints(self, saves: Iterable[AcceptedSave], now_ms: int, deadline: Deadline) -> None:
        """Copy accepted saves to where Kafka does not forget them when the group stays empty for
        days, and where no late commit overwrites them."""
        records: dict[int, list[tuple[bytes, bytes | None]]] = {}
        for identity, commit, lineage, replaces in saves:
            value = encode_checkpoint(
                CursorCheckpoint(lineage.version, lineage.save, commit.kafka_offset, commit.metadata, now_ms)
            )
            found = records.setdefault(CURSOR_CHECKPOINTS.partition_for(identity.topic), [])
            found.append((encode_key(checkpoint_key(identity, lineage.session)), value))
            if replaces is not None and replaces != lineage.session:
                found.append((encode_key(checkpoint_key(identity, replaces)), None))
        for partition, group in records.items():
            self._log.append_many(CURSOR_CHECKPOINTS, partition, group, deadline)

    def drop_checkpoint(self, identity: CursorIdentity, session: bytes, deadline: Deadline) -> None:
        key = encode_key(checkpoint_key(identity, session))
        self._log.append(CURSOR_CHECKPOINTS, CURSOR_CHECKPOINTS.partition_for(identity.topic), key, None, deadline)


@contextmanager
def _unreadable(identity: CursorIdentity) -> Iterator[None]:
    try:
        yield
    except Corrupt as corrupt:
        raise UnreadableCursor(identity.partition, str(corrupt)) from corrupt


def _without_holes(identity: CursorIdentity, next_unacked: int, metadata: CommitMetadata) -> CursorState:
    state = CursorState(next_unacked, identity.entries_per_ledger)
    state.deliveries = metadata.deliveries
    state.requests = dict(metadata.requests)
    state.pending_acks = metadata.pending_acks
    state.leased_from = metadata.leased_from
    return state


def checkpoint_key(identity: CursorIdentity, session: bytes) -> CursorCheckpointKey:
    return CursorCheckpointKey(identity.topic, identity.partition, identity.subscription, session.hex())
