"""The real `CompareAndSet` of several processes against random histories on the log in memory.

With pauses between any two operations on the log, appends that fail, arrive late or only seem lost, compaction, dropped
tombstones, cleaning by anyone, and processes that die. `make soak` runs 3,000.
"""

from __future__ import annotations

from functools import partial

import pytest

from pulsar_on_kafka.base.errors import AppendFailed, AppendOutcomeUnknown
from pulsar_on_kafka.statelog.compare_and_set import CompareAndSet, Versioned, VersionedEntities, VersionedKey, Won
from pulsar_on_kafka.statelog.versioned import Keeping
from pulsar_on_kafka.statelog.view import LogView
from tests.seeds import in_three
from tests.simulation.history import ActorsHistory
from tests.simulation.turns import NEVER, Actor, ActorsLog, kafka_cleans, simulated_topic

ENTITIES = ("orders", "orders", "orders", "audit")


class Keys:
    def encode(self, entity: str, version: int, attempt: str) -> bytes:
        return f"{entity}/{version}/{attempt}".encode()

    def decode(self, key: bytes) -> VersionedKey[str]:
        entity, version, attempt = key.decode().split("/")
        return VersionedKey(entity, int(version), attempt)


def _marked(found: Versioned | None, *, mark: bytes) -> bytes | None:
    return None if found and found.value == mark else mark


def _unneeded(found: VersionedEntities[str], *, entity: str, keep_winners: bool) -> list[bytes]:
    return found.to_clean(entity, keep_winners=keep_winners)


def _winners(found: VersionedEntities[str], *, entity: str) -> list[Versioned]:
    return found.winners(entity)


class History(ActorsHistory):
    """One random history; `run` raises AssertionError, naming the seed, when a rule is broken."""

    def __init__(self, seed: int, steps: int = 200) -> None:
        super().__init__(seed, steps)
        self.winners: dict[tuple[str, int], set[str]] = {}
        self.lost: set[bytes] = set()
        self.attempts = 0
        self.topic = simulated_topic(with_lag=self.rng.random() < 0.5)
        self.keep_winners = self.rng.random() < 0.2
        self.readers = [self._view(), self._view()]
        self.offsets_seen: dict[str, dict[int, Versioned]] = {}

    def _view(self) -> LogView[VersionedEntities[str]]:
        return LogView(self.log, self.topic, 0, lambda: VersionedEntities(Keys()), self.clock)

    def _attempt(self) -> str:
        self.attempts += 1
        return f"a{self.attempts}"

    def run(self) -> int:
        self.begin(*[self._proposer] * 3, self._updater, then=self._proposer)
        self.play()
        return len(self.winners)

    def step(self, draw: float) -> None:
        if draw < 0.75:
            self.schedule.step_one_of(self.actors)
        elif draw < 0.93:
            kafka_cleans(self.log, self.topic, self.clock, self.rng)
        elif draw < 0.96:
            self._anyone_cleans()
        elif draw < 0.98 and self.broker.waiting:
            self.broker.execute_one()
        elif draw > 0.99:
            self.one_dies()
        self._all_readers_agree()

    # What processes do --------------------------------------------------------------------------------------------

    def _store(self, actor: Actor) -> CompareAndSet[str]:
        log = ActorsLog(self.log, actor, self.rng, self.broker, unknown_share=0.08)
        return CompareAndSet(
            log,
            self.topic,
            0,
            Keys(),
            clock=self.clock,
            keeping=Keeping(winners=self.keep_winners),
            new_attempt=self._attempt,
        )

    def _proposer(self, actor: Actor) -> None:
        store = self._store(actor)
        while True:
            entity = self.rng.choice(ENTITIES)
            state = store.read(entity, NEVER)
            expected = state.version if state else 0
            attempt = self.attempts + 1
            try:
                outcome = store.propose(entity, expected, b"by %d" % attempt, NEVER)
            except (AppendFailed, AppendOutcomeUnknown):
                continue
            if isinstance(outcome, Won):
                self._won(entity, outcome)

    def _updater(self, actor: Actor) -> None:
        store = self._store(actor)
        while True:
            entity = self.rng.choice(ENTITIES)
            mark = f"updated to {self.rng.random()}".encode()
            try:
                state = store.update(entity, partial(_marked, mark=mark), NEVER)
            except (AppendFailed, AppendOutcomeUnknown):
                continue
            assert state.value == mark, f"seed {self.seed}: update gave {state}"
            self._won(entity, Won(state.version, state.offset))

    def _won(self, entity: str, won: Won) -> None:
        self.winners.setdefault((entity, won.version), set()).add(str(won.offset))
        claimed = self.winners[entity, won.version]
        assert len(claimed) == 1, f"seed {self.seed}: version {won.version} of {entity} was won at offsets {claimed}"

    def _anyone_cleans(self) -> None:
        reader = self.rng.choice(self.readers)
        for entity in set(ENTITIES):
            keys = reader.glance(partial(_unneeded, entity=entity, keep_winners=self.keep_winners))
            for key in (keys or [])[: self.rng.randrange(4)]:
                self.log.append(self.topic, 0, key, None, NEVER)

    # What must hold -----------------------------------------------------------------------------------------------

    def _all_readers_agree(self) -> None:
        fresh = self._view()
        truth = fresh.query(lambda found: found.states(), NEVER)
        for reader in self.readers[: 1 + (self.rng.random() < 0.03)]:  # the second is often far behind
            seen = reader.query(lambda found: found.states(), NEVER)
            assert seen == truth, f"seed {self.seed}: {seen} is not {truth}"
        for entity, state in truth.items():
            before = self.offsets_seen.setdefault(entity, {})
            assert state.version >= max(before, default=0), f"seed {self.seed}: {entity} went back to {state}"
            first = before.setdefault(state.version, state)
            assert state == first, f"seed {self.seed}: version {state.version} of {entity} was {first}, is {state}"
            claimed = self.winners.get((entity, state.version), {str(state.offset)})
            assert claimed == {str(state.offset)}, f"seed {self.seed}: {entity} is {state}, won at {claimed}"
        if self.keep_winners:
            self._every_winner_is_there(fresh)

    def _every_winner_is_there(self, fresh: LogView[VersionedEntities[str]]) -> None:
        for (entity, version), offsets in self.winners.items():
            found = {state.version: state.offset for state in fresh.query(partial(_winners, entity=entity), NEVER)}
            assert {str(found.get(version))} == offsets, f"seed {self.seed}: {entity} lost winner {version}: {found}"


@pytest.mark.parametrize("seeds", in_three(8, range(120)), ids=str)
def test_histories_agree_and_no_version_is_won_twice(seeds: range) -> None:
    assert sum(History(seed).run() for seed in seeds) > len(seeds)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_thousands_of_histories_agree_and_no_version_is_won_twice() -> None:
    assert sum(History(seed).run() for seed in range(120, 3120)) > 3000
