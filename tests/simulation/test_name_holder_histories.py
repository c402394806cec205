"""One producer name under random histories of processes that pause and machines that sleep.

The registry is the real one. A process may pause before each of its appends, and before it has the broker's answer; a
machine that sleeps has a monotonic clock that stands still. A process that gives receipts without a look at Kafka
(`Membership.is_sure`) must have a claim that stands: the next holder makes everything void that the former one stored
since.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_on_kafka.base.clock import ClusterClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.broker.metadata.producers import registry as registry_module
from pulsar_on_kafka.broker.metadata.producers.admission import AccessMode
from pulsar_on_kafka.broker.metadata.producers.membership import Membership
from pulsar_on_kafka.broker.metadata.producers.registry import ProducerRegistry
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.state_topics import StateTopic
from tests.memory_log import MemoryStateLog
from tests.seeds import first_of
from tests.simulation.turns import NEVER

TOPIC = Topic(TopicName.parse("orders"), "orders", "id", 1, False, LedgerLayout(7))
PLACE = str(TOPIC.name)


class Brokers:
    """The brokers' clock."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def monotonic(self) -> float:
        return self.seconds

    def now_ms(self) -> int:
        return int(self.seconds * 1000)


class Machine:
    """A machine whose wall clock is an hour behind the brokers', and whose monotonic clock stood still at times."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self.slept_s = 0.0

    def monotonic(self) -> float:
        return self._brokers.seconds - self.slept_s

    def now_ms(self) -> int:
        return self._brokers.now_ms() - 3_600_000


class ProcessLog(MemoryStateLog):
    """The log that all processes share, as one process sees it."""

    def __init__(self, process: Process, shared: MemoryStateLog) -> None:
        super().__init__(process.history.brokers)
        self._process = process
        self._partitions, self._lock = shared._partitions, shared._lock
        self.appends = 0

    def append_many(
        self, topic: StateTopic, partition: int, records: Sequence[tuple[bytes, bytes | None]], deadline: Deadline
    ) -> list[int]:
        self.appends += 1
        self._process.pause()
        offsets = super().append_many(topic, partition, records, deadline)
        stamped_ms = self._process.history.brokers.now_ms()
        self._process.pause()
        self._process.clock.observe(stamped_ms)
        return offsets


class Process:
    """A process on a machine of its own that wants the name."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.machine = Machine(history.brokers)
        self.clock = ClusterClock(self.machine, lambda: self.registry.touch(NEVER))
        self.log = ProcessLog(self, history.log)
        unused: Any = None
        self.registry = ProducerRegistry(self.log, self.clock, unused, unused)
        self.registry._keeper = SimpleNamespace(start=lambda: None, wake=lambda: None)  # type: ignore[assignment]
        self.membership: Membership | None = None
        self.active = False

    def pause(self) -> None:
        """For any time, in which the others go on; the machine may sleep meanwhile."""
        rng, history = self.history.rng, self.history
        if rng.random() < 0.1:
            seconds = rng.randrange(25)
            sleeps = rng.random() < 0.5
            for _ in range(seconds):
                history.brokers.seconds += 1.0
                self.machine.slept_s += sleeps
                history.step_of_another()
        history.check()

    def step(self) -> None:
        if self.membership is None:
            self.join()
        else:
            self.keep()
            if self.membership is not None and self.history.rng.random() < 0.05:
                left, self.membership = self.membership, None
                left.leave(NEVER)

    def join(self) -> None:
        try:
            joined = self.registry.join(TOPIC, "p", AccessMode.SHARED, NEVER, own_epoch=True)
        except LayerError:  # the name is taken
            return
        self.membership = joined
        self.history.holders += 1

    def keep(self) -> None:
        """As the keeper's thread does."""
        self.registry._look(NEVER)
        self.registry._keep_alive(set(self.registry._held))
        if PLACE not in self.registry._held:
            self.membership = None
            self.history.thrown_out += 1


class History:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.brokers = Brokers()
        self.log = MemoryStateLog(self.brokers)
        unused: Any = None
        self.observer = ProducerRegistry(self.log, ClusterClock(self.brokers), unused, unused)
        self.processes = [Process(self) for _ in range(3)]
        self.holders = self.thrown_out = self.sure = 0

    def step_of_another(self) -> None:
        idle = [process for process in self.processes if not process.active]
        if idle and self.rng.random() < 0.7:
            process = self.rng.choice(idle)
            process.active = True
            process.step()
            process.active = False

    def check(self) -> None:
        for process in self.processes:
            if process.membership is not None and process.membership.is_sure():
                self.sure += 1
                standing = process.membership.stands(self.observer.claims_of(PLACE, NEVER))
                assert standing, f"seed {self.seed}: a process is sure of a name that another one holds"

    def play(self) -> History:
        for _ in range(60):
            self.brokers.seconds += 1.0
            self.step_of_another()
            self.check()
        return self


@pytest.mark.parametrize("block", first_of(1, range(4)))
def test_no_process_is_sure_of_a_name_that_another_one_holds(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "is_dead_process", lambda process: False)
    monkeypatch.setattr(registry_module, "_HEARTBEAT_EVERY_S", 1e6)  # only the simulated time passes
    played = [History(seed).play() for seed in range(block * 10, block * 10 + 10)]
    assert sum(history.holders for history in played) > 20
    assert sum(history.thrown_out for history in played) > 3
    assert sum(history.sure for history in played) > 300


def test_whether_a_name_is_held_for_sure_sends_no_request() -> None:
    history = History(0)
    process = history.processes[0]
    history.rng.random = lambda: 1.0  # type: ignore[method-assign]
    process.join()
    assert process.membership is not None
    assert process.membership.is_sure()
    history.brokers.seconds += 9.0
    assert process.membership.is_sure()
    appends = process.log.appends
    process.machine.slept_s += 60.0
    history.brokers.seconds += 60.0
    assert not process.membership.is_sure()
    process.membership.confirm(NEVER)
    assert process.log.appends == appends, "a thread that serves reports waits for its own report"
