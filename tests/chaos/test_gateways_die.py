"""One of two gateways is killed, stands still, is stopped or cut off from Kafka while official clients produce, consume
and transact by it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pulsar_on_kafka.embedded import BrokerOptions, EmbeddedBroker
from pulsar_on_kafka.embedded.settings import free_port
from tests.brokers import available
from tests.builds import Missing as NoCompiler
from tests.chaos.gateways.fleet import Fleet, Loads
from tests.chaos.gateways.java_load import SOURCE, java_loads
from tests.chaos.gateways.python_load import python_loads, somebody_else_consumes
from tests.integration.gateway.languages import java_program
from tests.steps import Missing, Unique
from tests.tcp_way import TcpWay
from tests.waiting import until

pytestmark = pytest.mark.kafka


@pytest.fixture(params=["python", "java"])
def loads(request: pytest.FixtureRequest) -> Loads:
    if request.param == "python":
        return python_loads
    return with_java()


def with_java() -> Loads:
    try:
        java_program(SOURCE)
    except NoCompiler as missing:
        pytest.skip(str(missing))
    return java_loads


Begin = Callable[..., Fleet]


@pytest.fixture
def begin(service_url: str, tmp_path: Path, unique: Unique) -> Iterator[Begin]:
    with ExitStack() as stack:

        def make(loads: Loads, *, apart: bool = False) -> Fleet:
            made = Fleet(service_url, tmp_path, unique, loads, apart=apart)
            stack.callback(made.close)
            return made

        yield make


@pytest.mark.parametrize("apart", [False, True], ids=["same machine", "apart"])
def test_the_clients_of_a_killed_gateway_go_on_with_the_other(begin: Begin, loads: Loads, apart: bool) -> None:
    fleet = begin(loads, apart=apart)
    doomed, other = fleet.gateways
    at = fleet.strike(doomed, signal.SIGKILL)
    fleet.work(200, at)
    assert set(fleet.owners().values()) == {other.address}
    fleet.judge(f"killed, apart={apart}", at)


def test_a_gateway_that_stands_still_is_followed_and_sends_its_clients_there(begin: Begin) -> None:
    fleet = begin(python_loads)
    doomed, other = fleet.gateways
    at = fleet.strike(doomed, signal.SIGSTOP)
    until(lambda: set(fleet.owners().values()) == {other.address}, "the other one to have everything")
    took_s = time.monotonic() - at
    somebody_else_consumes(fleet.loads[0].topic, other)
    doomed.send(signal.SIGCONT)
    fleet.work(200, time.monotonic())
    fleet.judge(f"stood still, followed after {took_s:.1f} s", at)


def test_a_gateway_that_is_stopped_hands_over(begin: Begin, loads: Loads) -> None:
    fleet = begin(loads)
    doomed, other = fleet.gateways
    at = fleet.strike(doomed, signal.SIGTERM)
    assert doomed.wait() == 0
    fleet.work(200, time.monotonic())
    assert set(fleet.owners().values()) == {other.address}
    fleet.judge("stopped", at)


def two_ways(direct: int, by_way: int, way: int) -> BrokerOptions:
    """A broker with a listener at `by_way` besides, whose clients are told to go by the port `way`."""
    controller, here = free_port(), "127.0.0.1"
    return BrokerOptions(
        port=direct,
        extra={
            "listeners": f"PLAINTEXT://{here}:{direct},WAY://{here}:{by_way},CONTROLLER://{here}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{here}:{direct},WAY://{here}:{way}",
            "controller.quorum.voters": f"1@{here}:{controller}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,WAY:PLAINTEXT",
        },
    )


def test_a_gateway_that_is_cut_off_from_kafka_sends_its_clients_away(
    missing: Missing, tmp_path: Path, unique: Unique
) -> None:
    direct, by_way = free_port(), free_port()
    way = TcpWay(by_way)
    with ExitStack() as stack:
        stack.callback(way.close)
        stack.enter_context(available(missing, EmbeddedBroker(two_ways(direct, by_way, way.port))))
        url, by_the_way = (f"kafka://127.0.0.1:{port}" for port in (direct, way.port))
        fleet = Fleet(url, tmp_path, unique, python_loads, first_url=by_the_way)
        stack.callback(fleet.close)
        doomed, other = fleet.gateways
        way.cut()
        fleet.faults += 1
        at = time.monotonic()
        fleet.work(200, at)
        assert set(fleet.owners().values()) == {other.address}
        way.mend()
        until(lambda: doomed.address in fleet.owners().values(), "it to be a member again")
        fleet.judge("cut off", at)
