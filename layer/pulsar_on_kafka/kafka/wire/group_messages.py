"""Requests to a group's coordinator about its members. Names as in Kafka's protocol. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from typing import ClassVar, Final, NamedTuple

from pulsar_on_kafka.kafka.wire.fields import (
    NO_TAGS,
    THROTTLE_AND_ERROR,
    Api,
    FieldReader,
    array,
    compact_array,
    compact_nullable_string,
    compact_string,
    int32,
    nullable_string,
    sized,
    string,
)

_JOINED: Final = Struct(">ihi")
_timeouts: Final = Struct(">ii").pack


class JoinedMember(NamedTuple):
    """A member with its metadata of the group's protocol; for the leader only."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinGroupResponse(NamedTuple):
    throttle_time_ms: int
    error_code: int
    generation_id: int
    protocol_name: str
    leader: str
    member_id: str
    members: tuple[JoinedMember, ...]


@dataclass(frozen=True, slots=True)
class JoinGroupRequest:
    """`protocols` are names of assignors with this member's metadata, the preferred one first."""

    API: ClassVar = Api("JoinGroup", 11, 5, False)

    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str
    protocols: tuple[tuple[str, bytes], ...]
    group_instance_id: str | None = None
    protocol_type: str = "consumer"

    def encode(self) -> bytes:
        return b"".join(
            (
                string(self.group_id),
                _timeouts(self.session_timeout_ms, self.rebalance_timeout_ms),
                string(self.member_id),
                nullable_string(self.group_instance_id),
                string(self.protocol_type),
                array(string(name) + sized(metadata) for name, metadata in self.protocols),
            )
        )

    @staticmethod
    def decode_response(reader: FieldReader) -> JoinGroupResponse:
        throttle_time_ms, error_code, generation_id = reader.numbers(_JOINED)
        protocol_name, leader, member_id = reader.string(), reader.string(), reader.string()
        members = [JoinedMember(reader.string(), reader.nullable_string(), reader.sized()) for _ in reader.array(8)]
        return JoinGroupResponse(
            throttle_time_ms, error_code, generation_id, protocol_name, leader, member_id, tuple(members)
        )


class SyncGroupResponse(NamedTuple):
    throttle_time_ms: int
    error_code: int
    assignment: bytes


@dataclass(frozen=True, slots=True)
class SyncGroupRequest:
    """`assignments` are those of all members, by member id; from the leader only."""

    API: ClassVar = Api("SyncGroup", 14, 3, False)

    group_id: str
    generation_id: int
    member_id: str
    assignments: tuple[tuple[str, bytes], ...] = ()
    group_instance_id: str | None = None

    def encode(self) -> bytes:
        member = _member(self.group_id, self.generation_id, self.member_id, self.group_instance_id)
        return member + array(string(each) + sized(assignment) for each, assignment in self.assignments)

    @staticmethod
    def decode_response(reader: FieldReader) -> SyncGroupResponse:
        throttle_time_ms, error_code = reader.numbers(THROTTLE_AND_ERROR)
        return SyncGroupResponse(throttle_time_ms, error_code, reader.sized())


class HeartbeatResponse(NamedTuple):
    throttle_time_ms: int
    error_code: int


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """A member sends the same one many times: its bytes are encoded once."""

    API: ClassVar = Api("Heartbeat", 12, 3, False)

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    _body: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        body = _member(self.group_id, self.generation_id, self.member_id, self.group_instance_id)
        object.__setattr__(self, "_body", body)

    def encode(self) -> bytes:
        return self._body

    @staticmethod
    def decode_response(reader: FieldReader) -> HeartbeatResponse:
        return HeartbeatResponse._make(reader.numbers(THROTTLE_AND_ERROR))


def _member(group_id: str, generation_id: int, member_id: str, group_instance_id: str | None) -> bytes:
    return string(group_id) + int32(generation_id) + string(member_id) + nullable_string(group_instance_id)


class LeavingMember(NamedTuple):
    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None
    """The broker logs it."""


class LeftMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    error_code: int


class LeaveGroupResponse(NamedTuple):
    throttle_time_ms: int
    error_code: int
    members: tuple[LeftMember, ...]


@dataclass(frozen=True, slots=True)
class LeaveGroupRequest:
    """Any client with Read on the group may send it for any member."""

    API: ClassVar = Api("LeaveGroup", 13, 5, True)

    group_id: str
    members: tuple[LeavingMember, ...]

    def encode(self) -> bytes:
        members = [
            compact_string(member_id) + compact_nullable_string(instance) + compact_nullable_string(reason) + NO_TAGS
            for member_id, instance, reason in self.members
        ]
        return compact_string(self.group_id) + compact_array(members) + NO_TAGS

    @staticmethod
    def decode_response(reader: FieldReader) -> LeaveGroupResponse:
        throttle_time_ms, error_code = reader.numbers(THROTTLE_AND_ERROR)
        members = []
        for _ in reader.compact_array(5):
            members.append(LeftMember(reader.compact_string(), reader.compact_nullable_string(), reader.int16()))
            reader.skip_tagged()
        reader.skip_tagged()
        return LeaveGroupResponse(throttle_time_ms, error_code, tuple(members))


class DescribedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


class DescribedGroup(NamedTuple):
    error_code: int
    group_id: str
    group_state: str
    """In Kafka's spelling, such as "Stable"; "Dead" for a group that does not exist."""
    protocol_type: str
    protocol_data: str
    members: tuple[DescribedMember, ...]


class DescribeGroupsResponse(NamedTuple):
    throttle_time_ms: int
    groups: tuple[DescribedGroup, ...]


@dataclass(frozen=True, slots=True)
class DescribeGroupsRequest:
    """Groups of one coordinator. Kafka answers for each group by itself."""

    API: ClassVar = Api("DescribeGroups", 15, 4, False)

    groups: tuple[str, ...]

    def encode(self) -> bytes:
        return array(map(string, self.groups)) + b"\0"

    @staticmethod
    def decode_response(reader: FieldReader) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(reader.int32(), tuple([_described(reader) for _ in reader.array(18)]))


def _described(reader: FieldReader) -> DescribedGroup:
    error_code, group_id, state = reader.int16(), reader.string(), reader.string()
    protocol_type, protocol_data = reader.string(), reader.string()
    members = [
        DescribedMember(
            reader.string(), reader.nullable_string(), reader.string(), reader.string(), reader.sized(), reader.sized()
        )
        for _ in reader.array(16)
    ]
    reader.int32()  # authorized operations
    return DescribedGroup(error_code, group_id, state, protocol_type, protocol_data, tuple(members))
