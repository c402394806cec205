"""Connections for requests that wait at the broker: one request on each, and requests that give way to others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import ConnectFailed, LayerError
from pulsar_on_kafka.kafka.wire import wait_connections as module
from pulsar_on_kafka.kafka.wire.connection import BrokerConnection
from pulsar_on_kafka.kafka.wire.error_codes import ErrorCode
from pulsar_on_kafka.kafka.wire.fields import int16, int32
from pulsar_on_kafka.kafka.wire.group_messages import JoinGroupRequest, JoinGroupResponse
from pulsar_on_kafka.kafka.wire.login import KafkaLogin, connect
from pulsar_on_kafka.kafka.wire.wait_connections import WaitConnections
from tests.stand_in_broker import Answer, StandInBroker

LONG_S = 60.0
NO_MEMBER = int32(0) + int16(ErrorCode.UNKNOWN_MEMBER_ID) + int32(-1) + bytes(6) + int32(0)


class Join:
    """A JoinGroup and what happened to it."""

    def __init__(self, member_id: str = "m", *, is_needed: bool = True) -> None:
        self.names_member = bool(member_id)
        self.response: asyncio.Future[JoinGroupResponse] | None = None
        self.was_alone = False
        self.gave_way = False
        self.failure: LayerError | None = None
        self._request = JoinGroupRequest("g", 6000, 6000, member_id, ())
        self._is_needed = is_needed

    def send(self, connection: BrokerConnection) -> asyncio.Future[Any] | None:
        self.was_alone = connection.in_flight == 0
        if self._is_needed:
            self.response = connection.send(self._request, "c", LONG_S)
        return self.response

    def postponed(self) -> None:
        self.gave_way = True

    def not_sent(self, failure: LayerError) -> None:
        self.failure = failure

    @property
    def is_answered(self) -> bool:
        return self.response is not None and self.response.done() and self.response.exception() is None


async def until(condition: Callable[[], bool]) -> None:
    deadline = Deadline.after(LONG_S)
    while not condition():
        assert deadline.remaining_s() > 0
        await asyncio.sleep(0.005)


def play(answer: Answer, steps: Callable[[WaitConnections, StandInBroker], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with StandInBroker({JoinGroupRequest.API.key: answer}) as broker:
            connections = WaitConnections(lambda: connect("127.0.0.1", broker.port, KafkaLogin({}), "c", LONG_S))
            try:
                await steps(connections, broker)
            finally:
                connections.close()

    asyncio.run(run())


def test_a_request_has_a_connection_alone_and_others_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECTIONS_STEP", 3)
    monkeypatch.setattr(module, "MAX_WAIT_CONNECTIONS", 3)  # on a busy machine the queue is looked at before an answer
    monkeypatch.setattr(module, "LOOK_S", 0.02)

    async def steps(connections: WaitConnections, broker: StandInBroker) -> None:
        joins = [Join() for _ in range(20)]
        for each in joins:
            connections.send(each)
        await until(lambda: all(each.is_answered and each.was_alone for each in joins))
        assert broker.connections == 3
        monkeypatch.setattr(module, "IDLE_S", 0.2)
        await until(lambda: connections.count == 0)

    play(lambda _: NO_MEMBER, steps)


def test_a_request_that_is_not_needed_leaves_its_connection_to_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECTIONS_STEP", 1)

    async def steps(connections: WaitConnections, broker: StandInBroker) -> None:
        needed = Join()
        for each in (Join(is_needed=False), needed):
            connections.send(each)
        await until(lambda: needed.is_answered)
        assert broker.connections == 1

    play(lambda _: NO_MEMBER, steps)


def test_requests_of_known_members_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECTIONS_STEP", 1)

    async def steps(connections: WaitConnections, broker: StandInBroker) -> None:
        joins = [Join(""), Join("first"), Join("second")]
        for each in joins:
            connections.send(each)
        await until(lambda: all(each.is_answered for each in joins))
        first, second, _ = broker.of(JoinGroupRequest.API)
        assert b"first" in first.body
        assert b"second" in second.body

    play(lambda _: NO_MEMBER, steps)


def test_more_connections_while_the_broker_does_not_answer_and_then_the_longest_waiting_give_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "CONNECTIONS_STEP", 2)
    monkeypatch.setattr(module, "MAX_WAIT_CONNECTIONS", 4)
    monkeypatch.setattr(module, "GIVE_WAY_S", 0.1)
    monkeypatch.setattr(module, "LOOK_S", 0.02)

    async def steps(connections: WaitConnections, broker: StandInBroker) -> None:
        unnamed, waiting = Join(""), [Join() for _ in range(3)]
        for each in (unnamed, *waiting):
            connections.send(each)
        await until(lambda: connections.count == 4)
        await asyncio.sleep(0.3)
        assert not any(each.gave_way for each in waiting), "no request queues"
        others = [Join() for _ in range(2)]
        for each in others:
            connections.send(each)
        await until(lambda: all(each.response is not None for each in others))
        assert [each.gave_way for each in (unnamed, *waiting)] == [False, True, True, False]
        assert connections.count <= 4

    play(lambda _: None, steps)


def test_all_that_queue_are_refused_when_the_broker_is_not_reached() -> None:
    async def run() -> None:
        async def refuse() -> BrokerConnection:
            raise ConnectFailed("not reached")

        connections = WaitConnections(refuse)
        joins = [Join() for _ in range(3)]
        for each in joins:
            connections.send(each)
        await until(lambda: all(isinstance(each.failure, ConnectFailed) for each in joins))
        connections.close()
        late = Join()
        connections.send(late)
        await until(lambda: "closed" in str(late.failure))

    asyncio.run(run())
