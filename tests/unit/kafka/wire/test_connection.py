"""One connection: responses in order, whatever the pieces; what is wrong closes it, and every waiting request fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from pulsar_on_kafka.base.errors import ConnectFailed, DeadlineExceeded, NotSupportedYet, StoreError
from pulsar_on_kafka.kafka.wire import connection as module
from pulsar_on_kafka.kafka.wire.connection import BrokerConnection, ConnectionLost
from pulsar_on_kafka.kafka.wire.fields import int32
from pulsar_on_kafka.kafka.wire.group_messages import HeartbeatRequest, JoinGroupRequest
from pulsar_on_kafka.kafka.wire.login import KafkaLogin, connect
from tests.stand_in_broker import EVERY_API_RESPONSE, FINE, Answer, Raw, Received, StandInBroker

HEARTBEAT, JOIN, API_VERSIONS = HeartbeatRequest.API.key, JoinGroupRequest.API.key, 18
BEAT = HeartbeatRequest("group", 3, "member")
LONG_S = 60.0


def play(
    answer: Answer, steps: Callable[[BrokerConnection, StandInBroker], Coroutine[Any, Any, None]]
) -> StandInBroker:
    async def run() -> StandInBroker:
        async with StandInBroker({HEARTBEAT: answer, JOIN: lambda _: None}) as broker:
            connection = await connect("127.0.0.1", broker.port, KafkaLogin({}), "c", LONG_S)
            try:
                await steps(connection, broker)
            finally:
                connection.close()
            return broker

    return asyncio.run(run())


async def failure(response: Awaitable[object]) -> Exception:
    with pytest.raises(StoreError) as found:
        await response
    return found.value


def test_requests_are_pipelined_each_under_its_own_client_id() -> None:
    async def steps(connection: BrokerConnection, broker: StandInBroker) -> None:
        answers = [connection.send(HeartbeatRequest("g", each, "m"), f"client-{each}", LONG_S) for each in range(50)]
        assert connection.in_flight == 50
        assert [(await answer).error_code for answer in answers] == list(range(50))
        assert connection.in_flight == 0

    broker = play(lambda received: int32(0) + received.body[5:7], steps)
    beats = broker.of(HeartbeatRequest.API)
    assert [beat.client_id for beat in beats] == [f"client-{each}" for each in range(50)]


def test_a_response_may_come_in_any_pieces() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        for size in (1, 3, 4, 7, 1000):
            connection = BrokerConnection("a:1", lambda: None)
            connection.connection_made(Silent())
            answers = [connection.send(BEAT, "c", LONG_S) for _ in range(5)]
            data = b"".join(int32(10) + int32(each + 1) + FINE for each in range(5))
            for at in range(0, len(data), size):
                connection.data_received(data[at : at + size])
            assert [(await answer).error_code for answer in answers] == [0] * 5
            connection.close()
        assert loop.is_running()

    asyncio.run(run())


class Silent(asyncio.Transport):
    """Takes everything, and sends it nowhere."""

    def write(self, data: Any) -> None:
        pass

    def abort(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


def wrong_correlation_id(received: Received) -> bytes:
    return Raw(int32(10) + int32(received.correlation_id + 7) + FINE)


class PausedTransport(asyncio.Transport):
    """A transport that only notes whether it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = True

    def write(self, data: Any) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def abort(self) -> None: ...


def test_many_responses_are_read_together_and_few_at_once() -> None:
    async def run() -> None:
        connection, transport = BrokerConnection("broker:9092", lambda: None), PausedTransport()
        connection.connection_made(transport)
        connection.read_interval_s = 0.01
        answers = [connection.send(BEAT, "c", LONG_S) for _ in range(module.MIN_TOGETHER + 1)]
        responses = [int32(4 + len(FINE)) + int32(number) + FINE for number in range(1, len(answers) + 1)]
        connection.data_received(responses[0])
        assert not transport.reads
        while not transport.reads:
            await asyncio.sleep(0.001)
        connection.data_received(responses[1])
        assert transport.reads
        connection.data_received(b"".join(responses[2:]))
        assert [(await answer).error_code for answer in answers] == [0] * len(answers)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda _: FINE[:-1], r"HeartbeatResponse version 3 ends at byte 9, expected 6 more from byte 4"),
        (lambda _: FINE + b"abc", r"HeartbeatResponse version 3 has 3 bytes too many"),
        (wrong_correlation_id, r"correlation id 9, expected 2 of the oldest request, Heartbeat"),
        (lambda _: Raw(b"\x7f\xff\xff\xff"), r"a response of 2147483647 bytes, expected 4 to"),
        (lambda _: Raw(b"\xff\xff\xff\xff"), r"a response of -1 bytes, expected 4 to"),
        (lambda _: Raw(b"HTTP/1.1 400 Bad Request\r\n\r\n"), r"a response of 1213486160 bytes"),
    ],
)
def test_a_malformed_response_closes_the_connection_with_the_reason(answer: Answer, reason: str) -> None:
    async def steps(connection: BrokerConnection, broker: StandInBroker) -> None:
        first = connection.send(BEAT, "c", LONG_S)
        second = connection.send(JoinGroupRequest("g", 6000, 6000, "", ()), "c", LONG_S)
        for name, response in (("Heartbeat", first), ("JoinGroup", second)):
            failed = await failure(response)
            assert isinstance(failed, ConnectionLost)
            assert str(failed).startswith(f"{name}: 127.0.0.1:{broker.port} does not speak Kafka's protocol: ")
            with pytest.raises(ConnectionLost, match=reason):
                raise failed
        assert not connection.is_open
        with pytest.raises(ConnectFailed, match=reason):
            connection.send(BEAT, "c", LONG_S)

    play(answer, steps)


def test_a_response_that_was_not_requested_closes_the_connection() -> None:
    async def steps(connection: BrokerConnection, _: StandInBroker) -> None:
        await connection.send(BEAT, "c", LONG_S)
        while connection.is_open:
            await asyncio.sleep(0)
        with pytest.raises(ConnectFailed, match="no request waits for one"):
            connection.send(BEAT, "c", LONG_S)

    play(lambda received: Raw((int32(10) + int32(received.correlation_id) + FINE) * 2), steps)


def test_silence_ends_by_the_request_s_own_time_limit() -> None:
    async def steps(connection: BrokerConnection, broker: StandInBroker) -> None:
        patient = connection.send(JoinGroupRequest("g", 6000, 6000, "", ()), "c", LONG_S)
        hasty = connection.send(BEAT, "c", 0.05)
        failed = await failure(hasty)
        assert isinstance(failed, DeadlineExceeded)
        assert str(failed) == f"Heartbeat: 127.0.0.1:{broker.port} did not answer Heartbeat in time"
        assert isinstance(await failure(patient), DeadlineExceeded)

    play(lambda _: None, steps)


def test_a_broker_that_disconnects_leaves_the_outcome_open() -> None:
    async def steps(connection: BrokerConnection, broker: StandInBroker) -> None:
        waiting = connection.send(BEAT, "c", LONG_S)
        while not broker.of(HeartbeatRequest.API):
            await asyncio.sleep(0)
        broker.disconnect()
        assert isinstance(await failure(waiting), ConnectionLost)

    play(lambda _: None, steps)


def test_the_response_of_a_caller_that_left_is_dropped() -> None:
    async def steps(connection: BrokerConnection, _: StandInBroker) -> None:
        connection.send(BEAT, "c", LONG_S).cancel()
        assert (await connection.send(BEAT, "c", LONG_S)).error_code == 0

    play(lambda _: FINE, steps)


def test_requests_in_flight_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_IN_FLIGHT", 3)

    async def steps(connection: BrokerConnection, _: StandInBroker) -> None:
        waiting = [connection.send(BEAT, "c", LONG_S) for _ in range(3)]
        with pytest.raises(StoreError, match="has 3 requests to answer, the maximum of a connection"):
            connection.send(BEAT, "c", LONG_S)
        connection.close()
        for each in waiting:
            assert isinstance(await failure(each), ConnectionLost)

    play(lambda _: None, steps)


# Opening --------------------------------------------------------------------------------------------------------------


def opening(answer: Answer, timeout_s: float = LONG_S) -> Exception:
    async def run() -> Exception:
        async with StandInBroker({API_VERSIONS: answer}) as broker:
            with pytest.raises(Exception) as found:  # noqa: PT011 - the caller looks at it
                await connect("127.0.0.1", broker.port, KafkaLogin({}), "c", timeout_s)
            return found.value

    return asyncio.run(run())


def test_an_old_broker_is_refused_by_name() -> None:
    old = opening(lambda _: EVERY_API_RESPONSE.replace(b"\0\x0b\0\0\0\x63", b"\0\x0b\0\0\0\x04"))
    assert isinstance(old, NotSupportedYet)
    assert "knows JoinGroup in versions 0 to 4, expected version 5: that of Kafka 3.7 or later" in str(old)


def test_a_broker_without_this_version_of_api_versions_is_refused() -> None:
    ancient = opening(lambda _: b"\0\x23" + int32(1) + b"\0\x12\0\0\0\2")
    assert isinstance(ancient, NotSupportedYet)


def test_a_broker_that_is_silent_or_absent_is_not_waited_for() -> None:
    assert isinstance(opening(lambda _: None, 0.05), DeadlineExceeded)

    async def nowhere() -> None:
        async with StandInBroker({}) as broker:
            port = broker.port
        with pytest.raises(ConnectFailed, match=f"127.0.0.1:{port} is not reached"):
            await connect("127.0.0.1", port, KafkaLogin({}), "c", LONG_S)

    asyncio.run(nowhere())
