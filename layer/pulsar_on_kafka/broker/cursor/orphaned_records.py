"""Records in `cursors` without references: of saves that were never committed, and of earlier incarnations.

A process that dies between the writes of a save leaves them. The owner of the cursor does not search for them: it would
have to read the records of all cursors of the partition when it opens one. So maintenance finds them.

No needed record is removed. A record can be needed in three ways. *A commit or the newest checkpoint refers to it*: it
is kept. *The owner has written it for a save under way*: then it has the session that the commit names, and a higher
save, and the group has members. *A process writes a first save with a new session, to take the cursor over*: that takes
seconds, and the caller selects only records older than a day. A record in none of these states never enters one,
because a save refers to its own records and to those of the save before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Corrupt
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity, CursorName
from pulsar_on_kafka.broker.cursor.segments import MARKER_SEGMENT, CursorSegments
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.state.cursors.cursor_marker import Marker, MarkerRef
from pulsar_on_kafka_mapping.state.cursors.cursor_state import CommitMetadata, decode_commit_metadata
from pulsar_on_kafka_mapping.state.state_keys import CursorSegmentKey, decode_key

MAX_FOUND: Final = 50_000


class SegmentName(NamedTuple):
    """The part of a `CursorSegmentKey` that distinguishes the records of one cursor."""

    session: str
    save: int
    segment: int


class FoundSegments:
    """Fold of one partition of `cursors`: the names of what was written before `before_ms` (Unix time) and is there.

    Bounded: at most `most` names, of records from offset `start` on; `full_at` is the offset of the first one for which
    there was no room.
    """

    def __init__(self, before_ms: int, start: int = 0, most: int = MAX_FOUND) -> None:
        self._before_ms = before_ms
        self._start = start
        self._room = most
        self.full_at: int | None = None
        self.by_cursor: dict[CursorName, set[SegmentName]] = {}

    def apply(self, record: LogRecord) -> None:
        key = decode_key(record.key)
        if not isinstance(key, CursorSegmentKey):
            return
        cursor = CursorName(key.topic, key.partition, key.subscription)
        name = SegmentName(key.session, key.save, key.segment)
        found = self.by_cursor.get(cursor)
        if record.value is None:
            if found is not None and name in found:
                found.discard(name)
                self._room += 1
                if not found:
                    del self.by_cursor[cursor]
        elif record.timestamp_ms < self._before_ms and record.offset >= self._start and self.full_at is None:
            if self._room == 0:
                self.full_at = record.offset
                return
            self.by_cursor.setdefault(cursor, set()).add(name)
            self._room -= 1


def orphans(
    segments: CursorSegments,
    identity: CursorIdentity,
    found: Iterable[SegmentName],
    commits: Sequence[CommittedOffset],
    checkpoint: CommittedOffset | None,
    is_owned: Callable[[], bool],
    deadline: Deadline,
) -> list[SegmentName]:
    """The segments of `found` that no live cursor needs, in order.

    `commits` are the commits of its groups, read after `found` and after the newest `checkpoint` of this incarnation.
    `is_owned`: whether the groups have members; called only where that matters.

    Raises:
        Corrupt: a record that a commit refers to cannot be read, or, without a commit of this product, one of the
            checkpoint.
        StoreError: `cursors` cannot be read.
    """
    ours = [metadata for commit in commits if (metadata := of_this_life(identity, commit)) is not None]
    needed: set[SegmentName] = set()
    for metadata in ours:
        needed.update(_referred_to(segments, identity, metadata, deadline))
    copied = None if checkpoint is None else of_this_life(identity, checkpoint)
    if copied is not None:
        try:
            needed.update(_referred_to(segments, identity, copied, deadline))
        except Corrupt:
            if not ours:
                raise  # else the commits count, and this is a copy of a state that was left behind
    saved = {metadata.lineage.session.hex(): metadata.lineage.save for metadata in ours}
    unneeded = sorted(name for name in found if name not in needed)
    under_way = [name for name in unneeded if name.session in saved and name.save > saved[name.session]]
    return [name for name in unneeded if name not in under_way] if under_way and is_owned() else unneeded


def of_this_life(identity: CursorIdentity, commit: CommittedOffset) -> CommitMetadata | None:
    """The metadata of a commit for this cursor; None for another life's, or a Kafka tool's. Raises Corrupt."""
    try:
        metadata = decode_commit_metadata(commit.metadata)
    except CorruptRecord as error:
        raise Corrupt(f"cursor {identity}: committed offset {commit.kafka_offset}: {error}") from error
    return metadata if metadata is not None and metadata.lineage.same_life(identity.lineage(b"", 0, 0)) else None


def _referred_to(
    segments: CursorSegments, identity: CursorIdentity, metadata: CommitMetadata, deadline: Deadline
) -> Iterator[SegmentName]:
    if metadata.marker_offset is not None:
        yield from _names(*segments.read_marker(identity, metadata.marker_offset, deadline))


def _names(marker: Marker, own: MarkerRef) -> Iterator[SegmentName]:
    for ledger in marker.live:
        for ref in ledger.parts:
            yield SegmentName(ref.session.hex(), ref.save, ref.segment)
    for page in range(own.pages + 1):
        yield SegmentName(own.session.hex(), own.save, MARKER_SEGMENT - page)
