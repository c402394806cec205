"""One membership, request by request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import pytest

from pulsar_on_kafka.kafka.groups.consumer_protocol import decode_subscription, encode_assignment, encode_subscription
from pulsar_on_kafka.kafka.groups.membership_machine import (
    COMMIT_TIMEOUT_S,
    OWNER_TIMEOUT_S,
    POSTPONED_RETRY_S,
    REVOKE_TIMEOUT_S,
    Assigned,
    BeatTimes,
    Committed,
    FindCoordinator,
    GroupAction,
    GroupResponse,
    JoinRefused,
    LeftGroup,
    LostPartitions,
    MemberGeneration,
    MembershipMachine,
    MembershipState,
    Revoke,
    Send,
)
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka.kafka.wire.error_codes import ErrorCode
from pulsar_on_kafka.kafka.wire.group_messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinedMember,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from pulsar_on_kafka.kafka.wire.offset_messages import OffsetCommitRequest, OffsetCommitResponse, PartitionError

Request = TypeVar("Request")
FENCED = [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID]
SAVE = {0: CommittedOffset(7, "pok1:")}


class Played:
    """A machine, the time, and what it did last."""

    def __init__(self, only: int | None = None) -> None:
        self.now_s = 100.0
        self.beats = BeatTimes(0.5, 6.0)
        self.machine = MembershipMachine("g", "t", self.beats, only)
        self.done: list[GroupAction] = self.machine.begin(4, self.now_s)

    def do(self, actions: list[GroupAction]) -> None:
        self.done = actions

    def sent(self, kind: type[Request]) -> tuple[int, Request]:
        found = [(each.ticket, each.request) for each in self.done if isinstance(each, Send)]
        (request,) = [(ticket, request) for ticket, request in found if isinstance(request, kind)]
        return request

    def answer(self, kind: type[object], response: GroupResponse) -> None:
        self.do(self.machine.answered(self.sent(kind)[0], response, self.now_s, self.now_s))

    def fail(self, kind: type[object], *, sent: bool = True) -> None:
        self.do(self.machine.failed(self.sent(kind)[0], sent=sent, now_s=self.now_s))

    def passes(self, seconds: float, step_due_s: float = math.inf) -> None:
        self.now_s += seconds
        self.do(self.machine.tick(self.now_s, step_due_s))

    def others(self) -> list[GroupAction]:
        """Actions other than requests."""
        return [each for each in self.done if not isinstance(each, Send)]

    def join(self, generation: int, *, leader: str = "other", members: Sequence[JoinedMember] = ()) -> None:
        self.answer(JoinGroupRequest, JoinGroupResponse(0, 0, generation, "", leader, "me", tuple(members)))

    def sync(self, *partitions: int) -> None:
        self.answer(SyncGroupRequest, SyncGroupResponse(0, 0, encode_assignment("t", partitions)))

    def refuse_join(self, code: int, member_id: str = "") -> None:
        self.answer(JoinGroupRequest, JoinGroupResponse(0, code, -1, "", "", member_id, ()))

    def beat(self, code: int) -> None:
        self.passes(0.5)
        self.answer(HeartbeatRequest, HeartbeatResponse(0, code))


def stable(*partitions: int, generation: int = 3, only: int | None = None) -> Played:
    played = Played(only)
    played.refuse_join(ErrorCode.MEMBER_ID_REQUIRED, "me")
    played.join(generation)
    played.sync(*partitions)
    return played


def committing(played: Played) -> Played:
    played.do(played.machine.commit(1, [SAVE], played.machine.generation, played.now_s))
    return played


def commit_response(code: int) -> OffsetCommitResponse:
    return OffsetCommitResponse(0, (("t", (PartitionError(0, code),)),))


def test_a_member_joins_with_the_id_that_kafka_gives_it() -> None:
    played = Played()
    assert played.sent(JoinGroupRequest)[1].member_id == ""
    played.refuse_join(ErrorCode.MEMBER_ID_REQUIRED, "me")
    request = played.sent(JoinGroupRequest)[1]
    assert (request.member_id, request.session_timeout_ms, request.rebalance_timeout_ms) == ("me", 6000, 60_000)
    played.join(3)
    assert played.sent(SyncGroupRequest)[1] == SyncGroupRequest("g", 3, "me")
    played.sync(0, 2)
    assert played.done == [Assigned((0, 2), MemberGeneration("me", 3))]
    assert played.machine.state is MembershipState.STABLE


def test_the_leader_assigns_all_members() -> None:
    played = Played()
    played.join(
        3, leader="me", members=[JoinedMember(each, None, encode_subscription("t", (), -1)) for each in ("me", "b")]
    )
    assert dict(played.sent(SyncGroupRequest)[1].assignments) == {
        "b": encode_assignment("t", (0, 1)),
        "me": encode_assignment("t", (2, 3)),
    }


def test_the_leader_shares_out_new_partitions() -> None:
    played = Played()
    played.join(3, leader="me", members=[JoinedMember("me", None, encode_subscription("t", (), -1))])
    played.sync(0, 1, 2, 3)
    assert played.machine.partitions_counted(4, played.now_s) == []
    played.do(played.machine.partitions_counted(5, played.now_s))
    assert decode_subscription(played.sent(JoinGroupRequest)[1].protocols[0][1]).generation == 3


def test_a_rebalance_keeps_the_partitions_and_names_them() -> None:
    played = stable(0, 1)
    played.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert played.others() == []
    subscription = decode_subscription(played.sent(JoinGroupRequest)[1].protocols[0][1])
    assert (subscription.owned, subscription.generation) == ((("t", 0), ("t", 1)), 3)
    played.join(4)
    played.sync(0, 1)
    assert played.done == [Assigned((), MemberGeneration("me", 4))]


def test_a_revoked_partition_is_saved_before_the_machine_joins_without_it() -> None:
    played = stable(0, 1)
    played.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    played.join(4)
    played.sync(0, 3)
    generation = MemberGeneration("me", 4)
    assert played.done == [Assigned((3,), generation), Revoke((1,), generation)]
    played.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert played.done == [], "it waits for the owner"
    played.do(played.machine.revoked((1,), MemberGeneration("me", 3), played.now_s))
    assert played.done == [], "of an earlier revocation"
    played.do(played.machine.revoked((1,), generation, played.now_s))
    subscription = decode_subscription(played.sent(JoinGroupRequest)[1].protocols[0][1])
    assert (subscription.owned, subscription.generation) == ((("t", 0), ("t", 3)), 4)


def test_an_owner_that_does_not_give_up_for_a_minute_loses_all_and_another_member_joins() -> None:
    played = stable(0, 1)
    played.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    played.join(4)
    played.sync(0)
    for _ in range(round(REVOKE_TIMEOUT_S / 0.5) - 1):
        played.beat(ErrorCode.NONE)
    assert played.done == []
    played.passes(0.5)
    assert played.others() == [LostPartitions((0, 1))]
    assert played.sent(LeaveGroupRequest)[1].members[0].member_id == "me"
    assert played.sent(JoinGroupRequest)[1].member_id == ""


@pytest.mark.parametrize("code", FENCED)
def test_a_heartbeat_that_is_fenced_loses_all_at_once(code: ErrorCode) -> None:
    played = stable(0, 1)
    played.beat(code)
    assert played.others() == [LostPartitions((0, 1))]
    member_id = "me" if code == ErrorCode.ILLEGAL_GENERATION else ""
    request = played.sent(JoinGroupRequest)[1]
    assert request.member_id == member_id
    assert decode_subscription(request.protocols[0][1]).owned == ()


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_heartbeat_to_a_former_coordinator_finds_the_next_one_with_the_same_membership(code: ErrorCode) -> None:
    played = stable(0, 1)
    played.beat(code)
    assert played.done == [FindCoordinator()]
    played.passes(0.1)
    assert played.sent(HeartbeatRequest)[1] == HeartbeatRequest("g", 3, "me")


def test_a_join_to_a_coordinator_that_loads_is_sent_again() -> None:
    played = stable(0, 1)
    played.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    played.refuse_join(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert played.done == []
    played.passes(0.1)
    assert played.sent(JoinGroupRequest)[1].member_id == "me"


def test_a_session_without_responses_is_lost_before_kafka_ends_it() -> None:
    played = stable(0, 1)
    played.passes(0.5)
    sent_s = played.now_s
    played.now_s += 3.0
    played.do(played.machine.answered(played.sent(HeartbeatRequest)[0], HeartbeatResponse(0, 0), sent_s, played.now_s))
    played.passes(sent_s + 5.9 - played.now_s)
    assert played.others() == []
    played.passes(0.2)
    assert played.others() == [LostPartitions((0, 1))]
    assert played.sent(JoinGroupRequest)[1].member_id == "me"


def test_a_session_also_ends_while_a_join_waits() -> None:
    played = stable(0)
    played.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    played.passes(0.5)
    played.answer(HeartbeatRequest, HeartbeatResponse(0, ErrorCode.REBALANCE_IN_PROGRESS))
    assert played.done == []
    played.passes(6.0)
    assert LostPartitions((0,)) in played.done


def test_a_stale_heartbeat_does_nothing() -> None:
    played = stable(0)
    played.passes(0.5)
    late = played.sent(HeartbeatRequest)[0]
    committing(played)
    played.answer(OffsetCommitRequest, commit_response(ErrorCode.REBALANCE_IN_PROGRESS))
    played.join(4)
    played.sync(0)
    assert (
        played.machine.answered(late, HeartbeatResponse(0, ErrorCode.ILLEGAL_GENERATION), played.now_s, played.now_s)
        == []
    )


def test_a_commit_names_the_generation_in_which_its_save_was_prepared() -> None:
    played = stable(0)
    prepared = played.machine.generation
    played.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    joining = played.sent(JoinGroupRequest)[0]
    committing(played)  # the former generation's until the next one is complete
    assert played.sent(OffsetCommitRequest)[1].generation_id == 3
    played.answer(OffsetCommitRequest, commit_response(ErrorCode.ILLEGAL_GENERATION))
    assert played.done == [Committed(1, ErrorCode.ILLEGAL_GENERATION)], "not lost: the join's response is on its way"
    played.do(
        played.machine.answered(joining, JoinGroupResponse(0, 0, 4, "", "o", "me", ()), played.now_s, played.now_s)
    )
    played.sync(0)
    played.do(played.machine.commit(2, [SAVE], prepared, played.now_s))
    assert played.done == [Committed(2, ErrorCode.ILLEGAL_GENERATION)], "without a request"


def test_a_group_has_one_commit_under_way() -> None:
    played = committing(stable(0))
    ticket, _ = played.sent(OffsetCommitRequest)
    assert played.machine.commit(2, [SAVE], played.machine.generation, played.now_s) == [
        Committed(2, ErrorCode.REBALANCE_IN_PROGRESS)
    ]
    assert played.machine.answered(ticket, commit_response(0), played.now_s, played.now_s) == [Committed(1, 0)]


def test_the_parts_of_a_commit_follow_each_other() -> None:
    played = stable(0, 1)
    parts = [SAVE, {1: CommittedOffset(8, "")}]
    played.do(played.machine.commit(1, parts, played.machine.generation, played.now_s))
    played.answer(OffsetCommitRequest, commit_response(0))
    assert played.sent(OffsetCommitRequest)[1].topics[0][1][0].partition_index == 1
    played.answer(OffsetCommitRequest, commit_response(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    assert played.done == [Committed(1, None)], "Kafka has the first part"


def test_a_commit_without_a_response_ends_the_membership_so_that_kafka_refuses_it_later() -> None:
    """A copy of the commit may still arrive (F25). It names a member that has left."""
    played = committing(stable(0, 1))
    late = played.sent(OffsetCommitRequest)[1]
    played.fail(OffsetCommitRequest)
    assert played.others() == [Committed(1, None), LostPartitions((0, 1))]
    assert played.sent(LeaveGroupRequest)[1].members[0].member_id == late.member_id == "me"
    assert played.sent(JoinGroupRequest)[1].member_id == ""
    assert played.machine.commit(2, [SAVE], MemberGeneration("me", 3), played.now_s)[0] == Committed(
        2, ErrorCode.ILLEGAL_GENERATION
    )


def test_losing_the_session_during_a_commit_ends_the_membership_too() -> None:
    played = committing(stable(0))
    played.passes(6.0)
    assert played.others() == [Committed(1, None), LostPartitions((0,))]
    assert played.sent(LeaveGroupRequest)[1].members[0].member_id == "me"


@pytest.mark.parametrize("outcome", ["moved", "not sent"])
def test_a_commit_that_was_not_executed_is_sent_again_for_ten_seconds(outcome: str) -> None:
    played = committing(stable(0))
    until_s, requests = played.now_s + COMMIT_TIMEOUT_S, 0
    while not any(isinstance(each, Committed) for each in played.done):
        sends = [each for each in played.done if isinstance(each, Send)]
        for beat in (each for each in sends if isinstance(each.request, HeartbeatRequest)):
            played.machine.answered(beat.ticket, HeartbeatResponse(0, 0), played.now_s, played.now_s)
        if any(isinstance(each.request, OffsetCommitRequest) for each in sends):
            requests += 1
            if outcome == "moved":
                played.answer(OffsetCommitRequest, commit_response(ErrorCode.NOT_COORDINATOR))
            else:
                played.fail(OffsetCommitRequest, sent=False)
            assert played.done == [FindCoordinator()]
        played.passes(0.1)
    assert until_s <= played.now_s <= until_s + 2.0
    assert 5 < requests < 12
    code = None if outcome == "moved" else ErrorCode.NOT_COORDINATOR
    assert played.others() == [Committed(1, code)], "what was answered may be in the log all the same"


def yields(played: Played) -> bool:
    return decode_subscription(played.sent(JoinGroupRequest)[1].protocols[0][1]).yields


def test_a_member_that_yields_joins_again_and_saves_what_it_gives_up() -> None:
    played = stable(0, 1)
    played.do(played.machine.yield_partitions(played.now_s))
    assert yields(played)
    assert played.machine.yield_partitions(played.now_s) == []
    played.join(4)
    played.sync()
    generation = MemberGeneration("me", 4)
    assert played.done == [Assigned((), generation), Revoke((0, 1), generation)]
    played.do(played.machine.revoked((0, 1), generation, played.now_s))
    assert yields(played)


def test_a_member_that_yields_during_a_join_joins_once_more() -> None:
    played = stable(0)
    played.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert not yields(played)
    join = played.done
    assert played.machine.yield_partitions(played.now_s) == []
    played.do(join)
    played.join(4)
    played.sync(0)
    assert yields(played)


def test_leaving_revokes_saves_and_leaves() -> None:
    played = stable(0, 1)
    played.do(played.machine.leave(played.now_s))
    assert played.done == [Revoke((0, 1), MemberGeneration("me", 3))]
    committing(played)
    played.answer(OffsetCommitRequest, commit_response(0))
    played.do(played.machine.revoked((0,), MemberGeneration("me", 3), played.now_s))
    assert played.done == []
    played.do(played.machine.revoked((1,), MemberGeneration("me", 3), played.now_s))
    played.answer(LeaveGroupRequest, LeaveGroupResponse(0, 0, ()))
    assert played.done == [LeftGroup()]
    assert played.machine.due_s == math.inf


def test_leaving_works_while_a_join_waits() -> None:
    played = Played()
    played.refuse_join(ErrorCode.MEMBER_ID_REQUIRED, "me")
    waiting = played.sent(JoinGroupRequest)[0]
    played.do(played.machine.leave(played.now_s))
    assert played.sent(LeaveGroupRequest)[1].members[0].member_id == "me"
    refused = JoinGroupResponse(0, ErrorCode.UNKNOWN_MEMBER_ID, -1, "", "", "", ())
    assert played.machine.answered(waiting, refused, played.now_s, played.now_s) == []
    played.answer(LeaveGroupRequest, LeaveGroupResponse(0, 0, ()))
    assert played.done == [LeftGroup()]


def test_a_member_id_that_comes_after_leaving_leaves_too() -> None:
    played = Played()
    waiting = played.sent(JoinGroupRequest)[0]
    assert played.machine.leave(played.now_s) == [LeftGroup()]
    given = JoinGroupResponse(0, ErrorCode.MEMBER_ID_REQUIRED, -1, "", "", "me", ())
    played.do(played.machine.answered(waiting, given, played.now_s, played.now_s))
    assert played.sent(LeaveGroupRequest)[1].members[0].member_id == "me"


def test_leaving_during_a_rebalance_saves_in_the_next_generation() -> None:
    played = stable(0)
    played.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    waiting = played.sent(JoinGroupRequest)[0]
    assert played.machine.leave(played.now_s) == [Revoke((0,), MemberGeneration("me", 3))]
    played.do(
        played.machine.answered(waiting, JoinGroupResponse(0, 0, 4, "", "o", "me", ()), played.now_s, played.now_s)
    )
    played.sync(0, 1)
    assert played.done == [Assigned((), MemberGeneration("me", 4))]
    committing(played)
    assert played.sent(OffsetCommitRequest)[1].generation_id == 4


def test_a_leave_is_sent_up_to_three_times() -> None:
    played = stable()
    played.do(played.machine.leave(played.now_s))
    for _ in range(3):
        played.fail(LeaveGroupRequest)
        assert played.done == [FindCoordinator()]
        played.passes(2.0)
    played.answer(LeaveGroupRequest, LeaveGroupResponse(0, ErrorCode.NOT_COORDINATOR, ()))
    assert played.done == [LeftGroup()]


def test_only_one_partition_is_served_and_the_others_are_given_up_at_once() -> None:
    played = stable(0, 1, only=1)
    assert played.done == [Assigned((1,), MemberGeneration("me", 3))]
    played.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    played.join(4)
    played.sync(1)
    assert played.others() == [Assigned((), MemberGeneration("me", 4))]
    assert decode_subscription(played.sent(JoinGroupRequest)[1].protocols[0][1]).owned == (("t", 1),)


def test_a_join_that_kafka_refuses_is_reported_and_tried_again() -> None:
    played = Played()
    played.refuse_join(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert played.done == [JoinRefused(ErrorCode.GROUP_AUTHORIZATION_FAILED)]
    played.passes(5.0)
    assert played.sent(JoinGroupRequest)[1].member_id == ""


def test_an_unreadable_assignment_is_lost_and_does_not_make_a_tight_loop() -> None:
    played = stable(0)
    played.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    for generation in (4, 5):
        played.join(generation)
        played.answer(SyncGroupRequest, SyncGroupResponse(0, 0, b"\0"))
    assert played.machine.due_s > played.now_s
    assert not [each for each in played.done if isinstance(each, Send) and isinstance(each.request, JoinGroupRequest)]


def test_a_longer_session_counts_from_kafkas_answer_on() -> None:
    played = stable(0)
    played.beats.interval_s, played.beats.session_s = 2.5, 10.0
    played.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert played.sent(JoinGroupRequest)[1].session_timeout_ms == 10_000
    alive_s = played.now_s
    assert played.machine.due_s <= alive_s + 6.0
    played.join(4)
    played.sync(0)
    played.passes(8.0)
    assert LostPartitions((0,)) not in played.done


def test_a_join_that_gave_way_is_sent_again_when_a_heartbeat_shows_the_next_generation() -> None:
    played = stable(0)
    played.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    ticket, first = played.sent(JoinGroupRequest)
    played.do(played.machine.postponed(ticket, played.now_s))
    assert not played.machine.is_pending(ticket)
    played.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert played.done == [], "others have not joined yet"
    played.beat(ErrorCode.ILLEGAL_GENERATION)
    assert played.sent(JoinGroupRequest)[1] == first, "Kafka compares it"
    assert played.machine.failed(ticket, sent=True, now_s=played.now_s) == [], "its connection was closed"
    played.join(4)
    played.sync(0)
    assert played.done == [Assigned((), MemberGeneration("me", 4))]


def test_a_first_join_that_gave_way_is_sent_again_after_the_first_rebalance() -> None:
    played = Played()
    played.refuse_join(ErrorCode.MEMBER_ID_REQUIRED, "me")
    played.do(played.machine.postponed(played.sent(JoinGroupRequest)[0], played.now_s))
    played.passes(POSTPONED_RETRY_S - 0.1)
    assert played.done == []
    played.passes(0.1)
    assert played.sent(JoinGroupRequest)[1].member_id == "me"


def test_a_membership_without_its_owner_leaves_until_the_owner_runs_again() -> None:
    played = stable(0)
    due_s = played.now_s
    while played.now_s < due_s + OWNER_TIMEOUT_S - 0.5:
        played.passes(0.5, due_s)
        assert played.others() == []
        played.answer(HeartbeatRequest, HeartbeatResponse(0, 0))
    played.passes(0.5, due_s)
    assert played.others() == [LostPartitions((0,))]
    assert played.sent(LeaveGroupRequest)[1].members[0].member_id == "me"
    for _ in range(5):
        assert played.machine.due_s <= played.now_s + 1.0
        played.passes(1.0, due_s)
        assert played.done == []
    assert played.machine.commit(1, [SAVE], MemberGeneration("me", 3), played.now_s) == [
        Committed(1, ErrorCode.ILLEGAL_GENERATION)
    ]
    played.passes(1.0)
    assert played.sent(JoinGroupRequest)[1].member_id == ""


def test_a_membership_without_its_owner_can_leave() -> None:
    played = stable(0)
    played.passes(OWNER_TIMEOUT_S, played.now_s)
    assert played.machine.is_stalled
    assert played.machine.leave(played.now_s) == [LeftGroup()]
