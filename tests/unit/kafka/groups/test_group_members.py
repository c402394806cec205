"""Members of many groups are listed and removed: few requests, and a result for each group by itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import DeadlineExceeded, NotAuthorized, NotSupportedYet, StoreError
from pulsar_on_kafka.base.worker import aside
from pulsar_on_kafka.kafka.groups.group_members import GroupMembers
from pulsar_on_kafka.kafka.wire.client import WireClient
from pulsar_on_kafka.kafka.wire.cluster_messages import FindCoordinatorRequest
from pulsar_on_kafka.kafka.wire.error_codes import ErrorCode
from pulsar_on_kafka.kafka.wire.fields import (
    FieldReader,
    array,
    compact_array,
    compact_nullable_string,
    compact_string,
    int16,
    int32,
    nullable_string,
    sized,
    string,
)
from pulsar_on_kafka.kafka.wire.group_messages import DescribeGroupsRequest, LeaveGroupRequest
from tests.stand_in_broker import Received, StandInBroker
from tests.waiting import patience

FIND, DESCRIBE, LEAVE = (kind.API.key for kind in (FindCoordinatorRequest, DescribeGroupsRequest, LeaveGroupRequest))


class Cluster:
    """One broker that coordinates all groups. Each has one member, called by its group, until it is removed."""

    def __init__(self) -> None:
        self.broker = StandInBroker({FIND: self._found, DESCRIBE: self._described, LEAVE: self._left})
        self.errors: dict[str, list[int]] = {}
        """Errors of the next answers about a group."""
        self.silent_about: set[str] = set()
        self.removed: list[str] = []

    def _error(self, group: str) -> int:
        coming = self.errors.get(group)
        return coming.pop(0) if coming else ErrorCode.NONE

    def _found(self, received: Received) -> bytes:
        reader = FieldReader(received.body, "FindCoordinator")
        reader.take(2)  # tags of the header, and the kind of key
        groups = [reader.compact_string() for _ in reader.compact_array(1)]
        where = int32(1) + compact_string("127.0.0.1") + int32(self.broker.port) + int16(0) + b"\0\0"
        return int32(0) + compact_array(compact_string(group) + where for group in groups) + b"\0"

    def _described(self, received: Received) -> bytes:
        reader = FieldReader(received.body, "DescribeGroups")
        groups = [reader.string() for _ in reader.array(2)]
        return int32(0) + array(map(self._group, groups))

    def _group(self, group: str) -> bytes:
        member = b"".join((string(group), nullable_string(None), string("c"), string("/h"), sized(b""), sized(b"")))
        members = array([] if group in self.removed else [member])
        head = int16(self._error(group)) + string(group) + string("Stable") + string("consumer") + string("")
        return head + members + int32(0)

    def _left(self, received: Received) -> bytes | None:
        reader = FieldReader(received.body, "LeaveGroup")
        reader.take(1)
        group = reader.compact_string()
        if group in self.silent_about:
            return None
        error = self._error(group)
        if not error:
            self.removed.append(group)
        member = compact_string(group) + compact_nullable_string(None) + int16(error) + b"\0"
        return int32(0) + int16(0) + compact_array([member]) + b"\0"


@contextmanager
def members_of(cluster: Cluster, **options: str) -> Iterator[GroupMembers]:
    """The broker serves in a loop of its own thread."""
    loop, is_up, is_over = asyncio.new_event_loop(), threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with cluster.broker:
            is_up.set()
            await is_over.wait()

    thread = aside("stand-in broker", lambda: loop.run_until_complete(serve()))
    assert is_up.wait(60)
    wire = WireClient({"bootstrap.servers": f"127.0.0.1:{cluster.broker.port}", "client.id": "c", **options})
    try:
        yield GroupMembers(wire)
    finally:
        wire.close(patience())
        loop.call_soon_threadsafe(is_over.set)
        thread.join(60)
        loop.close()


def names(count: int) -> list[str]:
    return [f"group-{number}" for number in range(count)]


def test_a_thousand_groups_take_few_requests() -> None:
    cluster, groups = Cluster(), names(1000)
    with members_of(cluster) as members:
        found = members.members_of(groups, patience())
        assert found.keys() == set(groups)
        assert not [each for each in found.values() if isinstance(each, Exception) or len(each) != 1]
        assert len(cluster.broker.of(FindCoordinatorRequest.API)) == 5
        assert len(cluster.broker.of(DescribeGroupsRequest.API)) == 5
        assert members.remove({group: [group] for group in groups}, patience()) == dict.fromkeys(groups)
        assert sorted(cluster.removed) == sorted(groups)
        leaving = cluster.broker.of(LeaveGroupRequest.API)
        assert len({each.connection for each in leaving}) > 1
        assert b"its process died" in leaving[0].body
        assert members.members_of([], patience()) == {}


@pytest.mark.parametrize("error", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_coordinator_that_moves_is_asked_again(error: int) -> None:
    cluster = Cluster()
    cluster.errors = {"group-1": [error, error, ErrorCode.NONE, error]}
    with members_of(cluster) as members:
        found = members.members_of(names(3), patience())
        assert [each for each in found.values() if isinstance(each, Exception)] == []
        assert len(cluster.broker.of(DescribeGroupsRequest.API)) == 3
        assert members.remove({"group-1": ["group-1"]}, patience()) == {"group-1": None}
        assert len(cluster.broker.of(LeaveGroupRequest.API)) == 2


@pytest.mark.parametrize(
    ("error", "kind"),
    [(ErrorCode.GROUP_AUTHORIZATION_FAILED, NotAuthorized), (ErrorCode.INVALID_REQUEST, StoreError)],
)
def test_a_refusal_concerns_its_group_alone(error: int, kind: type[Exception]) -> None:
    cluster = Cluster()
    cluster.errors = {"group-1": [error, error]}
    with members_of(cluster) as members:
        found = members.members_of(names(3), patience())
        assert {group for group, each in found.items() if isinstance(each, kind)} == {"group-1"}
        left = members.remove({group: [group] for group in names(3)}, patience())
        assert {group for group, each in left.items() if isinstance(each, kind)} == {"group-1"}
        assert "leaving group group-1" in str(left["group-1"])


def test_a_former_member_counts_as_removed() -> None:
    cluster = Cluster()
    cluster.errors = {"group-0": [ErrorCode.UNKNOWN_MEMBER_ID]}
    with members_of(cluster) as members:
        assert members.remove({"group-0": ["group-0"]}, patience()) == {"group-0": None}


def test_silence_about_one_group_ends_at_the_deadline() -> None:
    cluster = Cluster()
    cluster.silent_about = {"group-1"}
    with members_of(cluster) as members:
        left = members.remove({"group-1": ["group-1"]}, Deadline.after(0.5))
        assert isinstance(left["group-1"], DeadlineExceeded)


def test_a_login_that_librdkafka_alone_has_is_refused() -> None:
    options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "GSSAPI"}
    with members_of(Cluster(), **options) as members, pytest.raises(NotSupportedYet, match="GSSAPI"):
        members.members_of(["g"], patience())
