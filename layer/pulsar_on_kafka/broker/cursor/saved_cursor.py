"""A save of a cursor: what the last one left on Kafka, what the next one is to be committed with, and a cursor as read
back."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from pyroaring import BitMap64

from pulsar_on_kafka.base.errors import Corrupt
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka_mapping.state.cursors.cursor_marker import MarkerRef, SavedLedger, SegmentRef
from pulsar_on_kafka_mapping.state.cursors.cursor_state import CommitMetadata, Lineage

_log = logging.getLogger(__name__)


class UnreadableCursor(Corrupt):
    """Acknowledgements above a cursor's mark-delete cannot be read (again). A seek needs none of them."""

    def __init__(self, partition: int, what: str) -> None:
        super().__init__(what)
        self.partition = partition


class Unneeded(NamedTuple):
    """Records to be tombstoned, now or once nothing needs them."""

    segments: tuple[SegmentRef, ...] = ()
    markers: tuple[MarkerRef, ...] = ()

    def and_also(self, others: Unneeded) -> Unneeded:
        return Unneeded(self.segments + others.segments, self.markers + others.markers)


@dataclass(slots=True)
class SavedCursor:
    """The last accepted save, as it lies on Kafka: its lineage, live segments by ledger index, and its marker."""

    lineage: Lineage
    segments: dict[int, SavedLedger] = field(default_factory=dict)
    marker: MarkerRef | None = None
    marker_offset: int | None = None
    beside: BitMap64 = field(default_factory=BitMap64)
    """Positions whose holes ride in the commit itself."""
    resets: int = 0
    """`CursorState.resets` when it was prepared."""
    pending_acks: bool = False
    """`CursorState.pending_acks` in its commit."""
    leased_from: int | None = None
    """The same of `CursorState.leased_from`."""
    left_over: Unneeded = field(default_factory=Unneeded)
    """Records that earlier saves made obsolete and that were not tombstoned yet."""

    def references(self) -> frozenset[SegmentRef | MarkerRef]:
        markers = () if self.marker is None else (self.marker,)
        return frozenset((*(ref for ledger in self.segments.values() for ref in ledger.parts), *markers))

    def old_markers(self) -> tuple[MarkerRef, ...]:
        """The markers that are not needed once another save is accepted."""
        return (*self.left_over.markers, *((self.marker,) if self.marker is not None else ()))

    def everything(self) -> Unneeded:
        """All of it, for when nothing of it is needed."""
        return Unneeded((*self.left_over.segments, *self.all_segments()), self.old_markers())

    def all_segments(self) -> tuple[SegmentRef, ...]:
        return tuple(ref for ledger in self.segments.values() for ref in ledger.parts)


@dataclass(frozen=True, slots=True)
class RecoveredCursor:
    """A cursor as read back. `source` is its origin: commit, seek, checkpoint or start."""

    state: CursorState
    saved: SavedCursor | None
    source: str
    version: int = 0
    """The highest version that was met; the next owner's is one more."""
    former: tuple[CommitMetadata, ...] = ()
    """Records of earlier incarnations of the topic or the subscription (see `forget_former`)."""
    commit_chars: int = 0
    """Length of the metadata that it was read from."""


@dataclass(frozen=True, slots=True)
class Save:
    """One save, ready for the group commit; `accept` it once the commit was."""

    commit: CommittedOffset
    saved: SavedCursor
    obsolete: Unneeded
    """Records that are superfluous once the save is accepted, unless a checkpoint needs them."""
    revision: int
    written_ledgers: frozenset[int]
    """Ledgers that it took along; dirty no more once accepted, dirty again if refused."""
    new: Unneeded
    """Records written for the save."""
    left_out: int | None = None
    """The limit of acknowledged entries that a save without segments may omit. None: it contains all."""
    replaces: bytes | None = None
    """The session before a take-over, whose checkpoint its own replaces."""


class AcceptedSave(NamedTuple):
    """A save that the group has, to be copied to a checkpoint. The checkpoint of the session `replaces` is removed."""

    identity: CursorIdentity
    commit: CommittedOffset
    lineage: Lineage
    replaces: bytes | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A commit, a seek or a checkpoint that may hold a cursor's newest state. `metadata` is None for a commit that a
    Kafka tool made.

    There are up to three: the group that serves it now, the group that served it in the other way (a subscription as a
    whole, or partition by partition), and the checkpoint. Each take-over raises the version, so the highest one counts.
    """

    source: str
    commit: CommittedOffset
    metadata: CommitMetadata | None

    @property
    def place(self) -> tuple[int, int]:
        """Its version and save: higher is newer."""
        return (self.metadata.lineage.version, self.metadata.lineage.save) if self.metadata is not None else (0, 0)


def newest(own: Candidate | None, elsewhere: Candidate | None, checkpoint: Candidate | None) -> Candidate | None:
    """The one to go on from; None when there is none.

    A commit of a Kafka tool is a seek: in the group that serves now always, in the other one if that served last. It
    did when a checkpoint (each take-over and each orderly end writes one) is newer than what the group that serves now
    has.
    """
    if own is not None and own.metadata is None:
        return own
    states = [found for found in (own, elsewhere, checkpoint) if found is not None and found.metadata is not None]
    best = max(states, key=lambda found: found.place, default=None)  # the first of equals
    if elsewhere is not None and elsewhere.metadata is None and best is not own:
        return elsewhere
    return elsewhere if best is None else best


def checkpoint_beside(
    request: Callable[[], CommittedOffset | None], own: CommittedOffset | None, elsewhere: CommittedOffset | None
) -> CommittedOffset | None:
    """The checkpoint, which `request` returns, also where the group has a commit of this product: that may be an older
    one, which librdkafka resent behind the last one during a handover.

    Raises:
        Corrupt: it cannot be read, and no commit of this product can replace it.
        StoreError: the store does not reply.
    """
    try:
        return request()
    except Corrupt as failure:
        if own is None or elsewhere is not None or not own.metadata:
            raise
        _log.warning("a checkpoint beside a commit cannot be read: %s", failure)
        return None
