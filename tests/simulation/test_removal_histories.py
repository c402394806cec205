"""Dead entities are removed while others begin them anew: the real `CompareAndSet` against random histories.

Whoever reads, proposes, is stopped or waits for an append that comes late does so for less than `KEPT_S`, after which
what is dead is removed; everything else may happen at any time. Whatever becomes of an entity follows what was there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import StoreError
from pulsar_on_kafka.statelog.compare_and_set import CompareAndSet, Versioned, VersionedEntities
from pulsar_on_kafka.statelog.view import LogView
from pulsar_on_kafka_mapping.state.state_topics import StateTopic
from tests.memory_log import MemoryStateLog
from tests.seeds import in_three
from tests.simulation.broker import Answer, Request, SimulatedBroker
from tests.simulation.history import ActorsHistory
from tests.simulation.test_compare_and_set_histories import Keys
from tests.simulation.turns import NEVER, Actor, ActorsLog, kafka_cleans, simulated_topic

ENTITIES: Final = ("orders", "orders", "orders", "audit", "bills", "carts", "mails")
DEAD: Final = b"dead"
KEPT_S: Final = 100


class _ForgetfulBroker(SimulatedBroker):
    """A broker that drops appends that are too old."""

    def __init__(self, history: RemovalHistory) -> None:
        super().__init__(history.rng)
        self._history = history

    def send(self, execute: Callable[[], Answer]) -> Request[Answer | None]:
        asked = self._history.clock.seconds

        def in_time() -> Answer | None:
            return execute() if self._history.clock.seconds - asked < KEPT_S / 3 else None

        return super().send(in_time)


class _Watched(MemoryStateLog):
    """Tells of every append as soon as it is in the log."""

    def __init__(self, history: RemovalHistory) -> None:
        super().__init__(history.clock)
        self._history = history

    def append_many(
        self, topic: StateTopic, partition: int, records: Sequence[tuple[bytes, bytes | None]], deadline: Deadline
    ) -> list[int]:
        offsets = super().append_many(topic, partition, records, deadline)
        self._history.follows_what_was_there()
        return offsets


class RemovalHistory(ActorsHistory):
    def __init__(self, seed: int, steps: int = 1200) -> None:
        super().__init__(seed, steps)
        self.log = _Watched(self)
        self.broker = _ForgetfulBroker(self)
        self.topic = simulated_topic(with_lag=True)
        self.attempts = 0
        self.removed = 0
        self.begun_again = 0
        self.follows: dict[str, str | None] = {}
        """By attempt: which attempt was the state when it was proposed; None where there was none."""
        self.won: dict[str, dict[int, str]] = {}
        self.reader = self._view()
        self.far_behind = self._view()
        self.removed_last: dict[str, str] = {}
        self.truth: dict[str, Versioned] = {}

    def _view(self) -> LogView[VersionedEntities[str]]:
        return LogView(self.log, self.topic, 0, lambda: VersionedEntities(Keys()), self.clock)

    def run(self) -> tuple[int, int]:
        """How often something was removed, and begun again after that; raises AssertionError with the seed."""
        self.begin(*[self._proposer] * 4, *[self._dead_letterer] * 2, then=self._proposer)
        self.play()
        return self.removed, self.begun_again

    def step(self, draw: float) -> None:
        if draw < 0.8:
            self.schedule.step_one_of(self.actors)
        elif draw < 0.95:
            kafka_cleans(self.log, self.topic, self.clock, self.rng)
        elif draw < 0.98 and self.broker.waiting:
            self.broker.execute_one()
        elif draw > 0.997 and len(self.actors) > 0:
            self._die()
        self._readers_agree()

    def _die(self) -> None:
        place = self.rng.randrange(len(self.actors))
        self.actors[place].end()
        self.actors[place] = Actor(self._dead_letterer if place >= 4 else self._proposer)

    # What processes do --------------------------------------------------------------------------------------------

    def _store(self, actor: Actor, new_attempt: Callable[[], str] = lambda: "") -> CompareAndSet[str]:
        log = ActorsLog(self.log, actor, self.rng, self.broker, unknown_share=0.06)
        return CompareAndSet(log, self.topic, 0, Keys(), clock=self.clock, new_attempt=new_attempt)

    def _proposer(self, actor: Actor) -> None:
        follows: str | None = None

        def attempt() -> str:
            self.attempts += 1
            self.follows[f"a{self.attempts}"] = follows
            return f"a{self.attempts}"

        store = self._store(actor, attempt)

        def changed(found: Versioned | None, *, value: bytes) -> bytes | None:
            nonlocal follows
            follows = None if found is None else found.attempt
            return None if found is not None and found.value == value else value

        while True:
            entity = self.rng.choice(ENTITIES)
            value = b"alive %d" % self.attempts if self.rng.random() < 0.3 else DEAD
            if self.rng.random() < 0.3:
                for _ in range(self.rng.randrange(40)):
                    actor.pause()
            try:
                found = store.update(entity, partial(changed, value=value), NEVER)
            except StoreError:
                continue
            self._claimed(entity, found.version, found.attempt)

    def _claimed(self, entity: str, version: int, attempt: str) -> None:
        claimed = self.won.setdefault(entity, {}).setdefault(version, attempt)
        assert claimed == attempt, f"seed {self.seed}: version {version} of {entity} was won by {claimed}, {attempt}"

    def _dead_letterer(self, actor: Actor) -> None:
        store = self._store(actor)
        while True:
            dead: dict[str, int] = {}
            try:
                for entity, state in store.entities(NEVER).items():
                    if state.value == DEAD and self.clock.seconds - self._written_s(state.offset) > KEPT_S:
                        dead[entity] = state.version
                if dead:
                    store.remove_dead(dead, NEVER)
                    self.removed += 1
            except StoreError:
                continue
            actor.pause()

    def _written_s(self, offset: int) -> float:
        found = self.log.read_at(self.topic, 0, [offset], NEVER).get(offset)
        return self.clock.seconds if found is None else found.timestamp_ms / 1000

    # What must hold -----------------------------------------------------------------------------------------------

    def _readers_agree(self) -> None:
        for reader in (self.reader, self.far_behind)[: 1 + (self.rng.random() < 0.03)]:
            seen = reader.query(lambda found: found.states(), NEVER)
            assert seen == self.truth, f"seed {self.seed}: {seen} is not {self.truth}"

    def follows_what_was_there(self) -> None:
        truth = self._view().query(lambda found: found.states(), NEVER)
        for entity in {*truth, *self.truth}:
            before, now = self.truth.get(entity), truth.get(entity)
            if before == now:
                continue
            if now is None:
                assert before is not None
                assert before.value == DEAD, f"seed {self.seed}: {before} was removed while it lived"
                self.removed_last[entity] = before.attempt
                continue
            follows = self.follows[now.attempt]
            # Whoever has seen the dead one goes on from it, removed meanwhile or not.
            there = (None, self.removed_last.get(entity)) if before is None else (before.attempt,)
            assert follows in there, f"seed {self.seed}: {now} follows {follows}, but {before} was there"
            highest = max(self.won.get(entity, {}), default=0)
            assert now.version >= highest, f"seed {self.seed}: {entity} went back to {now} from version {highest}"
            self._claimed(entity, now.version, now.attempt)
            if now.version > 1 << 32 and before is None:
                self.begun_again += 1
        self.truth = truth


@pytest.mark.parametrize("seeds", in_three(12, range(2000, 2060)), ids=str)
def test_what_is_removed_is_begun_anew_by_whoever_comes_first(seeds: range) -> None:
    removed, begun_again = map(sum, zip(*(RemovalHistory(seed).run() for seed in seeds), strict=True))
    assert removed > len(seeds)
    assert begun_again > len(seeds) // 2


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_thousands_of_removals() -> None:
    for seed in range(2060, 5060):
        RemovalHistory(seed).run()
