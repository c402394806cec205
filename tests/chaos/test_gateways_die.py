"""One of two gateways is killed, stands still or is stopped while official clients produce, consume and transact."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.chaos.gateways.fleet import Fleet, Loads
from tests.chaos.gateways.python_load import somebody_else_consumes
from tests.steps import Unique
from tests.waiting import until

pytestmark = pytest.mark.kafka

Begin = Callable[..., Fleet]


@pytest.fixture
def begin(service_url: str, tmp_path: Path, unique: Unique) -> Iterator[Begin]:
    with ExitStack() as stack:

        def make(loads: Loads, *, apart: bool = False) -> Fleet:
            made = Fleet(service_url, tmp_path, unique, loads, apart=apart)
            stack.callback(made.close)
            return made

        yield make


@pytest.mark.parametrize(
    ("loads", "apart"),
    [
        pytest.param("python", False, id="python-same machine"),
        pytest.param("python", True, id="python-apart"),
        pytest.param("java", False, id="java-same machine"),
        pytest.param("java", True, id="java-apart", marks=pytest.mark.soak),
    ],
    indirect=["loads"],
)
def test_the_clients_of_a_killed_gateway_go_on_with_the_other(begin: Begin, loads: Loads, apart: bool) -> None:
    fleet = begin(loads, apart=apart)
    doomed, other = fleet.gateways
    at = fleet.strike(doomed, signal.SIGKILL)
    fleet.work(200, at)
    assert set(fleet.owners().values()) == {other.address}
    fleet.judge(f"killed, apart={apart}", at)


def test_a_gateway_that_stands_still_is_followed_and_sends_its_clients_there(begin: Begin, loads: Loads) -> None:
    fleet = begin(loads)
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
