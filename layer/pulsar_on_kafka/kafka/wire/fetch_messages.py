"""Fetch, with fetch sessions (KIP-227), topic ids (KIP-516) and detection of truncation (KIP-320, KIP-595). No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import ClassVar, Final, NamedTuple

from pulsar_on_kafka.kafka.wire.fields import (
    NO_TAGS,
    Api,
    FieldReader,
    compact_array,
    compact_string,
    int32,
)
from pulsar_on_kafka.kafka.wire.offset_messages import READ_UNCOMMITTED

NO_SESSION: Final = 0
"""The session id of a first request, and of a broker that has no room for one more session."""
FINAL_EPOCH: Final = -1
"""The epoch of a request that ends its session, or is of none."""

_head: Final = Struct(">iiiibii").pack
_partition: Final = Struct(">iiqiqi").pack
_HEAD: Final = Struct(">ihi")
_TOPIC_ID: Final = Struct(">16s")
_PARTITION: Final = Struct(">ihqqq")
_ABORTED: Final = Struct(">qq")
_DIVERGING: Final = Struct(">iq")
_LEADER: Final = Struct(">ii")
_DIVERGING_TAG, _LEADER_TAG = 0, 1


class PartitionToFetch(NamedTuple):
    """`current_leader_epoch` is compared with the broker's, `last_fetched_epoch` detects truncation; -1 does not."""

    partition: int
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1


class AbortedRange(NamedTuple):
    """A transaction of Kafka that was aborted; its records begin at `first_offset`."""

    producer_id: int
    first_offset: int


class EpochEnd(NamedTuple):
    """The end of the largest leader epoch that the log has in common with the fetched one."""

    epoch: int
    end_offset: int


class LeaderAndEpoch(NamedTuple):
    leader_id: int
    leader_epoch: int


class FetchedPartition(NamedTuple):
    partition_index: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: tuple[AbortedRange, ...]
    preferred_read_replica: int
    records: memoryview
    """Batches in Kafka's format, the last one perhaps cut. The memory is the whole response's."""
    diverging_epoch: EpochEnd | None
    """The log was truncated below the requested offset."""
    current_leader: LeaderAndEpoch | None
    """The new leader, if the error says that the partition has another one."""


class FetchResponse(NamedTuple):
    throttle_time_ms: int
    error_code: int
    session_id: int
    topics: tuple[tuple[bytes, tuple[FetchedPartition, ...]], ...]
    """Partitions by topic id."""


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """`topics` and `forgotten_topics` have partitions by topic id (16 bytes).

    A session begins with epoch 0 and all its partitions. Later requests have the session's id, epochs from 1 on, and
    the changes only.
    """

    API: ClassVar = Api("Fetch", 1, 13, True)

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    topics: tuple[tuple[bytes, tuple[PartitionToFetch, ...]], ...]
    forgotten_topics: tuple[tuple[bytes, tuple[int, ...]], ...] = ()
    session_id: int = NO_SESSION
    session_epoch: int = FINAL_EPOCH
    isolation_level: int = READ_UNCOMMITTED
    rack_id: str = ""

    def encode(self) -> bytes:
        topics = [
            topic_id
            + compact_array(
                _partition(index, leader_epoch, offset, last_epoch, -1, max_bytes) + NO_TAGS
                for index, offset, max_bytes, leader_epoch, last_epoch in partitions
            )
            + NO_TAGS
            for topic_id, partitions in self.topics
        ]
        forgotten = [
            topic_id + compact_array(map(int32, partitions)) + NO_TAGS for topic_id, partitions in self.forgotten_topics
        ]
        head = _head(
            -1, self.max_wait_ms, self.min_bytes, self.max_bytes, self.isolation_level, self.session_id,
            self.session_epoch,
        )  # fmt: skip
        return head + compact_array(topics) + compact_array(forgotten) + compact_string(self.rack_id) + NO_TAGS

    @staticmethod
    def decode_response(reader: FieldReader) -> FetchResponse:
        throttle_time_ms, error_code, session_id = reader.numbers(_HEAD)
        topics = []
        for _ in reader.compact_array(18):
            (topic_id,) = reader.numbers(_TOPIC_ID)
            partitions = [_fetched(reader) for _ in reader.compact_array(37)]
            reader.skip_tagged()
            topics.append((topic_id, tuple(partitions)))
        reader.skip_tagged()
        return FetchResponse(throttle_time_ms, error_code, session_id, tuple(topics))


def _fetched(reader: FieldReader) -> FetchedPartition:
    index, error_code, high_watermark, last_stable_offset, log_start_offset = reader.numbers(_PARTITION)
    aborted = []
    for _ in reader.compact_array(17):
        aborted.append(AbortedRange._make(reader.numbers(_ABORTED)))
        reader.skip_tagged()
    preferred, records = reader.int32(), reader.compact_view()
    diverging, leader = None, None
    for tag, field in reader.tagged():
        if tag == _DIVERGING_TAG:
            diverging = EpochEnd._make(field.numbers(_DIVERGING))
        elif tag == _LEADER_TAG:
            leader = LeaderAndEpoch._make(field.numbers(_LEADER))
    return FetchedPartition(
        index, error_code, high_watermark, last_stable_offset, log_start_offset, tuple(aborted), preferred, records,
        diverging, leader,
    )  # fmt: skip
