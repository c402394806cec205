"""One of two gateways is cut off from Kafka while official clients produce, consume and transact by it.

In the soak each of them is killed, stopped or stands still, too, one after the other, for POK_CHAOS_SECONDS (600), as
POK_CHAOS_SEED says.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from pulsar_on_kafka.embedded import BrokerOptions, EmbeddedBroker
from pulsar_on_kafka.embedded.settings import free_port
from tests.brokers import available
from tests.chaos.gateways.fleet import Fleet, Loads
from tests.chaos.gateways.java_load import with_java
from tests.steps import Missing, Unique
from tests.tcp_way import TcpWay
from tests.waiting import until

pytestmark = pytest.mark.kafka

_FAULT_S: Final = (0.5, 20.0)
"""How long a gateway stands still, or is cut off: shorter and longer than a session of Kafka's."""

Fleets = Callable[[Loads], Fleet]


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


@pytest.fixture
def way(missing: Missing, tmp_path: Path, unique: Unique) -> Iterator[tuple[TcpWay, Fleets]]:
    """A way to a broker of the test's own, and what makes a fleet whose first gateway gets there by it."""
    direct, by_way = free_port(), free_port()
    with ExitStack() as stack:
        made = TcpWay(by_way)
        stack.callback(made.close)
        stack.enter_context(available(missing, EmbeddedBroker(two_ways(direct, by_way, made.port))))

        def make(loads: Loads) -> Fleet:
            url, by_the_way = (f"kafka://127.0.0.1:{port}" for port in (direct, made.port))
            fleet = Fleet(url, tmp_path, unique, loads, first_url=by_the_way)
            stack.callback(fleet.close)
            return fleet

        yield made, make


def test_a_gateway_that_is_cut_off_from_kafka_sends_its_clients_away(way: tuple[TcpWay, Fleets], loads: Loads) -> None:
    to_kafka, fleets = way
    fleet = fleets(loads)
    doomed, other = fleet.gateways
    at = fleet.cut(to_kafka)
    fleet.work(200, at)
    assert set(fleet.owners().values()) == {other.address}
    to_kafka.mend()
    until(lambda: doomed.address in fleet.owners().values(), "it to be a member again")
    fleet.judge("cut off", at)


@pytest.mark.soak
def test_gateways_fail_one_after_the_other_under_java(way: tuple[TcpWay, Fleets]) -> None:
    seed = int(os.environ.get("POK_CHAOS_SEED", "0")) or secrets.randbits(32)
    print(f"\nround: POK_CHAOS_SEED={seed}", flush=True)
    dice = random.Random(seed)
    to_kafka, fleets = way
    fleet = fleets(with_java())
    began = time.monotonic()
    ends = began + float(os.environ.get("POK_CHAOS_SECONDS", "600"))
    faults = Counter[str]()
    while time.monotonic() < ends:
        what = dice.choice(["killed", "stopped", "stood still", "cut off"])
        faults[what] += 1
        number, over = dice.randrange(2), time.monotonic() + dice.uniform(*_FAULT_S)
        doomed = fleet.gateways[number]
        if what == "cut off":
            fleet.cut(to_kafka)
            until(partial(_is_past, over), "the fault to be over")
            to_kafka.mend()
        elif what == "stood still":
            fleet.strike(doomed, signal.SIGSTOP)
            until(partial(_is_past, over), "the fault to be over")
            doomed.send(signal.SIGCONT)
        else:
            fleet.strike(doomed, signal.SIGKILL if what == "killed" else signal.SIGTERM)
            doomed.wait()
            if dice.random() < 0.5:  # else its successor is there before anybody has noticed
                fleet.work(100, time.monotonic())
            fleet.replace(doomed)
        until(lambda: len(set(fleet.owners().values())) == 2, "both to have a share")
        fleet.work(100, time.monotonic())
        print(f"    so far: {dict(faults)} in {time.monotonic() - began:.0f} s", flush=True)
    fleet.judge(f"{dict(faults)} in {time.monotonic() - began:.0f} s", began)


def _is_past(at: float) -> bool:
    return time.monotonic() > at
