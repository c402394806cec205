"""Topics are deleted and made anew under random histories, while producers send, are closed, give up and are killed.

The registry is the real one. The broker executes what a process sent at any time within an hour, also when the process
is dead or has closed its producer. A Kafka topic's name is used again only if no session was named whose records may
still arrive (`metadata.removals`). No record must ever land in another incarnation than it was sent to.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_on_kafka.base.clock import ClusterClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError, Refused
from pulsar_on_kafka.broker.metadata.producers import registry as registry_module
from pulsar_on_kafka.broker.metadata.producers.admission import AccessMode
from pulsar_on_kafka.broker.metadata.producers.membership import Membership
from pulsar_on_kafka.broker.metadata.producers.registry import ProducerRegistry
from pulsar_on_kafka.broker.metadata.removals import REQUESTS_ARRIVE_WITHIN_MS
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from tests.memory_log import MemoryStateLog
from tests.seeds import first_of
from tests.simulation.broker import Request, SimulatedBroker
from tests.simulation.turns import NEVER, ManualClock

NAME = TopicName.parse("orders")


class Sender:
    """One producer of a process, on a connection of its own."""

    def __init__(self, process: Process, incarnation: int, kafka_topic: str) -> None:
        self._history = process.history
        self._incarnation, self._kafka_topic = incarnation, kafka_topic
        self._connection = process.history.broker.connect()
        self._sent: list[Request[None]] = []
        self._thrown_out = False
        topic = Topic(NAME, kafka_topic, "id", 1, False, LedgerLayout(incarnation))
        name = process.history.rng.choice([None, f"of {process.name}"])
        self.membership: Membership = process.registry.join(topic, name, AccessMode.SHARED, NEVER)
        self.membership.when_thrown_out(self._stop)

    def send(self) -> None:
        if self._thrown_out:
            return
        self._sent.append(self._connection.send(self._history.produce(self._incarnation, self._kafka_topic)))

    def unanswered(self) -> int:
        """After some time, which may not be enough."""
        while self._history.rng.random() < 0.7 and any(not request.executed for request in self._sent):
            self._connection.execute_next()
        return sum(not request.executed for request in self._sent)

    def close(self) -> None:
        self.membership.leave(NEVER, unsettled=self.unanswered())

    def _stop(self, reason: Refused, deadline: Deadline) -> int:
        self._thrown_out = True
        return self.unanswered()


class Process:
    def __init__(self, history: History, name: str) -> None:
        self.history, self.name = history, name
        unused: Any = None
        clock = ClusterClock(history.clock)
        clock.observe(history.clock.now_ms())
        self.registry = ProducerRegistry(history.log, clock, unused, unused)
        self.registry._process = name
        keeper: Any = SimpleNamespace(start=lambda: None, wake=lambda: None)
        self.registry._keeper = keeper
        self.senders: list[Sender] = []

    def step(self) -> None:
        rng, history = self.history.rng, self.history
        what = rng.choice("jssssskchhh")
        if what == "j":
            self._join()
        elif what == "s" and self.senders:
            rng.choice(self.senders).send()
        elif what == "c" and self.senders:
            self.senders.pop(rng.randrange(len(self.senders))).close()
        elif what == "k" and rng.random() < 0.3:
            history.kill(self)
        elif what == "h":
            self.keep()

    def _join(self) -> None:
        try:
            self.senders.append(Sender(self, self.history.incarnation, self.history.kafka_topic))
        except LayerError:  # it is being deleted, or the name is taken
            return

    def keep(self) -> None:
        """As the keeper's thread does."""
        self.registry._look(NEVER)
        self.registry._keep_alive(set(self.registry._held))
        self.senders = [sender for sender in self.senders if self._holds(sender)]

    def _holds(self, sender: Sender) -> bool:
        named = self.registry._held.values()
        return any(sender.membership in held for each in named for held in each.values())


class History:
    def __init__(self, seed: int) -> None:
        self.told = f"seed {seed}"
        self.rng = random.Random(seed)
        self.clock = ManualClock()
        self.log = MemoryStateLog(self.clock)
        self.broker = SimulatedBroker(self.rng)
        self.incarnation, self.kafka_topic = 1, "orders"
        self.lives = {"orders": 1}
        """By Kafka's name, whose the topic is now."""
        self.dead: set[str] = set()
        self.processes: list[Process] = []
        self.arrived_late = self.named_anew = self.names_kept = 0
        self._start()
        self._deletes = False

    def _start(self) -> None:
        where = self.rng.choice(["here", "elsewhere"])
        self.processes.append(Process(self, f"{where} {len(self.processes) + len(self.dead)}"))

    def kill(self, process: Process) -> None:
        self.processes.remove(process)
        self.dead.add(process.name)
        self._start()

    def is_dead(self, process: str) -> bool:
        return process in self.dead and process.startswith("here")

    def produce(self, incarnation: int, kafka_topic: str) -> Callable[[], None]:
        until_s = self.clock.seconds + REQUESTS_ARRIVE_WITHIN_MS // 1000

        def lands() -> None:
            if self.clock.seconds < until_s and kafka_topic in self.lives:
                assert self.lives[kafka_topic] == incarnation, f"{self.told}: a record landed in another incarnation"
            elif self.clock.seconds < until_s:
                self.arrived_late += 1

        return lands

    def step(self) -> None:
        self.clock.seconds += self.rng.choice([0, 0, 1, 1, 3, 200 if self.rng.random() < 0.05 else 1])
        self.rng.choice(self.processes).step()
        if self.broker.waiting and self.rng.random() < 0.2:
            self.broker.execute_one()
        if not self._deletes and self.rng.random() < 0.04:
            self.delete_and_make_anew()

    def wait(self, condition: Callable[[], bool], deadline: Deadline) -> bool:
        for _ in range(30):
            if condition():
                return True
            self.step()
            self.clock.seconds += 1
            if self.rng.random() < 0.5:
                for process in self.processes:
                    process.keep()
        return False

    def delete_and_make_anew(self) -> None:
        """By a process that has no producer."""
        self._deletes = True
        senders = Process(self, "admin").registry.end_incarnation(str(NAME), self.incarnation, NEVER)
        del self.lives[self.kafka_topic]
        for _ in range(self.rng.randrange(5)):
            self.step()
        self.incarnation += 1
        if senders:
            self.named_anew += 1
            self.kafka_topic = f"orders-x-{self.incarnation}"
        else:
            self.names_kept += 1
        self.lives[self.kafka_topic] = self.incarnation
        self._deletes = False

    def play(self, monkeypatch: pytest.MonkeyPatch) -> History:
        monkeypatch.setattr(registry_module, "is_dead_process", self.is_dead)
        monkeypatch.setattr(registry_module, "wait_until", self.wait)
        for _ in range(2):
            self._start()
        for _ in range(300):
            self.step()
        return self


@pytest.mark.parametrize("block", first_of(2, range(4)))
def test_no_record_lands_in_another_incarnation(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    played = [History(seed).play(monkeypatch) for seed in range(block * 25, block * 25 + 25)]
    assert sum(history.arrived_late for history in played) > 20
    assert sum(history.named_anew for history in played) > 20
    assert sum(history.names_kept for history in played) > 20
