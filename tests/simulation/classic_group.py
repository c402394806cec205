"""A stand-in for Kafka's coordinator of one classic group, with its rules of generations, sessions and time-outs.

It moves to another broker: the group is restored as it was last stored, which is when it became stable or empty. The
former broker answers NOT_COORDINATOR. Source of the rules: Kafka's GroupCoordinator and GroupMetadataManager.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any

from pulsar_on_kafka.kafka.groups.consumer_protocol import COOPERATIVE_STICKY
from pulsar_on_kafka.kafka.groups.membership_machine import GroupRequest, GroupResponse
from pulsar_on_kafka.kafka.wire.error_codes import ErrorCode
from pulsar_on_kafka.kafka.wire.group_messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinedMember,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeftMember,
    SyncGroupRequest,
    SyncGroupResponse,
)
from pulsar_on_kafka.kafka.wire.offset_messages import OffsetCommitRequest, OffsetCommitResponse, PartitionError

Reply = Callable[[GroupResponse], None]


class GroupState(Enum):
    EMPTY = auto()
    PREPARING = auto()
    COMPLETING = auto()
    STABLE = auto()


@dataclass
class Member:
    member_id: str
    session_s: float
    rebalance_s: float
    metadata: bytes = b""
    assignment: bytes = b""
    until_s: float = 0.0
    joining: Reply | None = None
    syncing: Reply | None = None
    has_synced: bool = False


@dataclass
class Stored:
    """The group's record in the log."""

    generation: int = 0
    leader: str = ""
    members: dict[str, Member] = field(default_factory=dict)


class ClassicGroup:
    """`at` runs a call at a time, `now` has the time. `accept` receives each commit that the coordinator takes."""

    def __init__(
        self,
        rng: random.Random,
        now: Callable[[], float],
        at: Callable[[float, Callable[[], None]], None],
        accept: Callable[[OffsetCommitRequest], None],
        first_delay_s: float,
    ) -> None:
        self._rng, self._now, self._at, self._accept = rng, now, at, accept
        self._first_delay_s = first_delay_s
        self.broker = 0
        self.loaded_s = 0.0
        self.state = GroupState.EMPTY
        self.generation = 0
        self.members: dict[str, Member] = {}
        self._pending: dict[str, float] = {}
        """Member ids that Kafka gave, and the end of their sessions."""
        self._leader = ""
        self._stored = Stored()
        self._round = 0
        """Numbers the rebalances, so that a former one's time-out does nothing."""
        self._ids = 0
        self.moves = 0

    # Requests -----------------------------------------------------------------------------------------------------

    def receive(self, broker: int, request: GroupRequest, reply: Reply) -> None:
        code = ErrorCode.NONE
        if broker != self.broker:
            code = ErrorCode.NOT_COORDINATOR
        elif self._now() < self.loaded_s:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if code:
            reply(refusal(request, code))
        elif isinstance(request, JoinGroupRequest):
            self._join(request, reply)
        elif isinstance(request, SyncGroupRequest):
            self._sync(request, reply)
        elif isinstance(request, HeartbeatRequest):
            reply(HeartbeatResponse(0, self._beat(request)))
        elif isinstance(request, LeaveGroupRequest):
            for leaving in request.members:
                self._pending.pop(leaving.member_id, None)
                self._remove(leaving.member_id)
            reply(LeaveGroupResponse(0, 0, tuple(LeftMember(each.member_id, None, 0) for each in request.members)))
        else:
            reply(commit_response(request, self._commit(request)))

    def _join(self, request: JoinGroupRequest, reply: Reply) -> None:
        member_id, (protocol, metadata) = request.member_id, request.protocols[0]
        assert protocol == COOPERATIVE_STICKY
        session_s, rebalance_s = request.session_timeout_ms / 1000, request.rebalance_timeout_ms / 1000
        if not member_id:
            self._ids += 1
            new_id = f"id-{self._ids}"
            self._pending[new_id] = self._now() + session_s
            self._at(self._pending[new_id], self._expire_pending)
            reply(refusal(request, ErrorCode.MEMBER_ID_REQUIRED, new_id))
        elif member_id in self._pending:
            del self._pending[member_id]
            member = self.members[member_id] = Member(member_id, session_s, rebalance_s, metadata, joining=reply)
            self._live(member)
            self._prepare()
        elif member_id not in self.members:
            reply(refusal(request, ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            member = self.members[member_id]
            is_same = member.metadata == metadata
            member.session_s, member.rebalance_s = session_s, rebalance_s
            self._live(member)
            if self.state is GroupState.PREPARING:
                if member.joining is not None:
                    member.joining(refusal(request, ErrorCode.REBALANCE_IN_PROGRESS))
                member.metadata, member.joining = metadata, reply
                self._complete_if_all_joined()
            elif is_same and (self.state is GroupState.COMPLETING or member_id != self._leader):
                reply(self._joined(member))
            else:
                member.metadata, member.joining = metadata, reply
                self._prepare()

    def _sync(self, request: SyncGroupRequest, reply: Reply) -> None:
        member = self.members.get(request.member_id)
        code = ErrorCode.NONE
        if member is None:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        elif request.generation_id != self.generation:
            code = ErrorCode.ILLEGAL_GENERATION
        elif self.state is GroupState.PREPARING:
            code = ErrorCode.REBALANCE_IN_PROGRESS
        if member is None or code:
            reply(SyncGroupResponse(0, code, b""))
            return
        self._live(member)
        member.has_synced = True
        if self.state is GroupState.STABLE:
            reply(SyncGroupResponse(0, 0, member.assignment))
            return
        member.syncing = reply
        if member.member_id == self._leader:
            given = dict(request.assignments)
            for each in self.members.values():
                each.assignment = given.get(each.member_id, b"")
            self.state = GroupState.STABLE
            self._store()
            for each in self.members.values():
                waiting, each.syncing = each.syncing, None
                if waiting is not None:
                    waiting(SyncGroupResponse(0, 0, each.assignment))

    def _beat(self, request: HeartbeatRequest) -> int:
        member = self.members.get(request.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if request.generation_id != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self._live(member)
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING else ErrorCode.NONE

    def _commit(self, request: OffsetCommitRequest) -> int:
        member = self.members.get(request.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if request.generation_id != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if self.state is GroupState.COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._live(member)
        self._accept(request)
        return ErrorCode.NONE

    # The rebalance ------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        if self.state is GroupState.PREPARING:
            self._complete_if_all_joined()
            return
        for member in self.members.values():
            if member.syncing is not None:
                member.syncing(SyncGroupResponse(0, ErrorCode.REBALANCE_IN_PROGRESS, b""))
                member.syncing = None
        was_empty = self.state is GroupState.EMPTY
        self.state = GroupState.PREPARING
        self._round += 1
        number = self._round
        wait_s = max((member.rebalance_s for member in self.members.values()), default=0.0)
        if was_empty and self._first_delay_s:
            self._at(self._now() + self._first_delay_s, lambda: self._end_join(number))
            return
        self._at(self._now() + wait_s, lambda: self._end_join(number))
        self._complete_if_all_joined()

    def _complete_if_all_joined(self) -> None:
        delayed = not self.generation and self._first_delay_s  # the first round waits for more members
        if not delayed and not self._pending and all(each.joining is not None for each in self.members.values()):
            self._complete()

    def _end_join(self, number: int) -> None:
        """The rebalance's time is over: members that have not joined again are removed."""
        if self.state is GroupState.PREPARING and number == self._round:
            self.members = {name: each for name, each in self.members.items() if each.joining is not None}
            self._complete()

    def _complete(self) -> None:
        self.generation += 1
        self._round += 1
        if not self.members:
            self.state, self._leader = GroupState.EMPTY, ""
            self._store()
            return
        self.state = GroupState.COMPLETING
        if self._leader not in self.members:
            self._leader = next(iter(self.members))
        for member in self.members.values():
            member.has_synced = False
            waiting, member.joining = member.joining, None
            self._live(member)
            if waiting is not None:
                waiting(self._joined(member))
        number, generation = self._round, self.generation
        wait_s = max(member.rebalance_s for member in self.members.values())
        self._at(self._now() + wait_s, lambda: self._end_sync(number, generation))

    def _end_sync(self, number: int, generation: int) -> None:
        if number == self._round and generation == self.generation:
            for name in [name for name, each in self.members.items() if not each.has_synced]:
                self._remove(name)

    def _joined(self, member: Member) -> JoinGroupResponse:
        is_leader = member.member_id == self._leader
        members = [JoinedMember(each.member_id, None, each.metadata) for each in self.members.values()]
        return JoinGroupResponse(
            0,
            0,
            self.generation,
            COOPERATIVE_STICKY,
            self._leader,
            member.member_id,
            tuple(members) if is_leader else (),
        )

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            if self.state is GroupState.PREPARING:
                self._complete_if_all_joined()
            return
        for waiting, response in (
            (member.joining, JoinGroupResponse(0, ErrorCode.UNKNOWN_MEMBER_ID, -1, "", "", "", ())),
            (member.syncing, SyncGroupResponse(0, ErrorCode.UNKNOWN_MEMBER_ID, b"")),
        ):
            if waiting is not None:
                waiting(response)
        self._prepare()

    # Sessions -----------------------------------------------------------------------------------------------------

    def _live(self, member: Member) -> None:
        member.until_s = self._now() + member.session_s
        self._at(member.until_s, lambda: self._expire(member))

    def _expire(self, member: Member) -> None:
        is_waiting = member.joining is not None or member.syncing is not None
        if self.members.get(member.member_id) is member and self._now() >= member.until_s and not is_waiting:
            self._remove(member.member_id)

    def _expire_pending(self) -> None:
        over = [name for name, until_s in self._pending.items() if until_s <= self._now()]
        for name in over:
            del self._pending[name]
        if over and self.state is GroupState.PREPARING:
            self._complete_if_all_joined()

    # The broker ---------------------------------------------------------------------------------------------------

    def _store(self) -> None:
        members = {name: replace(each, joining=None, syncing=None) for name, each in self.members.items()}
        self._stored = Stored(self.generation, self._leader, members)

    def move(self, loading_s: float) -> None:
        """Another broker becomes the coordinator. Waiting requests are answered, or their connections are lost."""
        self.moves += 1
        for member in self.members.values():
            for waiting, response in (
                (member.joining, JoinGroupResponse(0, ErrorCode.NOT_COORDINATOR, -1, "", "", "", ())),
                (member.syncing, SyncGroupResponse(0, ErrorCode.NOT_COORDINATOR, b"")),
            ):
                if waiting is not None and self._rng.random() < 0.7:
                    waiting(response)
        self.broker = 1 - self.broker
        self.loaded_s = self._now() + loading_s
        self._round += 1
        self._pending = {}
        self.generation, self._leader = self._stored.generation, self._stored.leader
        self.members = {name: replace(each, has_synced=True) for name, each in self._stored.members.items()}
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
        for member in self.members.values():
            member.until_s = self.loaded_s + member.session_s
            self._at(member.until_s, lambda member=member: self._expire(member))  # type: ignore[misc]


def commit_response(request: OffsetCommitRequest, code: int) -> OffsetCommitResponse:
    topics = [
        (name, tuple(PartitionError(each.partition_index, code) for each in offsets))
        for name, offsets in request.topics
    ]
    return OffsetCommitResponse(0, tuple(topics))


def refusal(request: GroupRequest, code: int, member_id: str = "") -> Any:
    if isinstance(request, JoinGroupRequest):
        return JoinGroupResponse(0, code, -1, "", "", member_id or request.member_id, ())
    if isinstance(request, SyncGroupRequest):
        return SyncGroupResponse(0, code, b"")
    if isinstance(request, HeartbeatRequest):
        return HeartbeatResponse(0, code)
    if isinstance(request, LeaveGroupRequest):
        return LeaveGroupResponse(0, code, ())
    return commit_response(request, code)
