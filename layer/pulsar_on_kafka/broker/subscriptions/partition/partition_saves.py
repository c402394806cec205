"""A partition's saves are what is on Kafka of its cursor: the last accepted save, the newest checkpoint, and what may
be removed.

No I/O: the saver writes and tells what became of it.

Redelivery counts as the application sees them, where nobody counts deliveries: they travel with saves. No I/O.

They are no reason to save: they ride in saves that are made anyway, and in the one of an owner that gives a partition
up. So they survive each move in good order; a crash takes those that no save held yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from pyroaring import BitMap64

from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.saved_cursor import Save, SavedCursor, Unneeded
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka_mapping.state.codecs.layouts import compressed
from pulsar_on_kafka_mapping.state.cursors.cursor_state import Deliveries, Lineage

MAX_BYTES: Final = 1_000
"""Of bitmaps in one save, so that they fit a commit beside some holes. Neighbours take next to nothing, single messages
about 2 bytes each, and each count about 30."""


def counts_to_save(redeliveries: Mapping[int, int], is_acknowledged: Callable[[int], bool]) -> Deliveries | None:
    """The counts above 0 of what is not acknowledged, the highest first, of each the lowest offsets, as far as
    `MAX_BYTES` reach; None for none."""
    by_count: dict[int, list[int]] = {}
    for offset, count in redeliveries.items():
        if count > 0 and not is_acknowledged(offset):
            by_count.setdefault(count, []).append(offset)
    room = MAX_BYTES
    counts: dict[tuple[int, int], BitMap64] = {}
    for count in sorted(by_count, reverse=True):
        offsets = sorted(by_count[count])
        found = BitMap64(offsets)
        while offsets and len(compressed(found)) > room:
            offsets = offsets[: len(offsets) // 2]
            found = BitMap64(offsets)
        if not found:
            break
        counts[0, count] = found
        room -= len(compressed(found))
    return Deliveries(0, counts=counts) if counts else None


_LARGE_BYTES = 1 << 20


class PartitionSaves:
    """Memory: references to segments that are live, or that only a checkpoint or a refused save refers to."""

    def __init__(self, cursor: CursorState, saved: SavedCursor) -> None:
        self._cursor = cursor
        self._warned_bytes = _LARGE_BYTES // 2
        self.saved = saved
        """The last accepted save."""
        self.saved_revision = -1
        self.last_commit: CommittedOffset | None = None
        self.previous_session: bytes | None = None
        """The one before ours, until our first checkpoint replaces its."""
        self.next_save = 1
        self.checkpoint_dirty = False
        self.last_checkpoint_s = 0.0
        self._orphans = Unneeded()
        """Written for saves that were refused."""
        # Until our first checkpoint the newest one is a predecessor's, of the state that we found or of an older one.
        self._checkpointed = saved.references().union(*saved.left_over)

    def next_lineage(self) -> Lineage:
        """Of the next save, whether anything becomes of it or not. The take-over's save was accepted before."""
        lineage = replace(self.saved.lineage, save=self.next_save)
        self.next_save += 1
        return lineage

    @property
    def state_bytes(self) -> int:
        """What the last accepted save takes on Kafka, without its marker."""
        commit = self.last_commit
        segments = sum(ledger.summary.size_bytes for ledger in self.saved.segments.values())
        return segments + (len(commit.metadata) if commit is not None else 0)

    def grown_large(self) -> int | None:
        """`state_bytes` when it passed 1 MiB, or has doubled since this last gave a number."""
        size = self.state_bytes
        if size < 2 * self._warned_bytes:
            return None
        self._warned_bytes = size
        return size

    @property
    def dirty(self) -> bool:
        """The cursor has changed since the last accepted save."""
        return self._cursor.revision != self.saved_revision

    def accepted(self, save: Save) -> Unneeded:
        """The group commit of `save` was accepted. Gives the segments and markers that nothing refers to any more.

        What the newest checkpoint refers to stays: it counts when Kafka has forgotten the commit.
        """
        self.saved = save.saved
        if save.left_out is None:
            self.saved_revision = save.revision
        self.last_commit = save.commit
        self.previous_session = save.replaces or self.previous_session
        self.checkpoint_dirty = True
        unneeded, self._orphans = save.obsolete.and_also(self._orphans), Unneeded()
        return self._without_checkpointed(unneeded)

    def refused(self, save: Save) -> None:
        """It was not, or nobody knows: its ledgers are dirty again, its segments go after the next accepted save."""
        self._cursor.dirty_ledgers |= save.written_ledgers
        self._orphans = self._orphans.and_also(save.new)

    def checkpoint_written(self) -> Unneeded:
        """The last accepted save is the newest checkpoint. Gives what only the one before referred to."""
        self.checkpoint_dirty, self.previous_session = False, None
        self._checkpointed = self.saved.references()
        return self._without_checkpointed(self.saved.left_over)

    def _without_checkpointed(self, unneeded: Unneeded) -> Unneeded:
        needed = self._checkpointed
        segments, markers = unneeded
        self.saved.left_over = Unneeded(
            tuple(ref for ref in segments if ref in needed), tuple(ref for ref in markers if ref in needed)
        )
        return Unneeded(
            tuple(ref for ref in segments if ref not in needed), tuple(ref for ref in markers if ref not in needed)
        )
