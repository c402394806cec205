"""The wire client on a real broker: every request of it, the removal of many members, and SCRAM."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from pulsar_on_kafka.base.errors import LayerError, NotAuthenticated
from pulsar_on_kafka.embedded import BrokerOptions, EmbeddedBroker, SecureListeners
from pulsar_on_kafka.kafka.groups.group_members import GroupMembers
from pulsar_on_kafka.kafka.security import Security
from pulsar_on_kafka.kafka.settings import KafkaSettings
from pulsar_on_kafka.kafka.wire.brokers import ConnectionLane, KafkaBrokers
from pulsar_on_kafka.kafka.wire.client import WireClient
from pulsar_on_kafka.kafka.wire.error_codes import ErrorCode
from pulsar_on_kafka.kafka.wire.fetch_messages import FetchRequest, PartitionToFetch
from pulsar_on_kafka.kafka.wire.group_messages import (
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeavingMember,
    SyncGroupRequest,
)
from pulsar_on_kafka.kafka.wire.offset_messages import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetQuery,
    OffsetToCommit,
)
from tests.brokers import available
from tests.certificates import Authority
from tests.steps import Missing, Unique
from tests.waiting import patience, until

T = TypeVar("T")
CLIENT = "client-of-a-member"
LONG_S = 60.0
SESSION_MS = 300_000
"""Members send one heartbeat at most, however slow the machine is."""
MOVING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)

pytestmark = pytest.mark.kafka


@pytest.fixture
def wire(bootstrap: str) -> Iterator[WireClient]:
    made = WireClient(KafkaSettings(bootstrap).common())
    yield made
    made.close(patience())


def create(topic: str, bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})  # its futures end with it
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)


def play(wire: WireClient, steps: Callable[[KafkaBrokers], Coroutine[Any, Any, T]]) -> T:
    return wire.call(steps, patience(), "the test")


async def joined(brokers: KafkaBrokers, group: str, topic: str) -> JoinGroupResponse:
    """A member's first JoinGroup, which gives it a name, and the second one."""
    name = topic.encode()
    subscription = struct.pack(">hih", 0, 1, len(name)) + name + struct.pack(">i", -1)
    member = ""
    while True:
        request = JoinGroupRequest(group, SESSION_MS, SESSION_MS, member, (("range", subscription),))
        try:
            response = await brokers.send_to_coordinator(group, ConnectionLane.QUERIES, request, CLIENT, LONG_S)
        except LayerError:
            await asyncio.sleep(0.1)  # Kafka makes the topic of groups
            continue
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            member = response.member_id
        elif response.error_code in MOVING:
            brokers.forget_coordinator(group)
            await asyncio.sleep(0.1)
        else:
            assert response.error_code == ErrorCode.NONE
            return response


def test_a_member_s_life(wire: WireClient, bootstrap: str, unique: Unique) -> None:
    topic, group = unique(), unique("group")
    create(topic, bootstrap)

    async def steps(brokers: KafkaBrokers) -> None:
        async def ask(lane: ConnectionLane, request: Any) -> Any:
            return await brokers.send_to_coordinator(group, lane, request, CLIENT, LONG_S)

        join = await joined(brokers, group, topic)
        member, generation = join.member_id, join.generation_id
        assert (join.leader, join.protocol_name, len(join.members)) == (member, "range", 1)
        sync = await ask(ConnectionLane.QUERIES, SyncGroupRequest(group, generation, member, ((member, b"the share"),)))
        assert (sync.error_code, sync.assignment) == (ErrorCode.NONE, b"the share")
        assert (
            await ask(ConnectionLane.HEARTBEATS, HeartbeatRequest(group, generation, member))
        ).error_code == ErrorCode.NONE
        other = await ask(ConnectionLane.HEARTBEATS, HeartbeatRequest(group, generation + 1, member))
        assert other.error_code == ErrorCode.ILLEGAL_GENERATION

        offsets = ((topic, (OffsetToCommit(0, 7, "bits", 0),)),)
        commit = await ask(ConnectionLane.COMMITS, OffsetCommitRequest(group, generation, member, offsets))
        assert commit.topics == ((topic, ((0, ErrorCode.NONE),)),)
        fenced = await ask(ConnectionLane.COMMITS, OffsetCommitRequest(group, generation, "another", offsets))
        assert fenced.topics[0][1][0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
        fetched = await ask(
            ConnectionLane.COMMITS, OffsetFetchRequest(((group, ((topic, (0, 5)),)), ("unknown", None)))
        )
        first, unknown = fetched.groups
        assert first.topics == ((topic, ((0, 7, 0, "bits", 0), (5, -1, -1, "", 0))),)
        assert (unknown.error_code, unknown.topics) == (ErrorCode.NONE, ())

        described = await ask(ConnectionLane.QUERIES, DescribeGroupsRequest((group, "unknown")))
        groups = {each.group_id: each for each in described.groups}  # a broker returns them in any order
        known, dead = groups[group], groups["unknown"]
        assert (known.error_code, known.group_state) == (ErrorCode.NONE, "Stable")
        assert [each.client_id for each in known.members] == [CLIENT]
        assert known.members[0].member_assignment == b"the share"
        assert (dead.error_code, dead.group_state) == (ErrorCode.NONE, "Dead")
        leave = await ask(
            ConnectionLane.COMMITS, LeaveGroupRequest(group, (LeavingMember(member), LeavingMember("nobody")))
        )
        assert [each.error_code for each in leave.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]

    play(wire, steps)


def test_a_fetch_session_has_the_changes_of_its_topics(wire: WireClient, bootstrap: str, unique: Unique) -> None:
    topic = unique()
    create(topic, bootstrap)
    producer = Producer({"bootstrap.servers": bootstrap})

    def write(value: bytes) -> None:
        producer.produce(topic, value, partition=0)
        producer.flush(60)

    write(b"the first value")

    async def steps(brokers: KafkaBrokers) -> None:
        while brokers.leader(topic, 0) is None:
            await brokers.refresh_topics([topic], LONG_S)
        leader, described = brokers.leader(topic, 0), brokers.topic(topic)
        assert leader is not None
        assert described is not None
        connection = await brokers.connection(leader.leader_id, ConnectionLane.QUERIES)
        for timestamp, offset in ((EARLIEST_TIMESTAMP, 0), (LATEST_TIMESTAMP, 1)):
            queries = ((topic, (OffsetQuery(0, timestamp, leader.leader_epoch),)),)
            listed = await connection.send(ListOffsetsRequest(queries), CLIENT, LONG_S)
            assert (listed.topics[0][1][0].error_code, listed.topics[0][1][0].offset) == (ErrorCode.NONE, offset)

        start = PartitionToFetch(0, 0, 2**20, leader.leader_epoch)
        at_once = partial(FetchRequest, 0, 1, 2**20)
        topic_id = described.topic_id
        first = await connection.send(at_once(((topic_id, (start,)),), session_epoch=0), CLIENT, LONG_S)
        assert (first.error_code, first.topics[0][0]) == (ErrorCode.NONE, topic_id)
        (partition,) = first.topics[0][1]
        assert (partition.error_code, partition.high_watermark) == (ErrorCode.NONE, 1)
        assert b"the first value" in bytes(partition.records)
        session, following = first.session_id, PartitionToFetch(0, 1, 2**20, leader.leader_epoch)
        moved = at_once(((topic_id, (following,)),), session_id=session, session_epoch=1)
        assert (await connection.send(moved, CLIENT, LONG_S)).topics == ()
        waiting = connection.send(
            FetchRequest(30_000, 1, 2**20, (), session_id=session, session_epoch=2), CLIENT, LONG_S
        )
        await asyncio.get_running_loop().run_in_executor(None, write, b"the second value")
        ((_, (second,)),) = (await waiting).topics
        assert b"the second value" in bytes(second.records)
        stale = at_once((), session_id=session, session_epoch=9)
        refused = await connection.send(stale, CLIENT, LONG_S)
        assert refused.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        forgotten = at_once((), forgotten_topics=((topic_id, (0,)),), session_id=session, session_epoch=3)
        assert (await connection.send(forgotten, CLIENT, LONG_S)).error_code == ErrorCode.NONE
        gone = at_once((), session_id=session, session_epoch=4)  # it has no partitions any more
        assert (await connection.send(gone, CLIENT, LONG_S)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    play(wire, steps)


def test_members_of_many_groups_are_removed_together(wire: WireClient, unique: Unique) -> None:
    name = unique("group")
    groups = [f"{name}-{number}" for number in range(250)]

    async def steps(brokers: KafkaBrokers) -> None:
        await joined(brokers, groups[0], "no-topic")
        await asyncio.gather(*(joined(brokers, group, "no-topic") for group in groups[1:]))

    play(wire, steps)
    members = GroupMembers(wire)
    found = dict(members.members_of([*groups, "unknown"], patience()))
    assert found.pop("unknown") == ()
    there = {group: each for group, each in found.items() if not isinstance(each, LayerError)}
    assert there.keys() == set(groups)
    assert {tuple(member.client_id for member in each) for each in there.values()} == {(CLIENT,)}
    leaving = {group: ["former", *(member.member_id for member in each)] for group, each in there.items()}
    assert members.remove(leaving, patience()) == dict.fromkeys(groups)
    assert members.members_of(groups, patience()) == dict.fromkeys(groups, ())


# SCRAM ----------------------------------------------------------------------------------------------------------------


class ScramListeners(SecureListeners):
    """The SASL listener takes SCRAM too."""

    def added_to(self, properties: Mapping[str, str], host: str, ports: Mapping[str, int]) -> dict[str, str]:
        sasl = "listener.name.sasl"
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        return {
            **super().added_to(properties, host, ports),
            f"{sasl}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            f"{sasl}.scram-sha-256.sasl.jaas.config": f"{module} required;",
            f"{sasl}.scram-sha-512.sasl.jaas.config": f"{module} required;",
        }


@pytest.mark.long
def test_scram(tmp_path: Path, missing: Missing) -> None:
    authority = Authority(tmp_path)
    listeners = ScramListeners(authority.issue("broker", address="127.0.0.1").both, authority.file, acls=False)
    with available(missing, EmbeddedBroker(BrokerOptions(heap_mb=512, security=listeners))) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        passwords = {ScramMechanism.SCRAM_SHA_256: "pass-256", ScramMechanism.SCRAM_SHA_512: "pass-512"}
        for mechanism, password in passwords.items():
            added = UserScramCredentialUpsertion("alice", ScramCredentialInfo(mechanism, 8192), password.encode())
            admin.alter_user_scram_credentials([added])["alice"].result(60)

        def log_in(mechanism: str, password: str) -> str | None:
            options = {
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": str(authority.file),
                "sasl.mechanisms": mechanism,
                "sasl.username": "alice",
                "sasl.password": password,
            }
            settings = KafkaSettings(broker.bootstrap_of("SASL"), security=Security(options))
            client = WireClient(settings.common())

            async def nodes(brokers: KafkaBrokers) -> None:
                await brokers.refresh_topics([], LONG_S)

            try:
                client.call(nodes, patience(), "a login")
            except NotAuthenticated as refused:
                return str(refused)
            finally:
                client.close(patience())
            return None

        until(lambda: log_in("SCRAM-SHA-256", "pass-256") is None, "the broker to know the credentials")
        assert log_in("SCRAM-SHA-512", "pass-512") is None
        refused = log_in("SCRAM-SHA-512", "pass-256")
        assert refused is not None
        assert "invalid credentials with SASL mechanism SCRAM-SHA-512" in refused
        assert "pass-256" not in refused
