"""Copies of messages of one partition here in its partition of Pulsar: their names, their places, and the
acknowledgements that they lack there. Pure.

    producer     pok.export.<Kafka's cluster id>.<topic incarnation>.<partition>
    sequence id  (offset << 17 | index) + 1

The index is that in the record's batch. A message that the client may send in chunks, which is in no batch, has a
random one: the client names chunks by the sequence id, and receivers drop a message whose first chunk came twice.

So each copy names its original. Sequence ids grow along the log, so Pulsar's deduplication stores each copy once, and
the highest one is the progress of the export.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pyroaring import BitMap64

from pulsar_on_kafka.broker.replication_state.acks import ReplicatedAcks
from pulsar_on_kafka.broker.replication_state.origin_index import CopiedRun
from pulsar_on_kafka.clusters.migration.from_pulsar.entry_positions import (
    ENTRY_BITS,
    Acknowledged,
    Position,
    place_of,
)
from pulsar_on_kafka_mapping.errors import MappingError

BATCH_BITS: Final = 17
MAX_INDEX: Final = (1 << BATCH_BITS) - 1
_MAX_OFFSET: Final = (1 << 63 - BATCH_BITS) - 1


class MessagePlace(NamedTuple):
    """A message here: the offset of its record (of the last chunk), and its index in the record's batch (0 or random
    without one)."""

    offset: int
    batch_index: int


def sequence_id(place: MessagePlace) -> int:
    """1 or more, since Pulsar's client takes 0 for none. Raises MappingError: the offset or the index is too large."""
    offset, index = place
    if not (0 <= offset <= _MAX_OFFSET and 0 <= index <= MAX_INDEX):
        raise MappingError(
            f"offset {offset} and index {index} have no sequence id: offsets are at most {_MAX_OFFSET}, "
            f"indexes {MAX_INDEX}"
        )
    return (offset << BATCH_BITS | index) + 1


def original_at(sequence: int) -> MessagePlace:
    return MessagePlace(sequence - 1 >> BATCH_BITS, sequence - 1 & MAX_INDEX)


def export_name(cluster_id: str, incarnation: int, partition: int) -> str:
    """The producer's name, for all copies of one partition: so Pulsar lets no second export in."""
    return f"pok.export.{cluster_id}.{incarnation}.{partition}"


@dataclass(slots=True)
class ExportedCopies:
    """Copies that are in Pulsar, added in their order there. Memory: 16 bytes a copy, 8 more with digests, and the
    places of chunks."""

    sequences: array[int] = field(default_factory=lambda: array("Q"))
    _places: array[int] = field(default_factory=lambda: array("Q"))
    _digests: array[int] = field(default_factory=lambda: array("Q"))
    chunks: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """The places of the earlier chunks of any message in Pulsar, by that of the last one."""
    repeated: int = 0
    """Copies whose original had one before, or one of a later original."""

    @property
    def highest(self) -> int:
        """The highest sequence id, -1 without a copy."""
        return self.sequences[-1] if self.sequences else -1

    def add(self, sequence: int, place: int, digest: int | None = None) -> None:
        """`digest`: of all copies or of none."""
        if sequence <= self.highest:
            self.repeated += 1
            return
        self.sequences.append(sequence)
        self._places.append(place)
        if digest is not None:
            self._digests.append(digest)

    def digest(self, first: int, last: int) -> int | None:
        """The digest of the first copy with a sequence id from `first` to `last`; None without one."""
        at = bisect_left(self.sequences, first)
        if at < len(self.sequences) and self.sequences[at] <= last:
            return self._digests[at]
        return None

    def places(self, acks: ReplicatedAcks, done: Acknowledged) -> BitMap64:
        """The places of copies whose originals are acknowledged here, and which are not acknowledged there."""
        found = BitMap64()
        for sequence, place in self._left(done):
            if is_acknowledged(acks, original_at(sequence)):
                found.add(place)
        return found

    def with_chunks(self, places: BitMap64) -> BitMap64:
        """The places of these messages, with those of their earlier chunks."""
        earlier = (chunk for last, chunks in self.chunks.items() if last in places for chunk in chunks)
        return places | BitMap64(list(earlier))

    def left(self, acks: ReplicatedAcks, done: Acknowledged) -> tuple[BitMap64, BitMap64]:
        """Sequence ids of the copies that are not acknowledged: (here, there)."""
        here = BitMap64([each for each in self.sequences if not is_acknowledged(acks, original_at(each))])
        return here, BitMap64([sequence for sequence, _ in self._left(done)])

    def _left(self, done: Acknowledged) -> Iterator[tuple[int, int]]:
        first = bisect_left(self._places, done.end)
        for at in range(first, len(self._places)):
            if self._places[at] not in done:
                yield self.sequences[at], self._places[at]


def is_acknowledged(acks: ReplicatedAcks, place: MessagePlace) -> bool:
    if acks.has(place.offset):
        return True
    in_batch = acks.batches.get(place.offset)
    return in_batch is not None and bool(in_batch[1] >> place.batch_index & 1)


@dataclass(frozen=True, slots=True)
class OriginalsInPulsar:
    """Entries of Pulsar that were imported from this partition of it, and are still there, or were deleted by Pulsar
    itself: their copies here are not exported.

    Ledger ids are never used again, so the entries of a topic that was deleted and created anew are not among them.
    """

    cluster: str = ""
    """The origin in the copies; '' where nothing was imported from this Pulsar."""
    partition: int = 0
    ledgers: Mapping[int, int] = field(default_factory=dict)
    """The number of entries of each ledger that Pulsar has, by its id."""
    upto: Position | None = None
    """The last imported entry."""

    @property
    def any(self) -> bool:
        """Whether there is any such entry."""
        return self.upto is not None and any(each <= self.upto.ledger_id for each in self.ledgers)

    def has(self, cluster: str, partition: int, place: int) -> bool:
        """Whether Pulsar has the entry from which this copy was made, or had it and deleted it."""
        if not self.cluster or cluster != self.cluster or partition != self.partition:
            return False
        same_topic = self.upto is not None and self.upto.ledger_id in self.ledgers
        return same_topic or place >> ENTRY_BITS in self.ledgers

    def places(self, runs: Iterable[CopiedRun], log_start: int, acks: ReplicatedAcks, done: Acknowledged) -> BitMap64:
        """The places of entries whose copies are acknowledged here, and which are not acknowledged there.

        `log_start`: the first offset here. Entries before the first copy had copies that were deleted here, where the
        cursor has passed the log's start.
        """
        found, first = BitMap64(), None
        for run in runs:
            first = run.there if first is None else min(first, run.there)
            for each in acks.within(run.here, run.here + run.length):
                if run.there + each not in done:
                    found.add(run.there + each)
        if 0 < log_start <= acks.below and self.upto is not None:
            end = place_of(self.upto) + 1 if first is None else first
            for ledger_id, entries in self.ledgers.items():
                start = place_of(Position(ledger_id, 0))
                found |= _unacknowledged(start, min(end, start + entries), done)
        return found


def _unacknowledged(start: int, end: int, done: Acknowledged) -> BitMap64:
    found = BitMap64()
    if start < end:
        found.add_range(start, end)
        for low, high in done.within(start, end):
            found.remove_range(low, high)
    return found
