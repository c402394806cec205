"""Requests about offsets: OffsetCommit, OffsetFetch, ListOffsets. Names as in Kafka's protocol. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import ClassVar, Final, NamedTuple

from pulsar_on_kafka.kafka.wire.fields import (
    NO_TAGS,
    Api,
    FieldReader,
    array,
    compact_array,
    compact_string,
    int32,
    nullable_string,
    string,
)

EARLIEST_TIMESTAMP: Final = -2
LATEST_TIMESTAMP: Final = -1
NO_OFFSET: Final = -1
"""The answer where a group has committed nothing, or no record has such a timestamp."""
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

_commit: Final = Struct(">iqi").pack
_PARTITION_ERROR: Final = Struct(">ih")
_FETCHED: Final = Struct(">iqi")
_query: Final = Struct(">iiq").pack
_LISTED: Final = Struct(">ihqqi")


class OffsetToCommit(NamedTuple):
    partition_index: int
    committed_offset: int
    committed_metadata: str | None
    committed_leader_epoch: int = -1


class PartitionError(NamedTuple):
    """A partition's result; error code 0 is success."""

    partition_index: int
    error_code: int


class OffsetCommitResponse(NamedTuple):
    throttle_time_ms: int
    topics: tuple[tuple[str, tuple[PartitionError, ...]], ...]


@dataclass(frozen=True, slots=True)
class OffsetCommitRequest:
    """Offsets by topic name. Without a member: generation -1 and member id ''."""

    API: ClassVar = Api("OffsetCommit", 8, 7, False)

    group_id: str
    generation_id: int
    member_id: str
    topics: tuple[tuple[str, tuple[OffsetToCommit, ...]], ...]
    group_instance_id: str | None = None

    def encode(self) -> bytes:
        parts = [
            string(self.group_id),
            int32(self.generation_id),
            string(self.member_id),
            nullable_string(self.group_instance_id),
            int32(len(self.topics)),
        ]
        for name, partitions in self.topics:
            parts += string(name), int32(len(partitions))
            for index, offset, metadata, epoch in partitions:
                parts += _commit(index, offset, epoch), nullable_string(metadata)
        return b"".join(parts)

    @staticmethod
    def decode_response(reader: FieldReader) -> OffsetCommitResponse:
        throttle_time_ms = reader.int32()
        topics = []
        for _ in reader.array(6):
            name = reader.string()
            results = [PartitionError._make(reader.numbers(_PARTITION_ERROR)) for _ in reader.array(6)]
            topics.append((name, tuple(results)))
        return OffsetCommitResponse(throttle_time_ms, tuple(topics))


class FetchedOffset(NamedTuple):
    partition_index: int
    committed_offset: int
    """`NO_OFFSET` without a commit."""
    committed_leader_epoch: int
    metadata: str | None
    error_code: int


class OffsetsOfGroup(NamedTuple):
    group_id: str
    topics: tuple[tuple[str, tuple[FetchedOffset, ...]], ...]
    error_code: int


class OffsetFetchResponse(NamedTuple):
    throttle_time_ms: int
    groups: tuple[OffsetsOfGroup, ...]


@dataclass(frozen=True, slots=True)
class OffsetFetchRequest:
    """Committed offsets of groups that have the same coordinator: partitions by topic name, or None for all.

    `require_stable` fails partitions with a pending transactional commit by UNSTABLE_OFFSET_COMMIT (KIP-447).
    """

    API: ClassVar = Api("OffsetFetch", 9, 8, True)

    groups: tuple[tuple[str, tuple[tuple[str, tuple[int, ...]], ...] | None], ...]
    require_stable: bool = True

    def encode(self) -> bytes:
        groups = []
        for group_id, topics in self.groups:
            encoded = b"\0" if topics is None else compact_array(_offsets_of_topic(*topic) for topic in topics)
            groups.append(compact_string(group_id) + encoded + NO_TAGS)
        return compact_array(groups) + (b"\1" if self.require_stable else b"\0") + NO_TAGS

    @staticmethod
    def decode_response(reader: FieldReader) -> OffsetFetchResponse:
        throttle_time_ms = reader.int32()
        groups = []
        for _ in reader.compact_array(5):
            group_id = reader.compact_string()
            topics = tuple([_fetched_topic(reader) for _ in reader.compact_array(3)])
            groups.append(OffsetsOfGroup(group_id, topics, reader.int16()))
            reader.skip_tagged()
        reader.skip_tagged()
        return OffsetFetchResponse(throttle_time_ms, tuple(groups))


def _offsets_of_topic(name: str, partitions: tuple[int, ...]) -> bytes:
    return compact_string(name) + compact_array(map(int32, partitions)) + NO_TAGS


def _fetched_topic(reader: FieldReader) -> tuple[str, tuple[FetchedOffset, ...]]:
    name = reader.compact_string()
    offsets = []
    for _ in reader.compact_array(20):
        index, offset, epoch = reader.numbers(_FETCHED)
        offsets.append(FetchedOffset(index, offset, epoch, reader.compact_nullable_string(), reader.int16()))
        reader.skip_tagged()
    reader.skip_tagged()
    return name, tuple(offsets)


class OffsetQuery(NamedTuple):
    """`timestamp` is milliseconds of Unix time, `EARLIEST_TIMESTAMP` or `LATEST_TIMESTAMP`."""

    partition_index: int
    timestamp: int
    current_leader_epoch: int = -1


class ListedOffset(NamedTuple):
    partition_index: int
    error_code: int
    timestamp: int
    offset: int
    leader_epoch: int


class ListOffsetsResponse(NamedTuple):
    throttle_time_ms: int
    topics: tuple[tuple[str, tuple[ListedOffset, ...]], ...]


@dataclass(frozen=True, slots=True)
class ListOffsetsRequest:
    """Queries by topic name, to the broker that leads the partitions."""

    API: ClassVar = Api("ListOffsets", 2, 5, False)

    topics: tuple[tuple[str, tuple[OffsetQuery, ...]], ...]
    isolation_level: int = READ_UNCOMMITTED

    def encode(self) -> bytes:
        topics = [
            string(name) + array(_query(index, epoch, timestamp) for index, timestamp, epoch in queries)
            for name, queries in self.topics
        ]
        return int32(-1) + bytes((self.isolation_level,)) + array(topics)

    @staticmethod
    def decode_response(reader: FieldReader) -> ListOffsetsResponse:
        throttle_time_ms = reader.int32()
        topics = []
        for _ in reader.array(6):
            name = reader.string()
            listed = [ListedOffset._make(reader.numbers(_LISTED)) for _ in reader.array(26)]
            topics.append((name, tuple(listed)))
        return ListOffsetsResponse(throttle_time_ms, tuple(topics))
