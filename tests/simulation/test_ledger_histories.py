"""The real owners of lists of ledgers under random histories: several at once, paused, killed, with lost appends.

Topics grow, lose their beginnings, are deleted and made anew meanwhile; the log is compacted and loses tombstones. A
truth that sees every append judges each change; readers that begin late or were away agree with it. At the end the
lists say exactly what the topics have. `make soak` runs more.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import AppendFailed, Fenced, LayerError, StoreError
from pulsar_on_kafka.broker.managed_ledger.ledger_list_update import LogRange, Measured
from pulsar_on_kafka.broker.managed_ledger.ledger_machine import FOLLOWS, LedgerLists
from pulsar_on_kafka.broker.managed_ledger.model import Ledger, LedgerPlace
from pulsar_on_kafka.broker.managed_ledger.owner import LedgerOwner, Stretch, TopicLogs
from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka.statelog.view import LogView
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.state.metadata.ledger_records import LedgerState
from pulsar_on_kafka_mapping.state.state_keys import LedgerKey, decode_key
from pulsar_on_kafka_mapping.state.state_topics import StateTopic
from tests.memory_log import MemoryStateLog
from tests.seeds import in_three
from tests.simulation.history import ActorsHistory
from tests.simulation.turns import (
    NEVER,
    Actor,
    ActorsLog,
    ManualClock,
    kafka_cleans,
    simulated_topic,
)

SIZE = 10
QUIET_TURNS = 4


class WatchedLog(MemoryStateLog):
    """Folds every record the moment it is appended, before compaction takes any."""

    def __init__(self, clock: ManualClock, told: str) -> None:
        super().__init__(clock)
        self.truth = LedgerLists(0)
        self.told = told
        self.changes = 0

    def append_many(
        self, topic: StateTopic, partition: int, records: Sequence[tuple[bytes, bytes | None]], deadline: Deadline
    ) -> list[int]:
        offsets = super().append_many(topic, partition, records, deadline)
        for offset, (key, value) in zip(offsets, records, strict=True):
            parsed = decode_key(key)
            before = self.truth.ledger(parsed.ledger_id) if isinstance(parsed, LedgerKey) else None
            self.truth.apply(LogRecord(offset, key, value, 0))
            if isinstance(parsed, LedgerKey):
                self._judge(parsed.ledger_id, before, is_tombstone=value is None)
        return offsets

    def _judge(self, ledger_id: int, before: Ledger | None, *, is_tombstone: bool) -> None:
        after = self.truth.ledger(ledger_id)
        if before == after:
            return
        assert not is_tombstone, f"{self.told}: a tombstone changed {before} to {after}"
        self.changes += 1
        state = LedgerState.REMOVED if after is None else after.state
        move = (None if before is None else before.state, state)
        assert move in FOLLOWS, f"{self.told}: {before} became {after}"


class Topics:
    """Kafka's topics. Every record of offset n has n bytes and was published at n ms."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.lives = 0
        self.topics: dict[str, TopicLogs] = {}

    def happen(self) -> None:
        draw = self.rng.random()
        if draw < 0.06 or not self.topics:
            self.lives += 1
            name = f"persistent://a/b/{self.rng.randrange(3)}"
            logs = {partition: LogRange(0, 0) for partition in range(self.rng.randrange(1, 3))}
            self.topics[name] = TopicLogs(name, f"{name}#{self.lives}", LedgerLayout(self.lives, SIZE), logs)
            return
        name = self.rng.choice(sorted(self.topics))
        topic = self.topics[name]
        if draw < 0.09:
            del self.topics[name]
            return
        partition = self.rng.choice(sorted(topic.logs))
        start, end = topic.logs[partition]
        if draw < 0.2:
            start = self.rng.randint(start, end)
        elif draw < 0.23:
            end = self.rng.randint(start, end)  # an unclean election
        else:
            end += self.rng.choice([1, 3, 7, 25])
        self.topics[name] = topic._replace(logs={**topic.logs, partition: LogRange(start, end)})

    def expected(self) -> dict[LedgerPlace, list[tuple[int, LedgerState, int, int]]]:
        found = {}
        for topic in self.topics.values():
            for partition, (start, end) in topic.logs.items():
                rows = []
                for index in range(start // SIZE, end // SIZE + 1):
                    first = max(start, index * SIZE)
                    state = LedgerState.OPEN if index == end // SIZE else LedgerState.CLOSED
                    rows.append((index, state, first, max(first, min(end, (index + 1) * SIZE))))
                found[LedgerPlace(topic.name, topic.layout.incarnation, partition)] = rows
        return found


class SeenTopics:
    """Kafka as one owner meets it: others have their turns in between, and it fails sometimes."""

    def __init__(self, topics: Topics, actor: Actor | None, rng: random.Random) -> None:
        self._topics = topics
        self._actor = actor
        self._rng = rng

    def living(self, state_partition: int, deadline: Deadline) -> list[TopicLogs]:
        self._maybe_fail(0.05)
        found = list(self._topics.topics.values())
        if self._actor is not None and self._rng.random() < 0.3:
            self._actor.pause()
        return found

    def measure(self, stretches: Sequence[Stretch], deadline: Deadline) -> list[Measured | LayerError]:
        return [
            StoreError("simulated")
            if self._actor is not None and self._rng.random() < 0.03
            else Measured(sum(range(start, end)), 0, start + 1, end)
            for _, _, start, end in stretches
        ]

    def _maybe_fail(self, share: float) -> None:
        if self._actor is not None and self._rng.random() < share:
            raise StoreError("simulated")


class RetiringOwner(LedgerOwner):
    """Also takes ledgers off their lists for good, in two steps, as whoever deletes does."""

    def retire(self, rng: random.Random) -> None:
        """The next step for the first ledger of some list: CLOSED, DELETING, gone."""
        lists = self.lists(NEVER)
        places = sorted(lists.places())
        if not places:
            return
        first = lists.ledgers(rng.choice(places))[0]
        following = {LedgerState.CLOSED: LedgerState.DELETING, LedgerState.DELETING: LedgerState.REMOVED}
        if first.state in following:
            self._append([(first.id, replace(first.record, state=following[first.state]))], NEVER)


class History(ActorsHistory):
    log: WatchedLog

    def __init__(self, seed: int, steps: int = 160) -> None:
        super().__init__(seed, steps)
        self.log = WatchedLog(self.clock, self.told)
        self.topic = simulated_topic(with_lag=self.rng.random() < 0.5)
        self.topics = Topics(self.rng)
        self.sessions = 0
        self.unknown_share = self.rng.choice([0.0, 0.06, 0.2])
        self.readers = [self._reader() for _ in range(2)]

    def run(self) -> int:
        self.begin(*[self._life] * 3)
        self.play()
        self.broker.execute_all()
        self._all_is_true_in_the_end()
        return self.log.changes

    def step(self, draw: float) -> None:
        if draw < 0.55:
            self.schedule.step_one_of(self.actors)
        elif draw < 0.75:
            self.topics.happen()
        elif draw < 0.94:
            kafka_cleans(self.log, self.topic, self.clock, self.rng)
        elif draw < 0.98 and self.broker.waiting:
            self.broker.execute_one()
        elif draw > 0.99:
            self.one_dies()
        self._readers_agree()

    def _life(self, actor: Actor) -> None:
        log = ActorsLog(self.log, actor, self.rng, self.broker, self.unknown_share)
        owner = self._owner(log, SeenTopics(self.topics, actor, self.rng))
        while True:
            try:
                if owner.owner is None or self.rng.random() < 0.02:
                    owner.take_over(NEVER)
                draw = self.rng.random()
                if draw < 0.03:
                    owner.rebuild(NEVER)
                elif draw < 0.5:
                    owner.retire(self.rng)
                else:
                    owner.turn(NEVER)
            except (Fenced, AppendFailed, StoreError):
                pass
            actor.pause()

    def _owner(self, log: ActorsLog | MemoryStateLog, topics: SeenTopics) -> RetiringOwner:
        def session() -> str:
            self.sessions += 1
            return f"s{self.sessions}"

        return RetiringOwner(log, 0, topics, self.clock, new_session=session, topic=self.topic)

    # What must hold -----------------------------------------------------------------------------------------------

    def _reader(self) -> LogView[LedgerLists]:
        return LogView(self.log, self.topic, 0, lambda: LedgerLists(0), self.clock)

    def _readers_agree(self) -> None:
        truth = _shown(self.log.truth)
        readers = [self._reader(), self.readers[0], *self.readers[1 : 1 + (self.rng.random() < 0.03)]]
        for reader in readers:
            seen = reader.query(_shown, NEVER)
            assert seen == truth, f"{self.told}: a reader sees {seen}, {truth} is true"

    def _all_is_true_in_the_end(self) -> None:
        owner = self._owner(self.log, SeenTopics(self.topics, None, self.rng))
        owner.take_over(NEVER)
        self.clock.seconds += 1000  # long enough for open ledgers to be looked at again
        for _ in range(QUIET_TURNS):
            owner.turn(NEVER)
        lists = self._reader().query(lambda found: found, NEVER)
        expected = self.topics.expected()
        assert {*lists.places()} == {*expected}, self.told
        for place, rows in expected.items():
            seen = [(each.ledger_index, _as_kept(each.state), each.first, each.end) for each in lists.ledgers(place)]
            assert seen == rows[-len(seen) :], self.told  # the first ones may have been taken off
        assert all(each.record.bytes == sum(range(each.first, each.end)) for each in _all(lists)), self.told
        assert owner.turn(NEVER)[1:] == (0, 0, False), f"{self.told}: a quiet turn writes"
        newest: dict[bytes, bytes | None] = {}
        for batch in self.log.read(self.topic, 0, 0, self.log.end_offset(self.topic, 0, NEVER), NEVER):
            newest.update((record.key, record.value) for record in batch)
        left = [key for key, value in newest.items() if value is not None]
        assert len(left) == len(lists) + 1, f"{self.told}: more is left than the lists and a TAKEOVER: {left}"


def _as_kept(state: LedgerState) -> LedgerState:
    return LedgerState.CLOSED if state is LedgerState.DELETING else state


def _all(lists: LedgerLists) -> list[Ledger]:
    return [ledger for place in lists.places() for ledger in lists.ledgers(place)]


def _shown(lists: LedgerLists) -> tuple[object, ...]:
    return lists.owner, {place: lists.ledgers(place) for place in lists.places()}


@pytest.mark.parametrize("seeds", in_three(12, range(150)), ids=str)
def test_lists_follow_the_topics_whoever_owns_them(seeds: range) -> None:
    assert sum(History(seed).run() for seed in seeds) > 20 * len(seeds)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_in_thousands_of_histories_lists_follow_the_topics() -> None:
    assert sum(History(seed).run() for seed in range(150, 3150)) > 60_000
