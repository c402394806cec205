"""One membership in a classic consumer group, as a state machine. Pure: time and responses are arguments, requests and
calls to the owner are results.

**States.** `OUT`, then `JOINING` (JoinGroup is unanswered), `SYNCING` (SyncGroup is unanswered), `STABLE`, and `LEFT`.
A rebalance leads from `STABLE` back to `JOINING`; the membership keeps its partitions and its generation meanwhile.

**Moving a partition.** A SyncGroup response without an owned partition leads to `Revoke`. The owner saves and confirms
by `revoked`. Only then the machine joins again without the partition, so its next owner reads the save.

**Late commits.** A resent OffsetCommit may leave a copy that reaches Kafka behind newer commits, and sets the group
back (docs/log-surprises.md). This machine excludes that by four rules:

1. It never sends a commit again before the response to the former request of the commit. So there is at most one commit
   under way, and the response proves that no copy of it is left.
2. A commit without a response ends the membership. The machine forgets its member id, leaves in its name, and joins as
   another member.
3. That member gets partitions in a later generation only. Kafka refuses commits of an earlier generation and of former
   members. So the unanswered commit takes effect before the next owner reads the group's offsets, or never.
4. A commit carries the generation in which its save was prepared, and is refused here if the membership has a newer
   one. So no save of a partition survives the loss of that partition.

`tests/simulation/test_membership_histories.py` plays these rules against a coordinator that executes requests late.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final, NamedTuple

from pulsar_on_kafka.kafka.groups.assignor import assign, read_claims
from pulsar_on_kafka.kafka.groups.consumer_protocol import (
    COOPERATIVE_STICKY,
    NO_GENERATION,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from pulsar_on_kafka.kafka.records import CommittedOffset, stored_metadata
from pulsar_on_kafka.kafka.wire.error_codes import ErrorCode
from pulsar_on_kafka.kafka.wire.group_messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
    SyncGroupRequest,
    SyncGroupResponse,
)
from pulsar_on_kafka.kafka.wire.offset_messages import OffsetCommitRequest, OffsetCommitResponse, OffsetToCommit
from pulsar_on_kafka_mapping.errors import CorruptRecord

REVOKE_TIMEOUT_S: Final = 60.0
"""The rebalance time-out, and the time that an owner has to save revoked partitions. Afterwards they are lost."""
COMMIT_TIMEOUT_S: Final = 10.0
"""The time for which a commit is sent again to the group's coordinator, after responses that it was not executed."""
OWNER_TIMEOUT_S: Final = 300.0
"""The time for which an owner may leave a due step. Then other members get its partitions. librdkafka's default."""
POSTPONED_RETRY_S: Final = 3.5
"""The interval of a postponed JoinGroup."""
SESSION_BEATS: Final = 4
"""Heartbeats in a session."""
_STALLED_CHECK_S: Final = 1.0
_FIRST_RETRY_S: Final = 0.1
_MAX_RETRY_S: Final = 2.0
_REFUSED_RETRY_S: Final = 5.0
"""The interval of joins while Kafka refuses them for a reason that a user must remove."""
_MAX_LEAVES: Final = 3

_FENCED: Final = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
_MOVED: Final = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
_PASSING: Final = (*_MOVED, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
_JOINED: Final = (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED)
_PERHAPS_EXECUTED: Final = (*_MOVED, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR)
"""Errors of a commit that the coordinator's log may have all the same, at its place before later ones."""


class MembershipState(Enum):
    OUT = auto()
    JOINING = auto()
    SYNCING = auto()
    STABLE = auto()
    LEFT = auto()


class MemberGeneration(NamedTuple):
    """The generation of a membership, in which an owner prepares its saves. A new member id begins another one."""

    member_id: str
    number: int


NO_MEMBER: Final = MemberGeneration("", NO_GENERATION)

GroupRequest = JoinGroupRequest | SyncGroupRequest | HeartbeatRequest | OffsetCommitRequest | LeaveGroupRequest
GroupResponse = JoinGroupResponse | SyncGroupResponse | HeartbeatResponse | OffsetCommitResponse | LeaveGroupResponse


class Send(NamedTuple):
    """Sends a request to the group's coordinator. `answered` or `failed` takes its outcome, by the ticket."""

    ticket: int
    request: GroupRequest


class FindCoordinator(NamedTuple):
    """Forgets the group's coordinator: the next request goes to the one that Kafka names then."""


class Assigned(NamedTuple):
    """Gives the owner more partitions, perhaps none, and the generation for its saves."""

    partitions: tuple[int, ...]
    generation: MemberGeneration


class Revoke(NamedTuple):
    """Makes the owner save partitions, in this generation or a later one, and give them up: see `revoked`."""

    partitions: tuple[int, ...]
    generation: MemberGeneration


class LostPartitions(NamedTuple):
    """Takes partitions from the owner at once: Kafka refuses its commits."""

    partitions: tuple[int, ...]


class Committed(NamedTuple):
    """The outcome of a commit: Kafka's error code, 0 for success, None if it is unknown."""

    number: int
    error_code: int | None


class JoinRefused(NamedTuple):
    """Kafka refuses the membership. The machine tries again every five seconds."""

    error_code: int


class LeftGroup(NamedTuple):
    """The membership is over."""


GroupAction = Send | FindCoordinator | Assigned | Revoke | LostPartitions | Committed | JoinRefused | LeftGroup


@dataclass(slots=True)
class BeatTimes:
    """Seconds between two heartbeats, and until Kafka removes a member without any.

    Many machines share them, and they change. A longer session counts from the next join, and the interval is a part
    of the member's session at most.
    """

    interval_s: float
    session_s: float


@dataclass(frozen=True, slots=True)
class _Sent:
    ticket: int
    generation: MemberGeneration = NO_MEMBER


@dataclass(frozen=True, slots=True)
class _Commit:
    """`parts` are requests of which the first is under way, or is due at `due_s`."""

    number: int
    generation: MemberGeneration
    parts: tuple[Mapping[int, CommittedOffset], ...]
    until_s: float
    sent: _Sent | None = None
    due_s: float = math.inf
    error_code: int = 0
    tries: int = 0
    is_partly_done: bool = False
    """Kafka has an earlier part, or a part in spite of its error: refusing the rest is no outcome for all."""

    def has(self, ticket: int) -> bool:
        return self.sent is not None and self.sent.ticket == ticket


def _assignments(topic: str, partition_count: int, response: JoinGroupResponse) -> tuple[tuple[str, bytes], ...]:
    claims = read_claims(topic, ((each.member_id, each.metadata) for each in response.members))
    assigned = assign(partition_count, claims)
    return tuple((member_id, encode_assignment(topic, given)) for member_id, given in assigned.items())


class MembershipMachine:
    """The membership of one member. Each method returns the actions that follow from it, in order.

    Memory: numbers of the topic's partitions, and the records of one commit.
    """

    def __init__(self, group_id: str, topic: str, beats: BeatTimes, only: int | None = None) -> None:
        """`only`: the one partition that the owner serves; the group assigns all of them."""
        self._group_id = group_id
        self._topic = topic
        self._only = only
        self._beats = beats
        self._session_s = self._requested_session_s = beats.session_s
        """The session that Kafka counts, and that of the JoinGroup under way."""
        self._partition_count = 0
        self._assigned_count = 0
        """The partition count of the last assignment that this member made as the leader, else 0."""
        self.state = MembershipState.OUT
        self.generation = NO_MEMBER
        """The newest generation whose assignment this member has."""
        self.is_stalled = False
        """The owner does not run: this member has left until it does."""
        self._member_id = ""
        self._joined = NO_GENERATION
        """The generation of the last JoinGroup response."""
        self._owned: frozenset[int] = frozenset()
        self._revoking: dict[int, MemberGeneration] = {}
        """Partitions that the owner is giving up, with the generation of their `Revoke`."""
        self._revoke_until_s = math.inf
        self._leaving = False
        self._yields = False
        self._yielded = False
        """The last JoinGroup said that this member yields."""
        self._tickets = 0
        self._pending: _Sent | None = None
        """JoinGroup, SyncGroup or LeaveGroup under way."""
        self._assignments: tuple[tuple[str, bytes], ...] = ()
        """The leader's, for SyncGroup."""
        self._retry_s = math.inf
        self._retries = 0
        self._beat: _Sent | None = None
        self._beating = NO_MEMBER, HeartbeatRequest(group_id, NO_GENERATION, "")
        """The heartbeat of a generation."""
        self._beat_s = math.inf
        self._alive_s = -math.inf
        """The time of the last request whose response proves that Kafka knows this member."""
        self._commit: _Commit | None = None
        self._actions: list[GroupAction] = []

    # The owner ----------------------------------------------------------------------------------------------------

    def begin(self, partition_count: int, now_s: float) -> list[GroupAction]:
        """Joins the group. `partition_count`: that of the topic."""
        self._partition_count = partition_count
        self._send_join(now_s)
        return self._taken()

    def revoked(self, partitions: Iterable[int], generation: MemberGeneration, now_s: float) -> list[GroupAction]:
        """The owner has saved these partitions of a `Revoke`, or could not, and gave them up.

        `generation`: that of the `Revoke`. One of partitions that were lost meanwhile confirms nothing.
        """
        done = {each for each in partitions if self._revoking.get(each) == generation}
        if done:
            self._owned -= done
            for each in done:
                del self._revoking[each]
            self._end_revoking(now_s)
        return self._taken()

    def commit(
        self, number: int, parts: Sequence[Mapping[int, CommittedOffset]], prepared: MemberGeneration, now_s: float
    ) -> list[GroupAction]:
        """Commits the parts one after the other; `Committed` has the outcome of all.

        Kafka's ILLEGAL_GENERATION refuses a save of another generation than this member's, without a request, and
        REBALANCE_IN_PROGRESS a second commit beside one that is under way.
        """
        if self._commit is not None:
            self._actions.append(Committed(number, ErrorCode.REBALANCE_IN_PROGRESS))
        elif not self._may_commit(prepared):
            self._actions.append(Committed(number, ErrorCode.ILLEGAL_GENERATION))
        else:
            self._send_commit(_Commit(number, prepared, tuple(parts), now_s + COMMIT_TIMEOUT_S), now_s)
        return self._taken()

    def yield_partitions(self, now_s: float) -> list[GroupAction]:
        """Lets other members have the partitions from now on, if there are any. This member stays in the group."""
        if not self._yields:
            self._yields = True
            self._rejoin(now_s)
        return self._taken()

    def leave(self, now_s: float) -> list[GroupAction]:
        """Revokes all partitions, and leaves the group afterwards; also while a request is under way."""
        if not self._leaving:
            self._leaving = True
            self._retry_s = math.inf
            if self._owned:
                self._begin_revoking(self._owned, now_s)
            else:
                self._send_leave(now_s)
        return self._taken()

    # The cluster --------------------------------------------------------------------------------------------------

    def partitions_counted(self, partition_count: int, now_s: float) -> list[GroupAction]:
        """The topic has more partitions. The leader shares them out by another rebalance."""
        self._partition_count = max(partition_count, self._partition_count)
        if 0 < self._assigned_count < self._partition_count:
            self._rejoin(now_s)
        return self._taken()

    # Responses and time -------------------------------------------------------------------------------------------

    @property
    def due_s(self) -> float:
        """The time of the next `tick` that does anything."""
        commit_due_s = math.inf if self._commit is None else self._commit.due_s
        return min(self._retry_s, self._beat_s, self._revoke_until_s, self._session_end_s, commit_due_s)

    def tick(self, now_s: float, step_due_s: float = math.inf) -> list[GroupAction]:
        """Does what is due.

        `step_due_s`: the time since which a step of the owner is due, and has not ended. After five minutes the
        machine leaves the group, and joins anew when the step has ended.
        """
        if (step_due_s <= now_s - OWNER_TIMEOUT_S) != self.is_stalled and not self._leaving:
            self.is_stalled = not self.is_stalled
            if self.is_stalled:
                self._lose(now_s, forget=True)
            else:
                self._send_join(now_s)
        if self._session_end_s <= now_s:
            self._lose(now_s, forget=False)
        if self._revoke_until_s <= now_s:
            self._lose(now_s, forget=True)
        if self._retry_s <= now_s:
            self._retry_s = math.inf
            self._resend(now_s)
        if self._commit is not None and self._commit.due_s <= now_s:
            self._continue_commit(self._commit, now_s)
        if self._beat_s <= now_s:
            self._send_beat(now_s)
        return self._taken()

    def answered(self, ticket: int, response: GroupResponse, sent_s: float, now_s: float) -> list[GroupAction]:
        """A response came; its request was on its way since `sent_s`. Responses to requests that are over are ignored,
        except for a new member id."""
        beat, commit = self._beat, self._commit
        if self.is_pending(ticket):
            self._pending = None
            if isinstance(response, JoinGroupResponse):
                self._on_join(response, sent_s, now_s)
            elif isinstance(response, SyncGroupResponse):
                self._on_sync(response, sent_s, now_s)
            elif isinstance(response, LeaveGroupResponse) and response.error_code in _PASSING:
                self._leave_later(now_s)
            else:
                self._actions.append(LeftGroup())
        elif beat is not None and beat.ticket == ticket and isinstance(response, HeartbeatResponse):
            self._beat = None
            self._on_beat(response, beat, sent_s, now_s)
        elif commit is not None and commit.has(ticket) and isinstance(response, OffsetCommitResponse):
            self._on_commit(response, commit, sent_s, now_s)
        elif self._leaving and isinstance(response, JoinGroupResponse) and response.error_code in _JOINED:
            self._actions.append(self._new_leave([response.member_id])[1])  # it joined behind its good-bye
        return self._taken()

    def is_pending(self, ticket: int) -> bool:
        """The machine waits for the response to this JoinGroup, SyncGroup or LeaveGroup."""
        return self._pending is not None and self._pending.ticket == ticket

    def postponed(self, ticket: int, now_s: float) -> list[GroupAction]:
        """A JoinGroup or SyncGroup that waits at Kafka has given its connection to another one.

        Kafka keeps the member, and answers the next copy. A heartbeat shows when the rebalance is complete.
        """
        if self.is_pending(ticket):
            self._pending = None
            self._retry_s = now_s + POSTPONED_RETRY_S
        return self._taken()

    def failed(self, ticket: int, *, sent: bool, now_s: float) -> list[GroupAction]:
        """A request has no response: the connection was lost, or it took too long. `sent`: Kafka may execute it yet."""
        commit = self._commit
        if self.is_pending(ticket):
            self._pending = None
            if self.state is MembershipState.LEFT:
                self._leave_later(now_s)
            else:
                self._actions.append(FindCoordinator())
                self._retry(now_s)
        elif self._beat is not None and self._beat.ticket == ticket:
            self._beat = None
            self._actions.append(FindCoordinator())
            self._beat_s = min(self._beat_s, now_s + _FIRST_RETRY_S)
        elif commit is not None and commit.has(ticket):
            if self.state is MembershipState.LEFT:
                self._end_commit(commit, None)
            elif sent:
                self._lose(now_s, forget=True)
            else:
                self._commit_later(commit, ErrorCode.NOT_COORDINATOR, now_s)
        return self._taken()

    # JoinGroup and SyncGroup --------------------------------------------------------------------------------------

    def _send_join(self, now_s: float) -> None:
        self.state = MembershipState.JOINING
        self._retry_s = math.inf
        self._requested_session_s = self._beats.session_s
        self._session_s = min(self._session_s, self._requested_session_s)
        self._yielded = self._yields
        metadata = encode_subscription(self._topic, self._owned, self.generation.number, yields=self._yields)
        self._pending = self._send(
            JoinGroupRequest(
                self._group_id,
                round(self._requested_session_s * 1000),
                round(REVOKE_TIMEOUT_S * 1000),
                self._member_id,
                ((COOPERATIVE_STICKY, metadata),),
            ),
        )

    def _on_join(self, response: JoinGroupResponse, sent_s: float, now_s: float) -> None:
        code = response.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED and response.member_id:
            self._member_id = response.member_id
            self._send_join(now_s)
        elif code == ErrorCode.NONE:
            self._member_id, self._joined = response.member_id, response.generation_id
            self._session_s = self._requested_session_s
            self._alive_s = max(self._alive_s, sent_s if self._owned else now_s)
            is_leader = response.leader == response.member_id
            self._assigned_count = self._partition_count if is_leader else 0
            self._assignments = _assignments(self._topic, self._partition_count, response) if is_leader else ()
            self._send_sync(now_s)
        elif code in _FENCED:
            self._lose(now_s, forget=True)
        else:
            self._on_refusal(code, now_s)

    def _send_sync(self, now_s: float) -> None:
        self.state = MembershipState.SYNCING
        self._pending = self._send(SyncGroupRequest(self._group_id, self._joined, self._member_id, self._assignments))
        self._beat_s = min(self._beat_s, now_s + self._beats.interval_s)

    def _on_sync(self, response: SyncGroupResponse, sent_s: float, now_s: float) -> None:
        code = response.error_code
        if code == ErrorCode.NONE:
            self._alive_s = max(self._alive_s, sent_s)
            try:
                assigned = decode_assignment(response.assignment)
            except CorruptRecord:  # another member's work as the leader
                self._lose(now_s, forget=True)
            else:
                self._take_assignment(frozenset(each for topic, each in assigned if topic == self._topic), now_s)
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._send_join(now_s)
        elif code in _FENCED:
            self._lose(now_s, forget=code != ErrorCode.ILLEGAL_GENERATION)
        else:
            self._on_refusal(code, now_s)

    def _take_assignment(self, assigned: frozenset[int], now_s: float) -> None:
        self.state = MembershipState.STABLE
        self.generation = MemberGeneration(self._member_id, self._joined)
        self._assignments, self._retries = (), 0
        if self._leaving:
            self._actions.append(Assigned((), self.generation))
            return
        gained, gone = assigned - self._owned, self._owned - assigned
        self._owned |= gained
        self._actions.append(Assigned(self._served(gained), self.generation))
        if gone:
            self._begin_revoking(gone, now_s)
        elif self._yields and not self._yielded:
            self._send_join(now_s)

    def _on_refusal(self, code: int, now_s: float) -> None:
        """JoinGroup or SyncGroup failed, and this member is as before."""
        if code in _MOVED:
            self._actions.append(FindCoordinator())
        if code in _PASSING or code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._retry(now_s)
        else:
            self._actions.append(JoinRefused(code))
            self._retry_s = now_s + _REFUSED_RETRY_S

    def _retry(self, now_s: float) -> None:
        self._retry_s = now_s + min(_MAX_RETRY_S, _FIRST_RETRY_S * 2**self._retries)
        self._retries = min(self._retries + 1, 10)

    def _resend(self, now_s: float) -> None:
        if self.state is MembershipState.LEFT:
            self._send_leave(now_s)
        elif self.is_stalled:
            self._retry_s = now_s + _STALLED_CHECK_S
        elif self.state is MembershipState.SYNCING:
            self._send_sync(now_s)
        else:
            self._send_join(now_s)

    def _rejoin(self, now_s: float) -> None:
        """Joins the next generation, unless the owner must save first; `_end_revoking` joins then."""
        if self.state is MembershipState.STABLE and not self._revoking and not self._leaving:
            self._send_join(now_s)

    # Losing partitions --------------------------------------------------------------------------------------------

    def _begin_revoking(self, partitions: frozenset[int], now_s: float) -> None:
        added = partitions - self._revoking.keys()
        self._revoking.update(dict.fromkeys(added, self.generation))
        self._revoke_until_s = min(self._revoke_until_s, now_s + REVOKE_TIMEOUT_S)
        if served := self._served(added):
            self._actions.append(Revoke(served, self.generation))
        self._end_revoking(now_s)

    def _end_revoking(self, now_s: float) -> None:
        """Continues when the owner has confirmed all that it serves."""
        if self._served(self._revoking):
            return
        self._owned -= self._revoking.keys()
        self._revoking, self._revoke_until_s = {}, math.inf
        if self._leaving:
            self._send_leave(now_s)
        elif self.state is MembershipState.STABLE:
            self._send_join(now_s)

    def _lose(self, now_s: float, *, forget: bool) -> None:
        """Ends this membership, and joins anew unless the owner leaves.

        `forget`: as another member. So it is after a commit whose outcome is unknown, too: Kafka refuses that commit
        once its member has left.
        """
        unknown = self._commit is not None and self._commit.sent is not None
        if self._commit is not None:
            self._end_commit(self._commit, None if unknown else ErrorCode.ILLEGAL_GENERATION)
        lost, self._owned = self._served(self._owned), frozenset()
        self._revoking, self._revoke_until_s = {}, math.inf
        self._pending, self._beat, self._beat_s, self._retry_s = None, None, math.inf, math.inf
        self.generation, self._joined, self._alive_s = NO_MEMBER, NO_GENERATION, -math.inf
        self._assigned_count = 0
        if lost:
            self._actions.append(LostPartitions(lost))
        if self._leaving:
            self._send_leave(now_s)
            return
        if (forget or unknown) and self._member_id:
            self._actions.append(self._new_leave([self._member_id])[1])
            self._member_id = ""
        if self.is_stalled:
            self.state = MembershipState.OUT
            self._retry_s = now_s + _STALLED_CHECK_S
        elif self._retries:
            self.state = MembershipState.JOINING
            self._retry(now_s)
        else:
            self._retries = 1
            self._send_join(now_s)

    def _send_leave(self, now_s: float) -> None:
        """A JoinGroup under way without a member id gets its good-bye when the response names one."""
        self.state = MembershipState.LEFT
        self._beat, self._beat_s, self._retry_s, self._alive_s = None, math.inf, math.inf, -math.inf
        self.generation, self._pending = NO_MEMBER, None
        if self._member_id:
            ticket, send = self._new_leave([self._member_id])
            self._pending = _Sent(ticket)
            self._actions.append(send)
        else:
            self._actions.append(LeftGroup())

    def _leave_later(self, now_s: float) -> None:
        """Kafka did not execute the LeaveGroup, perhaps; without one the session's end removes the member."""
        if self._retries < _MAX_LEAVES:
            self._actions.append(FindCoordinator())
            self._retry(now_s)
        else:
            self._actions.append(LeftGroup())

    # Heartbeats ---------------------------------------------------------------------------------------------------

    @property
    def _session_end_s(self) -> float:
        """The time of the loss without responses. Kafka's own clock begins later, when it executes the request."""
        return self._alive_s + self._session_s if self._alive_s > -math.inf else math.inf

    def _send_beat(self, now_s: float) -> None:
        """While a JoinGroup waits, heartbeats name the former generation: Kafka answers REBALANCE_IN_PROGRESS."""
        self._beat_s = now_s + min(self._beats.interval_s, self._session_s / SESSION_BEATS)
        if self._beat is None:
            named, request = self._beating
            if named.number != self._joined or named.member_id != self._member_id:
                named = MemberGeneration(self._member_id, self._joined)
                request = HeartbeatRequest(self._group_id, self._joined, self._member_id)
                self._beating = named, request
            self._beat = _Sent(self._send(request).ticket, named)

    def _on_beat(self, response: HeartbeatResponse, beat: _Sent, sent_s: float, now_s: float) -> None:
        code = response.error_code
        if beat.generation.number != self._joined or beat.generation.member_id != self._member_id:
            return  # of a former generation
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._alive_s = max(self._alive_s, sent_s)
            if code != ErrorCode.NONE:
                self._rejoin(now_s)
        elif code in _MOVED:
            self._actions.append(FindCoordinator())
            self._beat_s = min(self._beat_s, now_s + _FIRST_RETRY_S)
        elif code == ErrorCode.ILLEGAL_GENERATION and self.state is MembershipState.JOINING:
            if self._pending is None:  # postponed
                self._send_join(now_s)
        elif code in _FENCED:
            self._lose(now_s, forget=code != ErrorCode.ILLEGAL_GENERATION)

    # Commits ------------------------------------------------------------------------------------------------------

    def _may_commit(self, prepared: MemberGeneration) -> bool:
        """Kafka takes commits of a generation until the next one has all its members."""
        current = self.state in (MembershipState.STABLE, MembershipState.JOINING)
        return current and prepared == self.generation and prepared != NO_MEMBER

    def _send_commit(self, commit: _Commit, now_s: float) -> None:
        offsets = tuple(
            OffsetToCommit(partition, offset.kafka_offset, stored_metadata(offset.metadata))
            for partition, offset in sorted(commit.parts[0].items())
        )
        member_id, number = commit.generation
        request = OffsetCommitRequest(self._group_id, number, member_id, ((self._topic, offsets),))
        self._commit = replace(commit, sent=self._send(request), due_s=math.inf)

    def _on_commit(self, response: OffsetCommitResponse, commit: _Commit, sent_s: float, now_s: float) -> None:
        codes = {each.partition_index: each.error_code for _, partitions in response.topics for each in partitions}
        answers = {codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR) for partition in commit.parts[0]}
        code = max(answers - {ErrorCode.NONE}, default=ErrorCode.NONE)
        if code == ErrorCode.NONE:
            self._alive_s = max(self._alive_s, sent_s)
            if len(commit.parts) > 1:
                self._continue_commit(replace(commit, parts=commit.parts[1:], sent=None, is_partly_done=True), now_s)
            else:
                self._end_commit(commit, code)
            return
        commit = replace(commit, is_partly_done=commit.is_partly_done or code in _PERHAPS_EXECUTED or len(answers) > 1)
        if code in _PASSING:
            self._commit_later(commit, code, now_s)
            return
        self._end_commit(commit, code)
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._rejoin(now_s)
        elif code in _FENCED and self.state is MembershipState.STABLE and commit.generation == self.generation:
            self._lose(now_s, forget=code != ErrorCode.ILLEGAL_GENERATION)

    def _commit_later(self, commit: _Commit, code: int, now_s: float) -> None:
        """The request is answered, or was not sent: its coordinator moves. So another request is no second copy."""
        if code in _MOVED:
            self._actions.append(FindCoordinator())
        due_s = now_s + min(_MAX_RETRY_S, _FIRST_RETRY_S * 2**commit.tries)
        self._commit = replace(commit, sent=None, due_s=due_s, error_code=code, tries=commit.tries + 1)

    def _continue_commit(self, commit: _Commit, now_s: float) -> None:
        if now_s >= commit.until_s:
            self._end_commit(commit, commit.error_code)
        elif self._may_commit(commit.generation):
            self._send_commit(commit, now_s)
        else:
            self._end_commit(commit, ErrorCode.ILLEGAL_GENERATION)

    def _end_commit(self, commit: _Commit, code: int | None) -> None:
        self._commit = None
        is_known = code == ErrorCode.NONE or not commit.is_partly_done
        self._actions.append(Committed(commit.number, code if is_known else None))

    # Requests -----------------------------------------------------------------------------------------------------

    def _send(self, request: GroupRequest) -> _Sent:
        self._tickets += 1
        self._actions.append(Send(self._tickets, request))
        return _Sent(self._tickets)

    def _new_leave(self, member_ids: Iterable[str]) -> tuple[int, Send]:
        self._tickets += 1
        members = tuple(LeavingMember(each) for each in member_ids)
        return self._tickets, Send(self._tickets, LeaveGroupRequest(self._group_id, members))

    def _served(self, partitions: Iterable[int]) -> tuple[int, ...]:
        return tuple(sorted(each for each in partitions if self._only is None or each == self._only))

    def _taken(self) -> list[GroupAction]:
        taken, self._actions = self._actions, []
        return taken
