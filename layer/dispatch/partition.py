"""One owned partition: its cursor, what was read and not handed out, what is in flight, what comes again.

No I/O and no threads: the member feeds it records and asks it what to hand out.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from typing import Any

from pyroaring import BitMap64

from layer.cursor.machine import CursorState
from layer.cursor.store import CursorIdentity, Save, Saved
from layer.dispatch.delivery import Feed, PartitionSlot
from layer.kafka.records import CommittedOffset
from mapping.headers import MARKER
from mapping.message_record import is_plain
from mapping.state_records.cursor_state import MarkerRef, SegmentRef


@dataclass(slots=True)
class Chunk:
    """Records read from Kafka in one go, and their offsets; `taken` of them are handed out already."""

    offsets: list[int]
    records: list[Any]
    size_bytes: int
    taken: int = 0


class OwnedPartition:
    """Everything this process knows of a partition while it owns it.

    Memory: `buffered` records at most (the member stops reading above its limit); `in_flight` and `replay` hold offsets
    only, at most one each for every message handed out and unacknowledged.
    """

    def __init__(self, slot: PartitionSlot, identity: CursorIdentity, cursor: CursorState, saved: Saved) -> None:
        self.slot = slot
        self.identity = identity
        self.cursor = cursor
        self.saved = saved
        """The last accepted save."""
        self.saved_revision = -1
        self.last_commit: CommittedOffset | None = None
        self.previous_session: bytes | None = None
        """The session before ours, until its checkpoint is cleaned up."""
        self._orphans: tuple[SegmentRef, ...] = ()
        # Until our first checkpoint the newest one is a predecessor's, at best of the state that we found.
        self._checkpointed = _references(saved)
        self._kept: tuple[tuple[SegmentRef, ...], tuple[MarkerRef, ...]] = ((), ())
        self.next_save = 1
        self.read_position = cursor.next_unacked
        """The next offset expected from Kafka."""
        self.in_flight: dict[int, Feed] = {}
        self.replay = BitMap64()
        self.redeliveries: dict[int, int] = {}
        self.active: Feed | None = None
        """The one consumer that gets this partition (Exclusive and Failover)."""
        self.stopped: str | None = None
        """Why nothing is read from this partition any more."""
        self.checkpoint_dirty = False
        self.last_checkpoint_s = 0.0
        self._chunks: deque[Chunk] = deque()
        self.buffered = 0
        self.buffered_bytes = 0

    # What comes from Kafka ----------------------------------------------------------------------------------------

    def accept(self, offsets: list[int], records: list[Any]) -> None:
        """Take a run of records in offset order. Offsets that no fetch returned count as deleted."""
        if offsets[0] < self.read_position:  # fetched before a seek took effect
            keep = [i for i, offset in enumerate(offsets) if offset >= self.read_position]
            offsets, records = [offsets[i] for i in keep], [records[i] for i in keep]
            if not offsets:
                return
        if offsets[0] != self.read_position or offsets[-1] - offsets[0] + 1 != len(offsets):
            self._acknowledge_gaps(offsets)
        self.read_position = offsets[-1] + 1
        if self.cursor.next_unacked > offsets[0] or self.cursor.deleted:
            offsets, records = self._without_acknowledged(offsets, records)
        offsets, records = self._without_markers(offsets, records)
        if offsets:
            size = sum(map(len, records))
            self._chunks.append(Chunk(offsets, records, size))
            self.buffered += len(offsets)
            self.buffered_bytes += size

    def _acknowledge_gaps(self, offsets: Sequence[int]) -> None:
        expected = self.read_position
        for offset in offsets:
            if offset > expected:
                self.cursor.acknowledge_range(expected, offset)
            expected = offset + 1

    def _without_acknowledged(self, offsets: list[int], records: list[Any]) -> tuple[list[int], list[Any]]:
        floor = self.cursor.next_unacked
        acked = self.cursor.acknowledged_in(offsets[0], offsets[-1] + 1)
        if not acked and offsets[0] >= floor:
            return offsets, records
        keep = [i for i, offset in enumerate(offsets) if offset >= floor and offset not in acked]
        return [offsets[i] for i in keep], [records[i] for i in keep]

    def _without_markers(self, offsets: list[int], records: list[Any]) -> tuple[list[int], list[Any]]:
        odd = [i for i, record in enumerate(records) if not is_plain(record.headers())]
        if not odd:
            return offsets, records
        markers = {i for i in odd if is_marker(records[i])}
        if not markers:
            return offsets, records
        self.cursor.acknowledge([offsets[i] for i in markers])
        keep = [i for i in range(len(offsets)) if i not in markers]
        return [offsets[i] for i in keep], [records[i] for i in keep]

    # What goes to consumers ---------------------------------------------------------------------------------------

    def take(self, limit: int) -> tuple[list[int], list[Any]]:
        """Up to `limit` records not handed out before, from one chunk."""
        while self._chunks:
            chunk = self._chunks[0]
            end = min(len(chunk.offsets), chunk.taken + limit)
            if chunk.taken == 0 and end == len(chunk.offsets):
                offsets, records = chunk.offsets, chunk.records
            else:
                offsets, records = chunk.offsets[chunk.taken : end], chunk.records[chunk.taken : end]
            chunk.taken = end
            self.buffered -= len(offsets)
            if end == len(chunk.offsets):
                self._chunks.popleft()
                self.buffered_bytes -= chunk.size_bytes
            # Acknowledged by id while they waited here.
            if self.cursor.next_unacked > offsets[0] or self.cursor.deleted:
                offsets, records = self._without_acknowledged(offsets, records)
            if offsets:
                return offsets, records
        return [], []

    def handed_out(self, offsets: Sequence[int], feed: Feed) -> None:
        """Remember who holds these (shared subscriptions)."""
        self.in_flight.update(zip(offsets, repeat(feed)))
        feed.endpoint.unacked += len(offsets)

    def next_replays(self, limit: int) -> list[int]:
        """The lowest offsets waiting to be delivered again; they stay in `replay` until `replayed`."""
        return list(islice(self.replay, limit))

    def replayed(self, offsets: Iterable[int]) -> None:
        self.replay.difference_update(BitMap64(offsets))

    # What comes back ----------------------------------------------------------------------------------------------

    def drain_acknowledgements(self, log_end: Callable[[], int]) -> bool:
        """Fold in what consumers acknowledged since the last call; True when the cursor changed.

        `log_end` is asked for only when an id made by hand lies beyond what was read: nothing beyond the log's end can
        be acknowledged.
        """
        slot = self.slot
        changed = False
        if slot.cumulative:
            pending = _drain(slot.cumulative)
            if max(pending) >= self.read_position:
                end = log_end()
                pending = [offset for offset in pending if offset < end]
            changed = bool(pending) and self.cursor.acknowledge_cumulative(max(pending))
        if slot.acks:
            offsets = _drain(slot.acks)
            if max(offsets) >= self.read_position:
                end = log_end()
                offsets = [offset for offset in offsets if offset < end]
                if not offsets:
                    return changed
            changed = self.cursor.acknowledge(offsets) or changed
            self._settle(offsets)
        return changed

    def _settle(self, offsets: list[int]) -> None:
        if self.in_flight:
            holders = Counter(map(self.in_flight.pop, offsets, repeat(None)))
            for feed, count in holders.items():
                if feed is not None:
                    feed.endpoint.unacked -= count
        if self.replay:
            self.replayed(offsets)
        if self.redeliveries:
            for offset in offsets:
                self.redeliveries.pop(offset, None)

    def redeliver(self, offset: int) -> bool:
        """Deliver one message again that is in flight; False when it is not (acknowledged, or waiting already)."""
        feed = self.in_flight.pop(offset, None)
        if feed is None:
            return False
        feed.endpoint.unacked -= 1
        self.redeliveries[offset] = self.redeliveries.get(offset, 0) + 1
        self.replay.add(offset)
        return True

    def held_by(self, feed: Feed) -> list[int]:
        return [offset for offset, holder in self.in_flight.items() if holder is feed]

    def give_back(self, feed: Feed) -> None:
        """The consumer is gone: its messages come again. Pulsar does not count that as a redelivery."""
        offsets = self.held_by(feed)
        for offset in offsets:
            del self.in_flight[offset]
        feed.endpoint.unacked -= len(offsets)
        self.replay.update(offsets)

    def rewind(self) -> int:
        """Forget what was read and handed out; gives the offset to read from (Exclusive, Failover, seek)."""
        self._chunks.clear()
        self.buffered = self.buffered_bytes = 0
        for feed, count in Counter(self.in_flight.values()).items():
            feed.endpoint.unacked -= count
        self.in_flight.clear()
        self.replay.clear()
        self.read_position = self.cursor.next_unacked
        return self.read_position

    def seek(self, offset: int) -> int:
        """Set the cursor to `offset`, which becomes the next one to be delivered."""
        self.cursor.reset(offset)
        self.redeliveries.clear()
        return self.rewind()

    # Saves --------------------------------------------------------------------------------------------------------

    def save_accepted(self, save: Save) -> tuple[tuple[SegmentRef, ...], tuple[MarkerRef, ...]]:
        """The group commit of `save` was accepted. Gives the segments and markers that nothing refers to any more.

        What the newest checkpoint refers to stays: it counts when Kafka has forgotten the commit.
        """
        self.saved = save.saved
        self.saved_revision = save.revision
        self.last_commit = save.commit
        self.checkpoint_dirty = True
        segments, self._orphans = (*save.obsolete, *self._orphans, *self._kept[0]), ()
        return self._without_checkpointed(segments, (*save.obsolete_markers, *self._kept[1]))

    def checkpoint_written(self) -> tuple[tuple[SegmentRef, ...], tuple[MarkerRef, ...]]:
        """The last accepted save is the newest checkpoint. Gives what only the one before referred to."""
        self._checkpointed = _references(self.saved)
        return self._without_checkpointed(*self._kept)

    def _without_checkpointed(
        self, segments: tuple[SegmentRef, ...], markers: tuple[MarkerRef, ...]
    ) -> tuple[tuple[SegmentRef, ...], tuple[MarkerRef, ...]]:
        needed = self._checkpointed
        self._kept = tuple(s for s in segments if s in needed), tuple(m for m in markers if m in needed)
        return tuple(s for s in segments if s not in needed), tuple(m for m in markers if m not in needed)

    def save_refused(self, save: Save) -> None:
        """It was not, or nobody knows: its ledgers are dirty again, its segments go after the next accepted save."""
        self.cursor.dirty_ledgers |= save.written_ledgers
        self._orphans += save.new_segments

    @property
    def dirty(self) -> bool:
        return self.cursor.revision != self.saved_revision


def _references(saved: Saved) -> frozenset[SegmentRef | MarkerRef]:
    markers = () if saved.marker is None else (saved.marker,)
    return frozenset((*saved.segments.values(), *markers))


def is_marker(record: Any) -> bool:
    """A record of ours without payload that is never delivered."""
    return any(name == MARKER for name, _ in record.headers() or ())


def _drain(pending: deque[int]) -> list[int]:
    return [pending.popleft() for _ in range(len(pending))]
