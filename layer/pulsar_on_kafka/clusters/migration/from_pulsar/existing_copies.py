"""Copies of a Pulsar topic's entries in one partition here: their offsets by the entries' places, and their digests."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from pyroaring import BitMap

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.producers.fences import Fences
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.replication_state.acks import ReplicatedAcks
from pulsar_on_kafka.broker.replication_state.origin_index import CopiedRun, OriginIndex, is_marker
from pulsar_on_kafka.clusters.migration.from_pulsar.entries import INCARNATION, Digest
from pulsar_on_kafka.clusters.migration.from_pulsar.entry_positions import Acknowledged, acknowledged_copies
from pulsar_on_kafka.kafka.records import KafkaRecord, headers_of
from pulsar_on_kafka_mapping.records.epoch_fences import Fence, begun_by
from pulsar_on_kafka_mapping.records.message_record import chunk_info
from pulsar_on_kafka_mapping.records.original_position import copy_headers, original_of
from pulsar_on_kafka_mapping.records.record_headers import CHUNK, REPLICATED_FROM
from pulsar_on_kafka_mapping.state.clusters.subscription_progress import Origin

_MAX_CHUNKS_KEPT: Final = 10_000


@dataclass(slots=True)
class CopiesHere:
    """Copies in the log from its start to its end at the reading. `incomplete`: chunks that never became a message.

    Memory: `OriginIndex`, 16 bytes for each copy with digests, and the offsets of chunks.
    """

    index: OriginIndex
    origin: Origin
    earlier_chunks: dict[int, list[int]] = field(default_factory=dict)
    """The earlier chunks, by the last chunk's offset."""
    incomplete: list[int] = field(default_factory=list)
    _places: array[int] = field(default_factory=lambda: array("Q"))
    _digests: array[int] = field(default_factory=lambda: array("Q"))
    _late: dict[int, int] = field(default_factory=dict)

    def runs(self) -> Iterator[CopiedRun]:
        return self.index.runs(self.origin)

    def digest(self, place: int) -> int | None:
        """None: there is no copy."""
        at = bisect_left(self._places, place)
        if at < len(self._places) and self._places[at] == place:
            return self._digests[at]
        return self._late.get(place)

    def note_digest(self, place: int, digest: int) -> None:
        """Note a copy's digest; of several copies the first counts."""
        if not self._places or place > self._places[-1]:
            self._places.append(place)
            self._digests.append(digest)
        elif self.digest(place) is None:
            self._late[place] = digest

    def acknowledged(self, done: Acknowledged, entries_per_ledger: int) -> ReplicatedAcks:
        """The offsets here of all records of entries that are acknowledged there, and of what is no message."""
        found = acknowledged_copies(done, self.runs(), entries_per_ledger)
        chunks = [each for last, before in self.earlier_chunks.items() if found.has(last) for each in before]
        for offset in chunks + self.incomplete:
            found.add(offset, BitMap([0]))
        return found


def copies_here(
    node: Node, topic: Topic, partition: int, cluster: str, deadline: Deadline, *, digests: bool = False
) -> CopiesHere:
    """Reads the copies of one partition here of entries of the Pulsar cluster. Raises StoreError, CorruptRecord."""
    low, end = node.fetcher.watermarks(topic.kafka_topic, partition, deadline)
    fences = node.producers.fences(topic, partition, deadline)
    batches = node.fetcher.read(topic.kafka_topic, partition, low, end, deadline)
    return read_copies(batches, low, end, cluster, partition, fences, digests=digests)


def read_copies(
    batches: Iterable[list[KafkaRecord]],
    start: int,
    end: int,
    cluster: str,
    partition: int,
    fences: Iterable[Fence],
    *,
    digests: bool,
) -> CopiesHere:
    """The originals of the records in [start, end). `fences`: those of the partition. Raises CorruptRecord."""
    index = OriginIndex(start)
    found = CopiesHere(index, Origin(cluster, INCARNATION))
    rules = Fences(fences)
    chunks: dict[str, list[KafkaRecord]] = {}
    for batch in batches:
        offsets = [record.offset() for record in batch]
        rules.learn(offsets, batch, [i for i, record in enumerate(batch) if begun_by(headers_of(record)) is not None])
        void = set(rules.void_in(offsets, batch))
        for number, record in enumerate(batch):
            headers = headers_of(record)
            if is_marker(headers) or number in void:
                index.no_message(record.offset())
                continue
            reported = copy_headers(headers)
            here = reported is not None and reported.cluster.decode("utf-8", "replace") == cluster
            pieces = [record]
            if any(name == CHUNK for name, _ in headers or ()):
                info = chunk_info(headers)
                assert info is not None  # noqa: S101 - the header is there
                if not here:
                    index.published_here(record.offset())
                    if _is_from(headers, cluster):
                        chunks.setdefault(info.uuid, []).append(record)
                        _keep_bound(chunks, found)
                    continue
                pieces = [*chunks.pop(info.uuid, []), record]
                if len(pieces) == info.chunks:
                    found.earlier_chunks[record.offset()] = [each.offset() for each in pieces[:-1]]
            if reported is None or not here:
                index.published_here(record.offset())
                continue
            read = original_of(reported)
            if read is None or read[1].partition != partition:
                index.published_here(record.offset())
                continue
            original = read[1]
            index.copied(record.offset(), found.origin, original.kafka_offset, original.epoch)
            if digests:
                digest = Digest()
                for each in pieces:
                    digest.add(each.key(), each.value(), headers_of(each) or ())
                found.note_digest(original.kafka_offset, digest.number())
    index.reached(end)
    found.incomplete += [record.offset() for pieces in chunks.values() for record in pieces]
    return found


def _is_from(headers: Iterable[tuple[str, bytes | None]] | None, cluster: str) -> bool:
    return any(name == REPLICATED_FROM and value == cluster.encode("utf-8") for name, value in headers or ())


def _keep_bound(chunks: dict[str, list[KafkaRecord]], found: CopiesHere) -> None:
    if len(chunks) > _MAX_CHUNKS_KEPT:
        found.incomplete += [record.offset() for record in chunks.pop(next(iter(chunks)))]
