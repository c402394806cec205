"""Decodes Kafka's own topic of consumer groups, `__consumer_offsets`: commits and members of groups. Pure.

A process with the right to read it receives every group's commits as they are made; the alternative is a request for
each group. Source: OffsetCommitKey, OffsetCommitValue, GroupMetadataKey and GroupMetadataValue, as JSON files of
Kafka's group coordinator; unknown versions are ignored.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pulsar_on_kafka.kafka.groups.consumer_protocol import decode_assignment
from pulsar_on_kafka.kafka.records import GroupMember

OFFSETS_TOPIC: Final = "__consumer_offsets"
_FLEXIBLE: Final = 4
"""The version of both values from which on lengths are varints, and tagged fields may follow."""
_LAST: Final = 4


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


@dataclass(frozen=True, slots=True)
class _Bytes:
    """A cursor over a record, `at` in a list because it moves."""

    data: bytes
    at: list[int]
    flexible: bool = False

    def take(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self.data, self.at[0])
        self.at[0] += struct.calcsize(form)
        return value

    def raw(self, length: int) -> bytes:
        start = self.at[0]
        if length < 0 or start + length > len(self.data):
            raise ValueError(f"{length} bytes at {start} of {len(self.data)}")
        self.at[0] = start + length
        return self.data[start : start + length]

    def count(self, form: str = ">i") -> int:
        """A length, -1 for null."""
        if not self.flexible:
            return int(self.take(form))
        value = shift = 0
        while True:
            byte = self.raw(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value - 1

    def text(self) -> str:
        return self.raw(max(0, self.count(">h"))).decode("utf-8")

    def blob(self) -> bytes:
        return self.raw(max(0, self.count()))

    def skip_tags(self) -> None:
        """Skips the tags of a flexible version: fields that a later Kafka added."""
        if self.flexible:
            for _ in range(self.count() + 1):
                self.count()
                self.raw(self.count() + 1)


def decode_group_key(key: bytes) -> CommitPlace | MembersOf | None:
    """None for a record of another kind. Raises ValueError for bytes that cannot be read."""
    try:
        reader = _Bytes(key, [0])
        version = reader.take(">h")
        if version in (0, 1):
            return CommitPlace(reader.text(), reader.text(), int(reader.take(">i")))
        return MembersOf(reader.text()) if version == 2 else None
    except struct.error as error:
        raise ValueError(f"a key of {OFFSETS_TOPIC} is cut off: {error}") from error


def decode_commit(value: bytes) -> GroupCommit | None:
    """None for a version that is not known. Raises ValueError for bytes that cannot be read."""
    try:
        reader = _Bytes(value, [0])
        version = reader.take(">h")
        if version > _LAST:
            return None
        reader = _Bytes(value, reader.at, version >= _FLEXIBLE)
        offset = int(reader.take(">q"))
        if version >= 3:
            reader.take(">i")  # the leader's epoch
        # confluent-kafka sends the zero byte that ends a string in C as part of it, and leaves it out when it reads.
        return GroupCommit(offset, reader.text().removesuffix("\0"), int(reader.take(">q")))
    except struct.error as error:
        raise ValueError(f"a commit in {OFFSETS_TOPIC} is cut off: {error}") from error


def decode_members(value: bytes) -> tuple[GroupMember, ...] | None:
    """The members of a group of the classic protocol, with what is assigned to them. None and ValueError as
    `decode_commit`."""
    try:
        reader = _Bytes(value, [0])
        version = reader.take(">h")
        if version > _LAST:
            return None
        reader = _Bytes(value, reader.at, version >= _FLEXIBLE)
        reader.text()  # the protocol's type
        reader.take(">i")  # generation
        reader.text()  # protocol
        reader.text()  # leader
        if version >= 2:
            reader.take(">q")  # since when the group is in its state
        return tuple(_member(reader, version) for _ in range(max(0, reader.count())))
    except struct.error as error:
        raise ValueError(f"a group in {OFFSETS_TOPIC} is cut off: {error}") from error


def _member(reader: _Bytes, version: int) -> GroupMember:
    member_id = reader.text()
    if version >= 3:
        reader.text()  # the static member's name
    client_id, host = reader.text(), reader.text()
    if version >= 1:
        reader.take(">i")  # time for a rebalance
    reader.take(">i")  # time of a session
    reader.blob()  # what it subscribed to
    assigned = decode_assignment(reader.blob())
    reader.skip_tags()
    return GroupMember(member_id, client_id, host, assigned)
