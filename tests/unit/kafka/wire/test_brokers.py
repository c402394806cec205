"""The brokers of a cluster: addresses, coordinators, leaders, and the connections of each use."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import (
    Closed,
    ConnectFailed,
    DeadlineExceeded,
    InvalidOption,
    NotAuthorized,
    NotSupportedYet,
    StoreError,
)
from pulsar_on_kafka.exceptions import AlreadyClosed
from pulsar_on_kafka.kafka.wire import brokers as module
from pulsar_on_kafka.kafka.wire.brokers import ConnectionLane, KafkaBrokers, addresses
from pulsar_on_kafka.kafka.wire.client import WireClient
from pulsar_on_kafka.kafka.wire.cluster_messages import FindCoordinatorRequest, MetadataRequest
from pulsar_on_kafka.kafka.wire.connection import ConnectionLost
from pulsar_on_kafka.kafka.wire.error_codes import ErrorCode
from pulsar_on_kafka.kafka.wire.fields import compact_array, compact_string, int16, int32
from pulsar_on_kafka.kafka.wire.group_messages import HeartbeatRequest, JoinGroupRequest
from pulsar_on_kafka.kafka.wire.login import KafkaLogin
from tests.stand_in_broker import FINE, Answer, Received, StandInBroker
from tests.waiting import patience

HEARTBEAT, JOIN, FIND, METADATA = (
    kind.API.key for kind in (HeartbeatRequest, JoinGroupRequest, FindCoordinatorRequest, MetadataRequest)
)
LONG_S = 60.0
NO_MEMBER = int32(0) + int16(ErrorCode.UNKNOWN_MEMBER_ID) + int32(-1) + bytes(6) + int32(0)
TOPIC_ID = bytes(range(16))


def beat(group_id: str) -> HeartbeatRequest:
    return HeartbeatRequest(group_id, 1, "m")


def join(group_id: str) -> JoinGroupRequest:
    return JoinGroupRequest(group_id, 6000, 6000, "", ())


class Cluster:
    """One broker that coordinates all groups but those called "forbidden", and leads partitions of all topics."""

    def __init__(self) -> None:
        self.broker: StandInBroker
        self.beats: Answer = lambda _: FINE
        self.joins: Answer = lambda _: NO_MEMBER
        self.leader = 5
        self.there: tuple[str, ...] = ("t",)

    def found(self, received: Received) -> bytes:
        keys = [group for group in ("a", "b", "c", "forbidden") if compact_string(group) in received.body]
        return int32(0) + compact_array(map(self._coordinator, keys)) + b"\0"

    def _coordinator(self, group: str) -> bytes:
        if group == "forbidden":
            where, code = int32(-1) + compact_string("") + int32(-1), ErrorCode.GROUP_AUTHORIZATION_FAILED
        else:
            where, code = int32(5) + self._address(), ErrorCode.NONE
        return compact_string(group) + where + int16(code) + b"\0\0"

    def _address(self) -> bytes:
        return compact_string("127.0.0.1") + int32(self.broker.port)

    def described(self, received: Received) -> bytes:
        brokers = compact_array([int32(5) + self._address() + b"\0\0"])
        topics = compact_array(self._topic(name) for name in ("t", "gone") if compact_string(name) in received.body)
        return int32(0) + brokers + b"\0" + int32(5) + topics + b"\0"

    def _topic(self, name: str) -> bytes:
        if name not in self.there:
            head, partitions = int16(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) + compact_string(name) + bytes(17), []
        else:
            head = int16(0) + compact_string(name) + TOPIC_ID + b"\0"
            partitions = [int16(0) + int32(0) + int32(self.leader) + int32(3) + b"\1\1\1\0"]
        return head + compact_array(partitions) + int32(0) + b"\0"

    def play(self, steps: Callable[[KafkaBrokers], Coroutine[Any, Any, None]]) -> None:
        answers: dict[int, Answer] = {
            HEARTBEAT: lambda received: self.beats(received),
            JOIN: lambda received: self.joins(received),
            FIND: self.found,
            METADATA: self.described,
        }

        async def run() -> None:
            async with StandInBroker(answers) as self.broker:
                brokers = KafkaBrokers([("127.0.0.1", self.broker.port)], KafkaLogin({}), "c", LONG_S)
                try:
                    await steps(brokers)
                finally:
                    brokers.close()

        asyncio.run(run())


def test_a_coordinator_is_looked_up_once_until_it_moves() -> None:
    cluster = Cluster()

    async def steps(brokers: KafkaBrokers) -> None:
        found = await brokers.coordinators(("a", "b", "forbidden"), LONG_S)
        assert (found["a"], found["b"]) == (5, 5)
        assert isinstance(found["forbidden"], NotAuthorized)
        assert "Describe on group forbidden" in str(found["forbidden"])
        for _ in range(3):
            response = await brokers.send_to_coordinator("a", ConnectionLane.HEARTBEATS, beat("a"), "client-a", LONG_S)
            assert response.error_code == 0
        assert len(cluster.broker.of(FindCoordinatorRequest.API)) == 1
        cluster.beats = lambda _: int32(0) + int16(ErrorCode.NOT_COORDINATOR)
        response = await brokers.send_to_coordinator("a", ConnectionLane.HEARTBEATS, beat("a"), "client-a", LONG_S)
        assert response.error_code == ErrorCode.NOT_COORDINATOR
        assert (brokers.coordinator("a"), brokers.coordinator("b")) == (None, 5)
        cluster.beats = lambda _: FINE
        assert (
            await brokers.send_to_coordinator("a", ConnectionLane.HEARTBEATS, beat("a"), "c", LONG_S)
        ).error_code == 0
        assert len(cluster.broker.of(FindCoordinatorRequest.API)) == 2

    cluster.play(steps)


def test_a_lost_connection_is_opened_again_and_the_coordinator_looked_up() -> None:
    cluster = Cluster()

    async def steps(brokers: KafkaBrokers) -> None:
        cluster.beats = lambda _: None
        waiting = asyncio.ensure_future(
            brokers.send_to_coordinator("a", ConnectionLane.HEARTBEATS, beat("a"), "c", LONG_S)
        )
        while not cluster.broker.of(HeartbeatRequest.API):
            await asyncio.sleep(0.001)
        cluster.broker.disconnect()
        with pytest.raises(ConnectionLost):
            await waiting
        assert brokers.coordinator("a") is None
        assert brokers.open_connection(5, ConnectionLane.HEARTBEATS, "a") is None
        cluster.beats = lambda _: FINE
        assert (
            await brokers.send_to_coordinator("a", ConnectionLane.HEARTBEATS, beat("a"), "c", LONG_S)
        ).error_code == 0
        assert brokers.open_connection(5, ConnectionLane.HEARTBEATS, "a") is not None

    cluster.play(steps)


def test_each_use_has_connections_of_its_own() -> None:
    cluster = Cluster()

    async def steps(brokers: KafkaBrokers) -> None:
        await brokers.coordinators(("a", "b"), LONG_S)
        groups = [str(number) for number in range(200)]
        found = [
            {group: await brokers.connection(5, lane, group) for group in groups}
            for lane in (ConnectionLane.HEARTBEATS, ConnectionLane.COMMITS, ConnectionLane.QUERIES)
        ]
        counts = [len(set(connections.values())) for connections in found]
        assert counts == [module.HEARTBEAT_CONNECTIONS, module.COMMIT_CONNECTIONS, 1]
        assert len({each for connections in found for each in connections.values()}) == sum(counts)
        again = await asyncio.gather(*(brokers.connection(5, ConnectionLane.COMMITS, "7") for _ in range(5)))
        assert set(again) == {found[1]["7"]}

    cluster.play(steps)


def test_look_ups_of_many_groups_become_one_request() -> None:
    cluster = Cluster()

    async def steps(brokers: KafkaBrokers) -> None:
        found = [brokers.find_coordinator(group) for group in ("a", "b", "a", "forbidden")]
        assert [await found[0], await found[1], await found[2]] == [5, 5, 5]
        with pytest.raises(NotAuthorized):
            await found[3]
        assert len(cluster.broker.of(FindCoordinatorRequest.API)) == 1
        assert await brokers.find_coordinator("b") == 5
        with pytest.raises(StoreError, match="did not name the coordinator of group unknown"):
            await brokers.find_coordinator("unknown")

    cluster.play(steps)


def test_leaders_are_those_of_the_last_metadata() -> None:
    cluster = Cluster()

    async def steps(brokers: KafkaBrokers) -> None:
        found = await brokers.refresh_topics(["t", "gone"], LONG_S)
        assert found["gone"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert found["t"].topic_id == TOPIC_ID
        leader = brokers.leader("t", 0)
        assert leader is not None
        assert (leader.leader_id, leader.leader_epoch) == (5, 3)
        assert (brokers.leader("t", 1), brokers.leader("gone", 0), brokers.topic("gone")) == (None, None, None)
        cluster.leader = -1
        await brokers.refresh_topics(["t"], LONG_S)
        assert brokers.leader("t", 0) is None
        brokers.forget_topic("t")
        assert brokers.topic("t") is None

    cluster.play(steps)


def test_a_cluster_that_is_not_reached_is_tried_again_with_pauses() -> None:
    async def run() -> None:
        async with StandInBroker({}) as broker:
            port = broker.port
        brokers = KafkaBrokers([("127.0.0.1", port)], KafkaLogin({}), "c", LONG_S)
        began = asyncio.get_running_loop().time()
        for _ in range(3):
            with pytest.raises(ConnectFailed, match=f"127.0.0.1:{port} is not reached"):
                await brokers.refresh_topics([], LONG_S)
        assert asyncio.get_running_loop().time() - began >= 0.8 * (0.05 + 0.1)
        with pytest.raises(ConnectFailed, match="broker 7 is not in the cluster's metadata"):
            await brokers.connection(7, ConnectionLane.QUERIES)
        brokers.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("servers", "found"),
    [
        ("a:1, b:2", [("a", 1), ("b", 2)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("SASL_SSL://broker.example:9094,other", [("broker.example", 9094), ("other", 9092)]),
    ],
)
def test_addresses(servers: str, found: list[tuple[str, int]]) -> None:
    assert addresses(servers) == found


@pytest.mark.parametrize("servers", ["", "a:1,", "a:0", "a:70000", "a:b", "a b:1"])
def test_what_is_no_address_is_refused(servers: str) -> None:
    with pytest.raises(InvalidOption, match="expected host:port"):
        addresses(servers)


# From other threads ---------------------------------------------------------------------------------------------------


def client(**options: str) -> WireClient:
    return WireClient({"bootstrap.servers": "127.0.0.1:1", "client.id": "c", **options})


def test_threads_call_one_loop_that_ends_with_the_client() -> None:
    made = client()

    async def where(_: KafkaBrokers) -> str:
        return threading.current_thread().name

    async def refused(_: KafkaBrokers) -> None:
        raise StoreError("refused")

    async def forever(_: KafkaBrokers) -> None:
        await asyncio.Event().wait()

    assert not [each for each in threading.enumerate() if each.name == "pok-kafka"]
    assert made.call(where, patience(), "a test") == "pok-kafka"
    with pytest.raises(StoreError, match="refused"):
        made.call(refused, patience(), "a test")
    with pytest.raises(DeadlineExceeded, match="a test: no response in time"):
        made.call(forever, Deadline.after(0.05), "a test")
    failures: list[Exception] = []

    def wait() -> None:
        try:
            made.call(forever, patience(), "a test")
        except Closed as failure:
            failures.append(failure)

    waiting = threading.Thread(target=wait)
    waiting.start()
    thread = next(each for each in threading.enumerate() if each.name == "pok-kafka")
    made.close(patience())
    waiting.join(60)
    thread.join(60)
    assert [str(each) for each in failures] == ["a test: the client was closed"]
    assert not thread.is_alive()
    made.close(patience())
    with pytest.raises(Closed):
        made.call(where, patience(), "a test")


def test_options_without_counterpart_are_refused_before_a_thread_begins() -> None:
    made = client(**{"security.protocol": "SASL_SSL", "sasl.mechanisms": "GSSAPI"})
    with pytest.raises(NotSupportedYet, match="GSSAPI"):
        made.started()
    assert made._thread is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_refuses_its_parent_s_client() -> None:
    made = client()
    made.started()
    child = os.fork()
    if not child:
        try:
            made.started()
        except AlreadyClosed:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    made.close(patience())
