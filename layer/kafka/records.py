"""What a record looks like to the code above librdkafka."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class KafkaRecord(Protocol):
    """The part of librdkafka's message that this project reads. Headers are parsed on the first call."""

    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> list[tuple[str, bytes | None]] | None: ...
    def timestamp(self) -> tuple[int, int]: ...


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
