"""Processes of a fleet on one partition are killed while some messages are poison: every process refuses them, always.

None of them comes to applications more often than the dead letter policy allows, whoever dies, and each ends as a dead
letter; everything else is acknowledged.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

import pulsar_on_kafka as pulsar
from tests.chaos.processes import WorkerProcess
from tests.chaos.stage import Stage, Stand
from tests.chaos.worker import Orders, residue
from tests.waiting import until

MakeStage = Callable[..., Stage]

pytestmark = [pytest.mark.kafka, pytest.mark.kills]

FLEET = 6
MAX_REDELIVERIES = 3


def kill_and_replace(stand: Stand, chance: Random, deaths: int, *, closes: bool, **orders: object) -> None:
    """One after the other, each one that has received something."""

    def at_work() -> list[WorkerProcess]:
        return [each for each in stand.workers if each.alive and each.received()]

    for _ in range(deaths):
        until(at_work, "somebody has received something")
        worker = chance.choice(at_work())
        threading.Event().wait(chance.uniform(0.1, 1.0))
        following = stand.worker(**orders)
        following.try_to_subscribe()
        if closes and chance.random() < 0.3:
            worker.close()
            worker.end()
        else:
            worker.kill()
        following.until(lambda following=following: following.count("s"), "subscribed")  # type: ignore[misc]


def poison_among_deaths(on: Stage, type_: str, seed: int, deaths: int, *, closes: bool = False) -> None:
    dead = f"{on.topic}-dead"
    orders = {"dead_letters": (MAX_REDELIVERIES, dead), "nack_delay_ms": 100, "flush_every": 20, "pace_ms": 1.0}
    publisher = on.publish(pace_ms=8, keys=100)
    stand = on.subscription(type_)
    stand.join_many(FLEET, **orders)
    graves = on.client.subscribe(dead, "graves", initial_position=pulsar.InitialPosition.Earliest)
    kill_and_replace(stand, Random(seed), deaths, closes=closes, **orders)
    publisher.stop()
    sent = on.sent()
    poison = {position: value for position, value in sent.items() if residue(*position) not in Orders.residues}
    stand.until_durable(sent.keys() - poison.keys())
    buried: set[bytes] = set()

    def all_buried() -> bool:
        try:
            while True:
                buried.add(graves.receive(timeout_millis=20).data())
        except pulsar.Timeout:
            return buried.issuperset(poison.values())

    until(all_buried, lambda: f"{set(poison.values()) - buried} are buried")
    assert buried == set(poison.values())
    times = Counter(receipt.position for worker in stand.workers for receipt in worker.look().receipts)
    more = {position: count for position, count in times.items() if count > MAX_REDELIVERIES + 1}
    assert not (more.keys() & poison.keys()), f"of {len(poison)} poison messages too often: {more}"
    assert not more, f"others came too often: {more}"


def test_poison_comes_as_often_as_the_policy_says_whoever_dies(stage: MakeStage) -> None:
    poison_among_deaths(stage(1), "Shared", seed=1, deaths=4)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("type_", ["Shared", "KeyShared"])
def test_the_same_for_longer(stage: MakeStage, type_: str, seed: int) -> None:
    poison_among_deaths(stage(1), type_, seed, deaths=20, closes=True)
