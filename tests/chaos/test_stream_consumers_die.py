"""Consumers of Pulsar 5 share a topic by two gateways. Consumers come, leave and are killed, and so are gateways."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pulsar_on_kafka.gateway.fleet.bundles import bundle_of
from tests.builds import Missing
from tests.chaos.gateways.fleet import Fleet
from tests.chaos.gateways.stream_load import StreamLoad, v5_program
from tests.steps import Unique
from tests.waiting import until

pytestmark = pytest.mark.kafka

GRACE_S = 5
SEED = 5
ROUNDS = 20
MIN_CONSUMERS, MAX_CONSUMERS = 2, 5
GATEWAYS = "controller", "other"
Begin = Callable[..., tuple[Fleet, StreamLoad]]


@pytest.fixture
def begin(service_url: str, tmp_path: Path, unique: Unique) -> Iterator[Begin]:
    """`begin(consumers)`: two gateways, the first of which is the controller, and that many consumers at work."""
    try:
        v5_program()
    except Missing as missing:
        pytest.skip(str(missing))
    with ExitStack() as stack:

        def make(consumers: int, **more: Any) -> tuple[Fleet, StreamLoad]:
            options = "--session-grace", str(GRACE_S)

            def loads(fleet: Fleet) -> list[StreamLoad]:
                return [StreamLoad(fleet, consumers)]

            fleet = Fleet(service_url, tmp_path, unique, loads, options=options, **more)
            stack.callback(fleet.close)
            (load,) = fleet.loads
            assert isinstance(load, StreamLoad)
            return fleet, load

        yield make


def settled(load: StreamLoad) -> dict[str, set[str]]:
    """The one consumer of each key, once it has been so for a second."""
    began = time.monotonic()

    def is_so() -> bool:
        nonlocal began
        if load.shared(began):
            return time.monotonic() - began > 1
        if time.monotonic() - began > 4:
            began = time.monotonic()
        return False

    until(is_so, lambda: f"each key to have one consumer: {load.owners(began)} of {load.latest()}")
    return load.owners(began)


def test_consumers_keep_their_partitions_when_the_controller_is_killed(begin: Begin) -> None:
    fleet, load = begin(2, old_claims=False)
    before = settled(load)
    at = fleet.strike(fleet.gateways[0], signal.SIGKILL)
    fleet.work(200, at)
    assert settled(load) == before
    joins = load.join()

    def has_partitions() -> bool:
        joins.check()
        return bool(joins.events["got"])

    until(has_partitions, lambda: f"the next controller to assign partitions to one more: {load.latest()}")
    fleet.judge("the controller killed", at)


@pytest.mark.soak
def test_whatever_becomes_of_consumers_and_gateways(begin: Begin) -> None:
    fleet, load = begin(3)
    chosen = random.Random(SEED)
    began = time.monotonic()
    for number in range(ROUNDS):
        few, many = len(load.consumers) < MIN_CONSUMERS, len(load.consumers) >= MAX_CONSUMERS
        of_consumers = [*([] if many else ["join"]), *([] if few else ["leave", "kill"])]
        kind, consumer = chosen.choice(chosen.choice([GATEWAYS, of_consumers])), chosen.choice(load.consumers)
        at = time.monotonic()
        match kind:
            case "join":
                load.join()
            case "leave":
                load.leave(consumer)
            case "kill":
                load.kill(consumer)
            case _:
                controls = until(lambda: fleet.owners().get(bundle_of(load.topic)), "the topic to have a controller")
                (dead,) = (each for each in fleet.gateways if (each.address == controls) == (kind == "controller"))
                fleet.strike(dead, signal.SIGKILL)
                dead.wait()
                fleet.work(200, at)
                fleet.replace(dead)
        settled(load)
        print(f"{number}: {kind}, {len(load.consumers)} consumers, settled after {time.monotonic() - at:.1f} s")
    fleet.judge(f"seed {SEED}, {ROUNDS} rounds", began)
