"""The real fence and the real view under random histories: owners that pause, die, race for a version, and clean.

`make soak` runs 3,000.
"""

from __future__ import annotations

import pytest

from pulsar_on_kafka.base.errors import AppendFailed, AppendOutcomeUnknown
from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka.statelog.take_over import Owner, TakeOverFence
from pulsar_on_kafka.statelog.view import LogView
from tests.seeds import in_three
from tests.simulation.history import ActorsHistory
from tests.simulation.turns import NEVER, Actor, ActorsLog, kafka_cleans, simulated_topic


class Decisions:
    """Transactions and how they ended: the first valid decision stands. Keys T/session/version and D/txn/session/n."""

    def __init__(self) -> None:
        self.fence = TakeOverFence()
        self._values: dict[bytes, tuple[str, str]] = {}

    def apply(self, record: LogRecord) -> None:
        kind, first, second, *_ = record.key.decode().split("/")
        if record.value is None:
            self.fence.tombstone(record.key)
        elif kind == "T":
            self.fence.takeover(record.key, first, int(second))
        else:
            version, outcome = record.value.decode().split("/")
            self.fence.record(record.key, int(version))
            self._values[record.key] = (first, outcome)

    def outcomes(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for key in self.fence.valid_keys():
            txn, outcome = self._values[key]
            found.setdefault(txn, outcome)
        return found

    def keys_before(self, number: int) -> list[bytes]:
        """Valid decisions of the transactions below `number`."""
        return [key for key in self.fence.valid_keys() if int(self._values[key][0][1:]) < number]


class History(ActorsHistory):
    def __init__(self, seed: int, steps: int = 250) -> None:
        super().__init__(seed, steps)
        self.topic = simulated_topic(with_lag=self.rng.random() < 0.5)
        self.sessions = 0
        self.transactions = 0
        self.acted: dict[str, str] = {}
        """What is to be seen for as long as nobody forgets it."""
        self.decided: dict[str, str] = {}
        """All that was ever acted on."""
        self.forgotten: set[str] = set()
        self.readers = [LogView(self.log, self.topic, 0, Decisions, self.clock) for _ in range(2)]

    def run(self) -> int:
        self.begin(*[self._owner] * 3, then=self._owner)
        self.play()
        return len(self.acted)

    def step(self, draw: float) -> None:
        if draw < 0.78:
            self.schedule.step_one_of(self.actors)
        elif draw < 0.95:
            kafka_cleans(self.log, self.topic, self.clock, self.rng)
        elif draw < 0.98 and self.broker.waiting:
            self.broker.execute_one()
        elif draw > 0.99:
            self.one_dies()
        self._all_readers_agree()

    # What owners do -----------------------------------------------------------------------------------------------

    def _owner(self, actor: Actor) -> None:
        log = ActorsLog(self.log, actor, self.rng, self.broker, unknown_share=0.06)
        view = LogView(log, self.topic, 0, Decisions, self.clock)
        while True:
            owner = self._take_over(log, view)
            while owner is not None and view.query(lambda found: found.fence.owner, NEVER) == owner:
                try:
                    self._serve(owner, log, view)
                except (AppendFailed, AppendOutcomeUnknown):
                    continue
                if self.rng.random() < 0.1:
                    break

    def _take_over(self, log: ActorsLog, view: LogView[Decisions]) -> Owner | None:
        self.sessions += 1
        owner = Owner(f"s{self.sessions}", view.query(lambda found: found.fence.next_version, NEVER))
        try:
            log.append(self.topic, 0, f"T/{owner.session}/{owner.version}".encode(), b"", NEVER)
        except (AppendFailed, AppendOutcomeUnknown):
            return None
        return owner

    def _serve(self, owner: Owner, log: ActorsLog, view: LogView[Decisions]) -> None:
        if self.rng.random() < 0.15:
            self._forget(log, view)
            return
        if self.rng.random() < 0.4:
            for key in view.query(lambda found: found.fence.to_clean(owner), NEVER)[: self.rng.randrange(5)]:
                log.append(self.topic, 0, key, None, NEVER)
            return
        self.transactions += self.rng.random() < 0.6
        txn, outcome = f"t{self.rng.randint(max(0, self.transactions - 4), self.transactions)}", self.rng.choice("CA")
        if txn in view.query(lambda found: found.outcomes(), NEVER):
            return
        key = f"D/{txn}/{owner.session}/{self.rng.random()}".encode()
        log.append(self.topic, 0, key, f"{owner.version}/{outcome}".encode(), NEVER)
        valid, stands = view.query(lambda found: (found.fence.is_valid(key), found.outcomes().get(txn)), NEVER)
        if valid and stands == outcome:
            before = self.decided.setdefault(txn, outcome)
            assert before == outcome, f"seed {self.seed}: {txn} was decided {before}, now {outcome}"
            if txn not in self.forgotten:  # by another owner, while this one read its record back
                self.acted[txn] = outcome

    def _forget(self, log: ActorsLog, view: LogView[Decisions]) -> None:
        """Tombstone a decision that nobody asks about any more."""
        old = view.query(lambda found: found.keys_before(self.transactions - 8), NEVER)
        for key in old[:3]:
            txn = key.decode().split("/")[1]
            self.forgotten.add(txn)
            self.acted.pop(txn, None)
            log.append(self.topic, 0, key, None, NEVER)

    # What must hold -----------------------------------------------------------------------------------------------

    def _all_readers_agree(self) -> None:
        truth = LogView(self.log, self.topic, 0, Decisions, self.clock).query(lambda found: found.outcomes(), NEVER)
        for reader in self.readers[: 1 + (self.rng.random() < 0.03)]:  # the second is often far behind
            seen = reader.query(lambda found: found.outcomes(), NEVER)
            assert seen == truth, f"seed {self.seed}: {seen} is not {truth}"
        acted = {txn: truth.get(txn) for txn in self.acted}
        assert acted == self.acted, f"seed {self.seed}: acted on {self.acted}, readers see {acted}"


@pytest.mark.parametrize("seeds", in_three(25, range(120)), ids=str)
def test_no_paused_owner_decides_and_all_readers_agree(seeds: range) -> None:
    assert sum(History(seed).run() for seed in seeds) > len(seeds)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_in_thousands_of_histories_no_paused_owner_decides() -> None:
    assert sum(History(seed).run() for seed in range(120, 3120)) > 3000
