"""Two and three gateways that share bundles out, under random histories: they die, stand still and wake again, are cut
off from Kafka, are stopped and begun, while clients look up, connect, produce, subscribe and acknowledge. The real
`Bundles` decide whom a gateway serves and where it sends whom (`gateways.py` has the world around them).

Nothing is lost, an Exclusive subscription has one consumer at a time, lookups end, and when faults end everybody is
with the gateway that Kafka's group names. `make soak` plays 20,000.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.simulation.gateways import Gateway, World

FAULTS_S = 60.0
QUIET_S = 60.0
"""A client that heard nothing goes elsewhere after 45 s, and looks again after 6 s at most."""


class History:
    def __init__(self, seed: int) -> None:
        self.told = f"seed {seed}"
        self.rng = random.Random(seed)
        self.gateways = self.rng.choice([2, 2, 3])
        self.world = World(self.rng, topics=3)
        self.faults: Counter[str] = Counter()
        self._sent = 0

    def run(self) -> Counter[str]:
        world, rng = self.world, self.rng
        for _ in range(self.gateways):
            world.begin_gateway()
        while world.now_s < FAULTS_S:
            if rng.random() < 0.02:
                self._strike()
            self._send()
            world.tick()
        for gateway in world.living():
            gateway.stopped_until = min(gateway.stopped_until, world.now_s)
            gateway.cut_until = min(gateway.cut_until, world.now_s)
        while len([gateway for gateway in world.living() if not gateway.stopping]) < 2:
            self._begin()
        end_s = world.now_s + QUIET_S
        while world.now_s < end_s:
            world.tick()
        self._judge()
        self.faults["moved"] = world.moved
        return self.faults

    def _send(self) -> None:
        client = self.rng.choice(self.world.clients)
        if client.produces and self.rng.random() < 0.3:
            self._sent += 1
            client.send(f"m{self._sent}")

    def _strike(self) -> None:
        world, rng = self.world, self.rng
        living = [gateway for gateway in world.living() if not gateway.stopping]
        what = rng.choice(["killed", "stood still", "cut off", "stopped", "begun", "client died"])
        if what == "begun" or not living:
            if len(living) >= 3:
                return
            self._begin()
        elif what == "client died":
            client = rng.choice(world.clients)
            if client.connection is not None:
                client.connection.end()
        else:
            self._strike_gateway(what, rng.choice(living))
        self.faults[what] += 1

    def _strike_gateway(self, what: str, gateway: Gateway) -> None:
        until_s = self.world.now_s + self.rng.choice([1.0, 5.0, 8.0, 12.0, 30.0]) * self.rng.random()
        if what == "killed":
            gateway.kill()
        elif what == "stood still":
            gateway.stopped_until = until_s
        elif what == "cut off":
            gateway.cut(until_s)
        else:
            gateway.stop()

    def _begin(self) -> None:
        """At a new address, or at that of one that died, whose membership may be there still."""
        living = {gateway.url for gateway in self.world.living()}
        free = [gateway.url for gateway in self.world.gateways if gateway.url not in living]
        self.world.begin_gateway(self.rng.choice([*free, ""]))

    def _judge(self) -> None:
        world = self.world
        owners = world.fleet.owners()
        log = {text for topic in world.topics for text in topic.log}
        assert not any(client.pending for client in world.clients if client.produces), f"{self.told}: no receipt"
        assert len(log) == self._sent, f"{self.told}: {self._sent} were sent, {len(log)} stored"
        for topic in world.topics:
            missing = set(range(len(topic.log))) - topic.committed
            assert not missing, f"{self.told}: of {topic.name} {missing} were not consumed"
            there = [client for client in world.clients if client.topic is topic and client.state == "open"]
            assert Counter(client.produces for client in there) == {True: 1, False: 1}, f"{self.told}: {topic.name}"
            for client in there:
                assert client.connection is not None
                assert client.connection.gateway.url == owners[topic.bundle], f"{self.told}: {topic.name} is elsewhere"
        for gateway in world.living():
            assert gateway.bundles.settled, f"{self.told}: {gateway.name} asks Kafka for ever"
            owed = [each for each in gateway.waiting if world.now_s - each.since_s > 1]
            assert not owed, f"{self.told}: {gateway.name} owes answers"


def _play(seeds: range) -> Counter[str]:
    total: Counter[str] = Counter()
    for seed in seeds:
        try:
            total += History(seed).run()
        except AssertionError as failure:
            raise AssertionError(f"seed {seed}: {failure}") from failure
    return total


def test_gateways_hand_over_and_lose_nothing() -> None:
    seen = _play(range(50))
    assert min(seen[what] for what in ("killed", "stood still", "cut off", "stopped", "begun", "client died")) > 25, (
        seen
    )
    assert seen["moved"] > 50, seen


@pytest.mark.long
def test_in_hundreds_of_histories_nothing_is_lost() -> None:
    _play(range(50, 450))


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_in_many_thousand_histories_nothing_is_lost() -> None:
    _play(range(450, 20_000))
