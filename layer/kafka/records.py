"""What a record looks like to the code above librdkafka."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from mapping.message_record import Headers
from mapping.packed_headers import unpack


class KafkaRecord(Protocol):
    """The part of librdkafka's message that this project reads.

    Headers are parsed on the first call, and packed once the record was looked over (`look_over`): see `headers_of`.
    """

    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> Headers | bytes | None: ...
    def timestamp(self) -> tuple[int, int]: ...


def headers_of(record: Any) -> Headers | None:
    """The headers of a record, which may be packed."""
    headers: Headers | bytes | None = record.headers()
    return unpack(headers) if isinstance(headers, bytes) else headers


class CommittedOffset(NamedTuple):
    """What a group committed for one partition: the next offset, and the committer's metadata ('' for none)."""

    kafka_offset: int
    metadata: str


class TopicDescription(NamedTuple):
    """A Kafka topic as the cluster knows it now."""

    name: str
    topic_id: str
    partitions: int


class GroupMember(NamedTuple):
    """One live member of a consumer group; `assigned` holds (topic, partition) pairs."""

    member_id: str
    client_id: str
    host: str
    assigned: tuple[tuple[str, int], ...]


class GroupDescription(NamedTuple):
    """A consumer group; `state` is Kafka's word (`EMPTY`, `STABLE`, `DEAD` ...)."""

    group_id: str
    state: str
    members: tuple[GroupMember, ...]
