"""Dead members leave their group, and members watch one another."""

from __future__ import annotations

import logging
import math
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pytest

from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError, NotAuthorized, NotSupportedYet, StoreError
from pulsar_on_kafka.base.processes import member_client_id, process_of
from pulsar_on_kafka.kafka.groups.dead_members import NEXT, Departures, watched_by
from pulsar_on_kafka.kafka.wire.group_messages import DescribedMember
from tests.waiting import until


class Group:
    """One group of a cluster, whose dead members may be removed unless it is told to refuse that."""

    def __init__(self, *client_ids: str) -> None:
        self.members = list(client_ids)
        self.left: list[str] = []
        self.asked = 0
        self.refusal: LayerError | None = None

    def members_of(
        self, group_ids: Iterable[str], deadline: Deadline
    ) -> Mapping[str, tuple[DescribedMember, ...] | LayerError]:
        self.asked += 1
        if isinstance(self.refusal, NotSupportedYet):
            raise self.refusal
        members = tuple(DescribedMember(f"{each}-id", None, each, "/", b"", b"") for each in self.members)
        return dict.fromkeys(group_ids, members)

    def remove(self, members: Mapping[str, Sequence[str]], deadline: Deadline) -> Mapping[str, LayerError | None]:
        for member_ids in members.values() if self.refusal is None else ():
            self.left += member_ids
            self.members = [each for each in self.members if f"{each}-id" not in member_ids]
        return dict.fromkeys(members, self.refusal)


OWN = member_client_id("own", "0123456789ab")


@pytest.fixture
def other() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process of this machine, and the client id of its member."""
    ask = "from pulsar_on_kafka.base.processes import member_client_id as m; print(m('o', 'x' * 12), flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", f"{ask}; input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
        process.kill()


def departures(group: Group) -> Departures:
    return Departures(group, SystemClock())


def test_each_process_of_a_ring_is_watched_by_those_before_it() -> None:
    processes = [f"p{number}" for number in range(8)]
    watched = {own: watched_by(own, processes) for own in processes}
    assert watched["p1"] == ("p2", "p3", "p4")
    assert watched["p7"] == ("p0", "p1", "p2")
    assert all(sum(process in those for those in watched.values()) == NEXT for process in processes)
    assert watched_by("p0", ["p0"]) == ()
    assert watched_by("p0", ["p0", "p1"]) == ("p1",)


def test_who_joins_does_not_wait_for_the_dead(other: tuple[subprocess.Popen[str], str]) -> None:
    process, client_id = other
    process.kill()
    process.wait()
    group = Group(client_id, "elsewhere@host:1:2:3", "a stranger")
    found = departures(group)
    found.local_peers("g", OWN).joining()
    assert group.left == [f"{client_id}-id"]
    found.close()


def test_a_survivor_sees_the_dead_off(other: tuple[subprocess.Popen[str], str]) -> None:
    process, client_id = other
    group = Group(OWN, client_id)
    found = departures(group)
    local_peers = found.local_peers("g", OWN)
    local_peers.joining()
    assert local_peers.watched == (process_of(client_id),)
    process.kill()
    until(lambda: group.left, "the member to be taken out of the group")
    assert group.left == [f"{client_id}-id"]
    found.close()


def test_a_rebalance_has_the_group_looked_at_once(other: tuple[subprocess.Popen[str], str]) -> None:
    _, client_id = other
    group = Group(OWN)
    found = departures(group)
    local_peers = found.local_peers("g", OWN)
    local_peers.joining()
    assert local_peers.watched == ()
    group.members.append(client_id)
    local_peers.changed()
    until(lambda: local_peers.watched, "the process to be watched")
    assert group.asked == 2
    found.close()


def test_a_group_without_other_processes_is_not_looked_at() -> None:
    looked_at = departures(Group(OWN))
    local_peers = looked_at.local_peers("g", OWN)
    local_peers.joining()
    assert not looked_at._attended
    local_peers.due_s = math.inf
    local_peers.changed()
    until(lambda: local_peers.due_s == math.inf, "the group to be looked at after its rebalance")
    until(lambda: not looked_at._attended, "no group to be looked at")
    looked_at.close()


def test_a_member_that_could_not_say_good_bye_is_seen_off_when_it_is_closed() -> None:
    group = Group(OWN, "elsewhere@host:1:2:3")
    found = departures(group)
    local_peers = found.local_peers("g", OWN)
    local_peers.joining()
    assert group.left == []
    local_peers.left()
    assert group.left == [f"{OWN}-id"]
    found.close()


def test_a_process_that_held_many_groups_is_reported_to_all_together(
    other: tuple[subprocess.Popen[str], str],
) -> None:
    process, client_id = other
    group = Group(OWN, client_id)
    found = departures(group)
    peers = [found.local_peers(f"g{number}", OWN) for number in range(500)]
    found.update(peers)
    assert {each.watched for each in peers} == {(process_of(client_id),)}
    process.kill()
    process.wait()
    group.asked = 0
    found.look(peers)
    assert group.asked == 1
    assert len(group.left) == 500
    assert {each.watched for each in peers} == {()}
    found.close()


@pytest.mark.parametrize("refusal", [NotSupportedYet("no library"), NotAuthorized("no Read")])
def test_what_cannot_be_sent_is_told_once(
    caplog: pytest.LogCaptureFixture, other: tuple[subprocess.Popen[str], str], refusal: LayerError
) -> None:
    process, client_id = other
    process.kill()
    process.wait()
    group = Group(client_id)
    group.refusal = refusal
    found = departures(group)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            found.local_peers("g", OWN).joining()
    assert [record.getMessage() for record in caplog.records].count(
        f"processes that die leave Kafka's groups only when their session of 6 s is over: {refusal}"
    ) == 1
    found.close()


def test_a_cluster_that_does_not_answer_is_asked_again(other: tuple[subprocess.Popen[str], str]) -> None:
    process, client_id = other
    process.kill()
    process.wait()
    group = Group(OWN, client_id)
    group.refusal = StoreError("no answer")
    found = departures(group)
    found.local_peers("g", OWN).joining()
    group.refusal = None
    until(lambda: group.left, "the member to be taken out of the group")
    found.close()
