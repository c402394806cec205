"""The progress log writes and reads the reports of clusters about subscriptions, in the state topic
`subscription_progress` of one of them."""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final, TypeVar

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Corrupt, Fenced, StoreError
from pulsar_on_kafka.broker.cursor.ledger_acks import pieces
from pulsar_on_kafka.broker.replication_state.acks import ReplicatedAcks
from pulsar_on_kafka.broker.replication_state.progress import Progress
from pulsar_on_kafka.broker.replication_state.progress_heads import HeadAt, HeadWriter, ProgressHeads, Subject
from pulsar_on_kafka.statelog.api import StateLog, tombstone
from pulsar_on_kafka.statelog.views import LogViews
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.state.clusters.subscription_progress import (
    BLOCK,
    Origin,
    ProgressHead,
    SavedAcks,
    SegmentPlace,
    decode_head,
    decode_segment,
    encode_head,
    encode_segment,
)
from pulsar_on_kafka_mapping.state.cursors.cursor_state import Deliveries, Holes
from pulsar_on_kafka_mapping.state.state_keys import ProgressHeadKey, ProgressSegmentKey, encode_key
from pulsar_on_kafka_mapping.state.state_topics import SUBSCRIPTION_PROGRESS

T = TypeVar("T")

_HERE_BYTES: Final = 512
"""A block of at most this size rides in the head."""
_HEAD_BYTES: Final = 256 * 1024
"""The limit of bytes in one head."""
_LARGEST_HEAD_BYTES: Final = 1_000_000
_SEGMENT_BYTES: Final = 512 * 1024
_MAX_BLOCKS: Final = 256
_READ_AT_ONCE: Final = 64


class Superseded(StoreError):
    """The records that a head refers to are gone, because a newer one counts: read that."""


class ProgressLog:
    """The state topic of one cluster. Thread-safe.

    Memory: see `ProgressHeads` for the partitions in use, and the 256 blocks that were read last (32 KiB each at most,
    except for ack sets of batch entries).
    """

    def __init__(self, log: StateLog, clock: Clock) -> None:
        self.log = log
        self.heads = LogViews(log, SUBSCRIPTION_PROGRESS, lambda _: ProgressHeads(), clock)
        self._lock = threading.Lock()
        self._read: OrderedDict[tuple[int, int], tuple[int, Holes]] = OrderedDict()

    def head(self, subject: Subject, at: HeadAt, deadline: Deadline) -> ProgressHead:
        """Raises Superseded, Corrupt, StoreError."""
        partition = SUBSCRIPTION_PROGRESS.partition_for(subject.topic)
        record = self.log.read_at(SUBSCRIPTION_PROGRESS, partition, [at.offset], deadline).get(at.offset)
        if record is None or record.value is None:
            raise Superseded(f"the head of {subject} at offset {at.offset} is gone")
        try:
            return decode_head(record.value)
        except CorruptRecord as error:
            raise Corrupt(f"{self._place(partition, at.offset)}: {error}") from error

    def blocks(
        self, subject: Subject, apart: Mapping[int, tuple[SegmentPlace, ...]], deadline: Deadline
    ) -> Iterator[tuple[int, Holes]]:
        """The blocks that lie in these segments, each in one or several parts. Raises as `head`."""
        partition = SUBSCRIPTION_PROGRESS.partition_for(subject.topic)
        waiting = [place.offset for places in apart.values() for place in places]
        while waiting:
            some, waiting = waiting[:_READ_AT_ONCE], waiting[_READ_AT_ONCE:]
            with self._lock:
                known = {offset: self._read[partition, offset] for offset in some if (partition, offset) in self._read}
            missing = [offset for offset in some if offset not in known]
            records = self.log.read_at(SUBSCRIPTION_PROGRESS, partition, missing, deadline) if missing else {}
            for offset in missing:
                record = records.get(offset)
                if record is None or record.value is None:
                    raise Superseded(f"a segment of {subject} at offset {offset} is gone")
                try:
                    known[offset] = decode_segment(record.value)
                except CorruptRecord as error:
                    raise Corrupt(f"{self._place(partition, offset)}: {error}") from error
            self._keep(partition, known)
            yield from known.values()

    def _place(self, partition: int, offset: int) -> str:
        return f"{self.log.kafka_name(SUBSCRIPTION_PROGRESS)}-{partition} offset {offset}"

    def _keep(self, partition: int, found: Mapping[int, tuple[int, Holes]]) -> None:
        with self._lock:
            for offset, block in found.items():
                self._read[partition, offset] = block
                self._read.move_to_end((partition, offset))
            while len(self._read) > _MAX_BLOCKS:
                self._read.popitem(last=False)

    def all_of(self, subject: Subject, head: ProgressHead, deadline: Deadline) -> Progress:
        """The whole progress of a head. Raises the errors of `head`. Memory: all of it, see `ReplicatedAcks`."""
        progress: Progress = {}
        for origin, saved in head.origins.items():
            acks = progress[origin] = ReplicatedAcks(BLOCK, saved.below, saved.here)
            for block, holes in self.blocks(subject, saved.apart, deadline):
                acks.join(ReplicatedAcks(BLOCK, 0, {block: holes}))
        return progress

    def newest(self, subject: Subject, deadline: Deadline) -> tuple[HeadAt, ProgressHead] | None:
        """The head that counts; None without any. Raises the errors of `head`."""
        at = self.heads.query(subject.topic, lambda heads: heads.newest(subject), deadline)
        return None if at is None else (at, self.head(subject, at, deadline))

    def forget(self, subject: Subject, deadline: Deadline) -> None:
        """Tombstones all reports on a subject: the subscription was deleted. Segments are deleted last: a readable head
        has its segments."""

        def keys(heads: ProgressHeads) -> list[bytes]:
            return _keys(subject, heads.others_keys(subject, HeadWriter(1 << 62, "")))[::-1]

        self.tombstone(subject, self.heads.query(subject.topic, keys, deadline), deadline)

    def tombstone(self, subject: Subject, keys: list[bytes], deadline: Deadline) -> None:
        tombstone(self.log, SUBSCRIPTION_PROGRESS, SUBSCRIPTION_PROGRESS.partition_for(subject.topic), keys, deadline)


class ProgressWriter:
    """Writes the reports on one subject, a save at a time; for one thread. Blocks that did not change are not written
    again.

    Memory: 200 bytes for each block that does not ride in the head.
    """

    def __init__(self, log: ProgressLog, subject: Subject) -> None:
        self.log = log
        self.subject = subject
        self._writer: HeadWriter | None = None
        self._save = 0
        self._last = b""
        """Digest of the head that was written last."""
        self._apart: dict[tuple[Origin, int], tuple[bytes, tuple[SegmentPlace, ...]]] = {}

    def write(
        self, life: tuple[int, int], progress: Progress, deliveries: Mapping[Origin, Deliveries], deadline: Deadline
    ) -> None:
        """Replaces the subject's report by `progress` and these `deliveries`. An unchanged report is not written again.

        Raises:
            Fenced: another writer took over. The next call takes over from it.
            StoreError: it may have been written or not. Also when it is too large for a head: more than about 40,000
                blocks (10 billion offsets) with holes that do not fit into it.
        """
        try:
            self._write(life, progress, deliveries, deadline)
        except StoreError:
            self._writer, self._apart, self._last = None, {}, b""  # restart: the result is unknown
            raise

    def _write(
        self, life: tuple[int, int], progress: Progress, deliveries: Mapping[Origin, Deliveries], deadline: Deadline
    ) -> None:
        partition = SUBSCRIPTION_PROGRESS.partition_for(self.subject.topic)
        writer = self._writer
        if writer is None:
            version = self.log.heads.query(self.subject.topic, lambda heads: heads.next_version(self.subject), deadline)
            writer = self._writer = HeadWriter(version, secrets.token_hex(8))
            self._save, self._apart = 0, {}
        self._save += 1
        head = ProgressHead(life, self._saved(progress, writer, partition, deadline), deliveries)
        value = encode_head(head)
        if len(value) > _LARGEST_HEAD_BYTES:
            raise StoreError(f"the head of {self.subject} takes {len(value)} bytes and has room for 1,000,000")
        digest = hashlib.blake2b(value, digest_size=16).digest()
        if digest == self._last:
            return
        key = encode_key(ProgressHeadKey(*self.subject, *writer))
        offset = self.log.log.append(SUBSCRIPTION_PROGRESS, partition, key, value, deadline)
        live = {place.offset for saved in head.origins.values() for places in saved.apart.values() for place in places}

        def read_back(heads: ProgressHeads) -> tuple[HeadAt | None, list[bytes]]:
            written = heads.segments_of(self.subject, writer)
            obsolete = [segment for segment, at in written.items() if at not in live]
            return heads.newest(self.subject), [
                *_keys(self.subject, heads.others_keys(self.subject, writer)),
                *obsolete,
            ]

        counts, obsolete = self.log.heads.query(self.subject.topic, read_back, deadline)
        if counts is None or counts.writer != writer or counts.offset < offset:
            raise Fenced(f"another writer reports {self.subject} now")
        self.log.tombstone(self.subject, obsolete, deadline)
        self._last = digest

    def _saved(
        self, progress: Progress, writer: HeadWriter, partition: int, deadline: Deadline
    ) -> dict[Origin, SavedAcks]:
        room = _HEAD_BYTES
        origins: dict[Origin, SavedAcks] = {}
        kept: dict[tuple[Origin, int], tuple[bytes, tuple[SegmentPlace, ...]]] = {}
        new: list[tuple[Origin, int, bytes, dict[int, tuple[SegmentPlace, ...]], list[bytes]]] = []
        for origin, acks in progress.items():
            here: dict[int, Holes] = {}
            apart: dict[int, tuple[SegmentPlace, ...]] = {}
            origins[origin] = SavedAcks(acks.below, here, apart)
            for block, holes in acks.blocks().items():
                value = encode_segment(block, holes)
                if len(value) <= min(_HERE_BYTES, room):
                    here[block] = holes
                    room -= len(value)
                    continue
                digest = hashlib.blake2b(value, digest_size=16).digest()
                known = self._apart.get((origin, block))
                if known is not None and known[0] == digest:
                    kept[origin, block] = known
                    apart[block] = known[1]
                    continue
                parts = [encode_segment(block, each[block]) for each in pieces({block: holes}, _SEGMENT_BYTES)]
                new.append((origin, block, digest, apart, parts))
        values = [part for *_, parts in new for part in parts]
        numbered = [
            (encode_key(ProgressSegmentKey(*self.subject, *writer, self._save, number)), value)
            for number, value in enumerate(values)
        ]
        offsets = self.log.log.append_many(SUBSCRIPTION_PROGRESS, partition, numbered, deadline) if numbered else []
        places = (SegmentPlace(self._save, number, offset) for number, offset in enumerate(offsets))
        for origin, block, digest, apart, parts in new:
            apart[block] = tuple(islice(places, len(parts)))
            kept[origin, block] = (digest, apart[block])
        self._apart = kept
        return origins


def _keys(subject: Subject, found: list[tuple[HeadWriter, bytes | None]]) -> list[bytes]:
    return [encode_key(ProgressHeadKey(*subject, *writer)) if key is None else key for writer, key in found]
