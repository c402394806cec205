"""Decodes Kafka's own topic of consumer groups, `__consumer_offsets`: commits and members of groups. Pure.

A process with the right to read it receives every group's commits as they are made; the alternative is a request for
each group. Source: OffsetCommitKey, OffsetCommitValue, GroupMetadataKey and GroupMetadataValue, as JSON files of
Kafka's group coordinator; unknown versions are ignored.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pulsar_on_kafka.kafka.groups.consumer_protocol import decode_assignment
from pulsar_on_kafka.kafka.records import GroupMember, commit_metadata
from pulsar_on_kafka.kafka.wire.fields import FieldReader
from pulsar_on_kafka_mapping.errors import CorruptRecord

OFFSETS_TOPIC: Final = "__consumer_offsets"
_FLEXIBLE: Final = 4
"""The version of both values from which on lengths are varints, and tagged fields may follow."""
_LAST: Final = 4
_MIN_MEMBER_BYTES: Final = 15
"""A member whose strings and byte fields are empty, in a flexible version. Other versions need more."""


class CommitPlace(NamedTuple):
    """The place of a commit."""

    group: str
    kafka_topic: str
    partition: int


class GroupCommit(NamedTuple):
    """`committed_ms` is Unix time by the coordinator's clock."""

    kafka_offset: int
    metadata: str
    committed_ms: int


class MembersOf(NamedTuple):
    """The group whose members a record contains."""

    group: str


class _ValueReader(FieldReader):
    """Reads a value, whose fields are compact in flexible versions. A null string is empty."""

    __slots__ = ("flexible",)

    def __init__(self, data: bytes, what: str) -> None:
        super().__init__(data, what)
        self.flexible = False

    def string_or_empty(self) -> str:
        return (self.compact_nullable_string() if self.flexible else self.nullable_string()) or ""

    def blob(self) -> bytes:
        return bytes(self.compact_view()) if self.flexible else self.nullable_sized()

    def items(self, min_bytes_each: int) -> range:
        return self.compact_array(min_bytes_each) if self.flexible else self.nullable_array(min_bytes_each)


def decode_group_key(key: bytes) -> CommitPlace | MembersOf | None:
    """None for a record of another kind. Raises ValueError for bytes that cannot be read."""
    try:
        reader = FieldReader(key, "the key")
        version = reader.int16()
        if version in (0, 1):
            return CommitPlace(reader.string(), reader.string(), reader.int32())
        return MembersOf(reader.string()) if version == 2 else None
    except CorruptRecord as error:
        raise ValueError(f"a key of {OFFSETS_TOPIC} is cut off: {error}") from error


def decode_commit(value: bytes) -> GroupCommit | None:
    """None for a version that is not known. Raises ValueError for bytes that cannot be read."""
    try:
        reader = _ValueReader(value, "the value")
        version = reader.int16()
        if version > _LAST:
            return None
        reader.flexible = version >= _FLEXIBLE
        offset = reader.int64()
        if version >= 3:
            reader.int32()  # the leader's epoch
        return GroupCommit(offset, commit_metadata(reader.string_or_empty()), reader.int64())
    except CorruptRecord as error:
        raise ValueError(f"a commit in {OFFSETS_TOPIC} is cut off: {error}") from error


def decode_members(value: bytes) -> tuple[GroupMember, ...] | None:
    """The members of a group of the classic protocol, with what is assigned to them. None and ValueError as
    `decode_commit`."""
    try:
        reader = _ValueReader(value, "the value")
        version = reader.int16()
        if version > _LAST:
            return None
        reader.flexible = version >= _FLEXIBLE
        reader.string_or_empty()  # the protocol's type
        reader.int32()  # generation
        reader.string_or_empty()  # protocol
        reader.string_or_empty()  # leader
        if version >= 2:
            reader.int64()  # since when the group is in its state
        return tuple(_member(reader, version) for _ in reader.items(_MIN_MEMBER_BYTES))
    except CorruptRecord as error:
        raise ValueError(f"a group in {OFFSETS_TOPIC} is cut off: {error}") from error


def _member(reader: _ValueReader, version: int) -> GroupMember:
    member_id = reader.string_or_empty()
    if version >= 3:
        reader.string_or_empty()  # the static member's name
    client_id, host = reader.string_or_empty(), reader.string_or_empty()
    if version >= 1:
        reader.int32()  # time for a rebalance
    reader.int32()  # time of a session
    reader.blob()  # what it subscribed to
    assigned = decode_assignment(reader.blob())
    if reader.flexible:
        reader.skip_tagged()
    return GroupMember(member_id, client_id, host, assigned)
