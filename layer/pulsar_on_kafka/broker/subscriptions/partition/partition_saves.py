"""Saves of a partition: its cursor's state on Kafka, which is the last accepted save and the newest checkpoint, and the
records that may be removed.

Redelivery counts are saved, too, where no guard counts deliveries. They cause no save: they are part of saves that
happen anyway, and of the last one of an owner that gives the partition up. So they survive an orderly change of the
owner; a crash loses counts that no save contained.

No I/O: the saver writes, and reports the outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from pyroaring import BitMap64

from pulsar_on_kafka.broker.cursor.budget import HoleBudget, Residency
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity
from pulsar_on_kafka.broker.cursor.saved_cursor import Save, SavedCursor, Unneeded
from pulsar_on_kafka.broker.cursor.store import CursorStore
from pulsar_on_kafka.broker.subscriptions.partition.delivery_guard import DeliveryGuard
from pulsar_on_kafka.broker.subscriptions.records.refusal_reasons import RefusalReasons
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka_mapping.state.codecs.layouts import compressed
from pulsar_on_kafka_mapping.state.cursors.cursor_state import Deliveries, Lineage

MAX_BYTES: Final = 1_000
"""The size of bitmaps in one save, so that they fit into a commit beside some holes. Neighbours take next to nothing,
single messages about 2 bytes each, and each count about 30."""


def counts_to_save(redeliveries: Mapping[int, int], is_acknowledged: Callable[[int], bool]) -> Deliveries | None:
    """Returns the counts above 0 of unacknowledged entries, the highest first, of each the lowest offsets, as many as
    fit into `MAX_BYTES`; None for none."""
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

    def __init__(
        self,
        identity: CursorIdentity,
        cursor: CursorState,
        saved: SavedCursor,
        store: CursorStore | None,
        redelivered: Mapping[int, int],
        reasons: RefusalReasons,
    ) -> None:
        """`redelivered`: the redelivery count of each entry; `reasons`: those of negative acknowledgements."""
        self.identity = identity
        self.cursor = cursor
        self._redelivered = redelivered
        self._reasons = reasons
        self._warned_bytes = _LARGE_BYTES // 2
        self.saved = saved
        """The last accepted save."""
        self.saved_revision = -1
        self.last_commit: CommittedOffset | None = None
        self.previous_session: bytes | None = None
        """The former owner's, until our first checkpoint replaces its checkpoint."""
        self.next_save = 1
        self.checkpoint_dirty = False
        self.last_checkpoint_s = 0.0
        self.guard: DeliveryGuard | None = None
        """Counts deliveries, if a consumer has a dead letter policy."""
        self.includes_counts = False
        """Without a guard, saves include redelivery counts."""
        self.applied_below = 0
        """Everything below this offset of `deliveries` was applied."""
        self.acks_from = 0
        """Reports below this offset of `deliveries` acknowledge nothing: they were written before a seek."""
        self.applied_since = 0
        """From this offset of `deliveries` on no record was missed."""
        self._residency = Residency(store.budget if store is not None else HoleBudget())
        if store is not None:
            cursor.loader = lambda indexes: store.loader(identity, self.saved)(indexes)
        self._orphans = Unneeded()
        """Segments written for saves that were refused."""
        # Until our first checkpoint the newest one is a predecessor's, of the state that we found or of an older one.
        self._checkpointed = saved.references().union(*saved.left_over)

    def begin(self) -> Lineage:
        """Gives the cursor the leases and deliveries of the next save, and returns the lineage of that. The take-over's
        save was accepted before."""
        cursor = self.cursor
        if cursor.leased_from is not None:
            cursor.leased_from = self.acks_known
        if self.guard is not None:
            cursor.deliveries = self.guard.snapshot(self.next_save, self._redelivered, cursor.is_acknowledged)
        else:
            counts = self._redelivered if self.includes_counts else {}
            cursor.deliveries = counts_to_save(counts, cursor.is_acknowledged)
        if self._reasons and (reasons := self._reasons.to_save(cursor.is_acknowledged)):
            cursor.deliveries = replace(cursor.deliveries or Deliveries(0), reasons=reasons)
        lineage = replace(self.saved.lineage, save=self.next_save)
        self.next_save += 1
        return lineage

    @property
    def state_bytes(self) -> int:
        """The size of the last accepted save on Kafka, without its marker."""
        commit = self.last_commit
        segments = sum(ledger.summary.size_bytes for ledger in self.saved.segments.values())
        return segments + (len(commit.metadata) if commit is not None else 0)

    def grown_large(self) -> int | None:
        """Returns `state_bytes` if it passed 1 MiB, or has doubled since this last returned a number."""
        size = self.state_bytes
        if size < 2 * self._warned_bytes:
            return None
        self._warned_bytes = size
        return size

    @property
    def dirty(self) -> bool:
        """Something changed since the last accepted save."""
        changed = self.cursor.revision != self.saved_revision
        return changed or (self.guard is not None and self.guard.unsaved)

    def request(self) -> None:
        """Requests a save even if nothing changed."""
        self.cursor.revision += 1

    def request_for_counts(self) -> None:
        """Requests a save if the last one may lack redelivery counts: the partition is given up."""
        if self.guard is None and self.includes_counts and self._redelivered:
            self.request()

    @property
    def acks_known(self) -> int:
        """Acknowledgements in reports below this offset of `deliveries` are in the cursor, or do not count."""
        return max(self.applied_below, self.acks_from)

    @property
    def leased_from(self) -> int | None:
        """Records of `deliveries` from this offset on may say that other processes hold messages; None: none do."""
        return self.cursor.leased_from

    def lease_from(self, offset: int | None) -> None:
        self.cursor.leased_from = offset
        self.request()

    @property
    def saved_leased_from(self) -> int | None:
        """`leased_from` of the last accepted save."""
        return self.saved.leased_from

    def sweep(self, now_s: int) -> None:
        """Keeps the cursor's memory within the budget."""
        self.cursor.advance()
        self._residency.sweep(self.cursor, self.saved, now_s)

    def forget(self) -> None:
        """The partition was given up: its memory counts no more."""
        self._residency.forget()

    def accepted(self, save: Save) -> Unneeded:
        """The group commit of `save` was accepted. Returns the segments and markers that nothing refers to any more.

        What the newest checkpoint refers to stays: it counts when Kafka has forgotten the commit.
        """
        if self.guard is not None:
            self.guard.accepted(save.saved.lineage.save)
        self.saved = save.saved
        if save.left_out is None:
            self.saved_revision = save.revision
        self.last_commit = save.commit
        self.previous_session = save.replaces or self.previous_session
        self.checkpoint_dirty = True
        unneeded, self._orphans = save.obsolete.and_also(self._orphans), Unneeded()
        return self._without_checkpointed(unneeded)

    def refused(self, save: Save) -> None:
        """The save was rejected, or its outcome is unknown: its ledgers are dirty again, and its segments are removed
        after the next accepted save."""
        if self.guard is not None:
            self.guard.refused(save.saved.lineage.save)
        self.cursor.dirty_ledgers |= save.written_ledgers
        self._orphans = self._orphans.and_also(save.new)

    def checkpoint_written(self) -> Unneeded:
        """The last accepted save is the newest checkpoint. Returns what only the one before referred to."""
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
