"""The real coordinators, and clients in their processes and in others, through random histories on the log in memory.

Owners race for coordinators, are stopped for long at any operation (as by SIGSTOP), die, and their appends fail, arrive
late or only seem lost; effects fail; requests come twice; the log is compacted and loses tombstones. `make soak` runs
more.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import ClassVar

import pytest

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.transactions.client_transaction import (
    ClientTransaction,
    TransactionClient,
    TransactionState,
)
from pulsar_on_kafka.broker.transactions.coordinator.rules import CoordinatorSettings
from pulsar_on_kafka.broker.transactions.coordinator.state import CoordinatorState
from pulsar_on_kafka.broker.transactions.records.outcomes import Outcomes
from pulsar_on_kafka.broker.transactions.serving.coordinator import Coordinator
from pulsar_on_kafka.broker.transactions.serving.coordinator_client import RemoteCoordinator
from pulsar_on_kafka.broker.transactions.serving.log_writer import CoordinatorLog
from pulsar_on_kafka.statelog.view import LogView
from pulsar_on_kafka.statelog.views import LogViews
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.state_topics import StateTopic
from pulsar_on_kafka_mapping.state.transactions.transaction_log import TopicPartition, TopicSubscription
from pulsar_on_kafka_mapping.state.transactions.transaction_requests import (
    AddPartitions,
    AddSubscriptions,
    Begin,
    Command,
    End,
)
from tests.clocks import PacedClock
from tests.seeds import in_three
from tests.simulation.broker import SimulatedBroker
from tests.simulation.coordinators import TOPIC, SimulatedOutcomes, Truth, WatchedLog
from tests.simulation.turns import (
    COMPACTION_LAG_S,
    NEVER,
    RETENTION_S,
    Actor,
    ActorsLog,
    ManualClock,
    Schedule,
)
from tests.state_log_requests import StateLogRequests

SETTINGS = CoordinatorSettings(
    max_open=6,
    max_finished=4,
    finished_kept_ms=31_000,
    last_status_delay_ms=500,
    group_records=3,
    clean_every_ms=3_000,
    clean_at_once=5,
)
PARTITIONS = [TopicPartition("persistent://a/b/c", number) for number in range(3)]
SUBSCRIPTIONS = [TopicSubscription("persistent://a/b/c", number, "s") for number in range(2)]
PARTICIPANTS: list[TopicPartition | TopicSubscription] = [*PARTITIONS, *SUBSCRIPTIONS]


class History:
    """One random history; `run` raises AssertionError, naming the seed, when a rule is broken."""

    settings = SETTINGS
    partitions: ClassVar = PARTITIONS
    registered_at_once = 1

    def __init__(self, seed: int, steps: int = 45) -> None:
        self.steps = steps
        self.rng = random.Random(seed)
        self.clock = PacedClock()
        self.steps_done = ManualClock()
        self.schedule = Schedule(self.rng, self.steps_done)
        self.coordinators = 1 if self.rng.random() < 0.8 else 2
        self.truths = {number: Truth(f"seed {seed} coordinator {number}") for number in range(self.coordinators)}
        self.log = WatchedLog(self.clock, self.truths)
        self.broker = SimulatedBroker(self.rng)
        self.names = 0
        self.outcomes: list[SimulatedOutcomes] = []
        self.failing = self.rng.choice([0.0, 0.05, 0.2])
        self.unknown_share = self.rng.choice([0.0, 0.05, 0.25])
        self.between = self.rng.choice([0.02, 0.1, 0.35])
        self.pace_ms = self.rng.choice([20, 100, 400, 3_000])
        self.owners_alive = 2 + (self.rng.random() < 0.4)
        self.seed = seed
        self.readers = [self._reader(0), self._reader(0)]

    def name(self) -> str:
        self.names += 1
        return f"{self.names:x}"

    def run(self) -> int:
        lives = [self._owner] * self.owners_alive + [self._asker] * self.rng.randint(1, 2)
        actors = [Actor(life) for life in lives]
        try:
            for _ in range(self.steps):
                self._step(actors, lives)
        finally:
            for actor in actors:
                actor.end()
        self._everything_ends()
        return sum(fate.finished for truth in self.truths.values() for fate in truth.fates.values())

    def _step(self, actors: list[Actor], lives: Sequence[Callable[[Actor], None]]) -> None:
        self.steps_done.seconds += 1
        self.clock.ms += self.pace_ms
        draw = self.rng.random()
        if draw < 0.88:
            self.schedule.step_one_of(actors)
        elif draw < 0.94:
            self._kafka_cleans()
        elif draw < 0.97 and self.broker.waiting:
            self.broker.execute_one()
        elif draw > 0.985:
            place = self.rng.randrange(len(actors))
            actors[place].end()
            actors[place] = Actor(lives[place])
        if self.rng.random() < 0.1:
            self._readers_see_the_truth()

    def _kafka_cleans(self) -> None:
        age_s = COMPACTION_LAG_S if self.rng.random() < 0.6 else RETENTION_S
        old_ms = self.clock.ms - age_s * 1000
        horizon = min(self._first_since(partition, old_ms) for partition in self.truths)
        if age_s == COMPACTION_LAG_S:
            self.log.compact(self.rng, horizon)
        else:
            self.log.drop_tombstones(self.rng, horizon, old_ms)

    def _first_since(self, partition: int, horizon_ms: int) -> int:
        end = self.log.end_offset(TOPIC, partition, NEVER)
        records = (each for batch in self.log.read(TOPIC, partition, 0, end, NEVER) for each in batch)
        return next((each.offset for each in records if each.timestamp_ms >= horizon_ms), end)

    # What owners do -----------------------------------------------------------------------------------------------

    def effects(self, log: ActorsLog | WatchedLog, outcomes: SimulatedOutcomes) -> Outcomes:
        """What a coordinator is given; whatever it is, `outcomes` judges."""
        return outcomes

    def _coordinator(self, log: ActorsLog | WatchedLog, number: int, outcomes: SimulatedOutcomes) -> Coordinator:
        self.outcomes.append(outcomes)
        return Coordinator(
            CoordinatorLog(log, number, self.clock, new_session=self.name, topic=TOPIC),
            self.effects(log, outcomes),
            StateLogRequests(log, number),
            settings=self.settings,
            clock=self.clock,
        )

    def _owner(self, actor: Actor) -> None:
        log = ActorsLog(self.log, actor, self.rng, self.broker, self.unknown_share, self.between)
        number = self.rng.randrange(self.coordinators)
        outcomes = SimulatedOutcomes(self.truths[number], self.rng, actor.pause, self.failing)
        coordinator = self._coordinator(log, number, outcomes)
        programs = [Program(self, coordinator, number) for _ in range(self.rng.randrange(3))]
        while True:
            try:
                coordinator.take_over(NEVER)
                while self.rng.random() > 0.01:
                    for program in programs:
                        program.go_on()
                    try:
                        coordinator.turn(NEVER)
                    except errors.Fenced:
                        break
                    except errors.StoreError:
                        pass
                    if self.rng.random() < 0.5:
                        actor.pause()
            except errors.StoreError:
                actor.pause()
            coordinator.resign()
            for _ in range(self.rng.randrange(8)):
                actor.pause()

    # What processes without a coordinator do ----------------------------------------------------------------------

    def _asker(self, actor: Actor) -> None:
        access = RemoteAccess(self, RepeatingLog(self, actor), actor)
        client = TransactionClient(access, self.clock, lambda seconds: actor.pause())
        while True:
            try:
                self._use(client.begin(self.rng.choice([15_000, 40_000]), NEVER), actor)
            except (errors.StoreError, errors.Refused):
                actor.pause()

    def _use(self, transaction: ClientTransaction, actor: Actor) -> None:
        truth = self.truths[transaction.id.coordinator]
        truth.told_begun(transaction.id)
        for each in self.rng.sample(PARTICIPANTS, self.rng.randrange(3)):
            if isinstance(each, TopicPartition):
                transaction.register_partition(*each, NEVER)
            else:
                transaction.register_subscription(*each, NEVER)
            self.told_registered(transaction.id, each)
        draw = self.rng.random()
        if draw < 0.15:
            return  # the program dies
        commit = draw < 0.75
        try:
            (transaction.commit if commit else transaction.abort)(NEVER)
        except errors.InvalidTxnStatus:
            if transaction.state is TransactionState.TIME_OUT:
                truth.told_timed_out(transaction.id)
            else:
                truth.told_refused(transaction.id, commit)
        except errors.TransactionNotFound:
            assert truth.fates[transaction.id].finished, f"seed {self.seed}: {transaction.id} was denied"
        else:
            truth.told_ended(transaction.id, commit)

    def told_registered(self, txn: TxnId, each: TopicPartition | TopicSubscription) -> None:
        """A program was told so, just now."""
        announced = any((txn, each) in outcomes.announced for outcomes in self.outcomes)
        self.truths[txn.coordinator].told_registered(txn, each, announced)

    # What must hold -----------------------------------------------------------------------------------------------

    def _reader(self, number: int) -> LogView[CoordinatorState]:
        return LogView(self.log, TOPIC, number, lambda: CoordinatorState(number), self.clock)

    def _known_ids(self, number: int) -> list[int]:
        """Of the transactions that the coordinator has not forgotten."""
        return self._reader(number).query(lambda state: [each.id.least_bits for each in state.transactions()], NEVER)

    def _readers_see_the_truth(self) -> None:
        for number in self.truths:
            self._sees_the_truth(self._reader(number).query(lambda state: state, NEVER))
        reader = self.readers[self.rng.random() < 0.2]  # the second is often far behind
        self._sees_the_truth(reader.query(lambda state: state, NEVER))

    def _sees_the_truth(self, state: CoordinatorState) -> None:
        truth = self.truths[state.coordinator]
        seen = {each.id: each.status for each in state.transactions()}
        owner = None if state.owner is None else (state.owner.session, state.owner.version)
        assert owner == truth.owner, f"{truth.name}: {owner} is not {truth.owner}"
        for txn, fate in truth.fates.items():
            found = state.transaction(txn)
            if found is None:
                assert fate.finished, f"{truth.name}: {txn} is gone as {fate.status}"
            else:
                assert found.status == fate.status, f"{truth.name}: {txn} seems {found.status}, is {fate.status}"
                if not found.finished:
                    assert set(found.partitions) == fate.partitions, f"{truth.name}: {txn}"
                    assert set(found.subscriptions) == fate.subscriptions, f"{truth.name}: {txn}"
        assert seen.keys() <= truth.fates.keys(), f"{truth.name}: {seen.keys() - truth.fates.keys()} never were"
        assert state.highest_id >= max((txn.least_bits for txn in truth.fates), default=-1), (
            f"{truth.name}: an id is lost"
        )

    def _everything_ends(self) -> None:
        """Whoever comes last drives all to the end, and cleans; what is late comes in between."""
        for number, truth in self.truths.items():
            outcomes = SimulatedOutcomes(truth, self.rng, lambda: None, 0.0)
            coordinator = self._coordinator(self.log, number, outcomes)
            coordinator.take_over(NEVER)
            # Cleaning goes by a few records a turn (`clean_at_once`), and waits in between.
            for _ in range(40 + 4 * len(self._known_ids(number))):
                self.clock.ms += 3_000
                if self.broker.waiting and self.rng.random() < 0.3:
                    self.broker.execute_one()
                if self.rng.random() < 0.1:
                    self._kafka_cleans()
                    self._readers_see_the_truth()
                try:
                    coordinator.turn(NEVER)
                except errors.Fenced:  # a claim that was long given up came late
                    coordinator.resign()
                    coordinator.take_over(NEVER)
            unfinished = [txn for txn, fate in truth.fates.items() if not fate.finished]
            assert not unfinished, f"{truth.name}: {unfinished} never end"
            self._sees_the_truth(self._reader(number).query(lambda found: found, NEVER))
            known = self._known_ids(number)
            assert known in ([], [truth.highest]), f"{truth.name}: {known} are not forgotten"
            assert outcomes.low_water == truth.highest or not truth.fates, f"{truth.name}: {outcomes.low_water}"


class Program:
    """A program in the owner's process: transactions by `submit`, one wish after the other."""

    def __init__(self, history: History, coordinator: Coordinator, number: int) -> None:
        self._history = history
        self._rng = history.rng
        self._coordinator = coordinator
        self._truth = history.truths[number]
        self._txn: TxnId | None = None
        self._command: Command | None = None
        self._future: Future[TxnId] | None = None

    def go_on(self) -> None:
        if self._future is not None:
            if not self._future.done():
                return
            future, self._future = self._future, None
            try:
                self._done(future.result())
            except errors.InvalidTxnStatus:
                if isinstance(self._command, End):
                    self._truth.told_refused(self._command.txn, self._command.commit)
                self._txn = None
            except errors.TransactionNotFound:
                assert self._txn is None or self._truth.fates[self._txn].finished, f"{self._txn} was denied"
                self._txn = None
            except (errors.StoreError, errors.Refused):
                if self._rng.random() < 0.3:
                    self._txn = None
        if self._rng.random() < 0.8:
            self._command = self._next()
            try:
                self._future = self._coordinator.submit(self._command, NEVER)
            except errors.TransactionCoordinatorNotFound:
                self._future = None

    def _next(self) -> Command:
        if self._txn is None:
            return Begin(self._rng.choice([10_000, 40_000]))
        draw = self._rng.random()
        if draw < 0.3:
            history = self._history
            return AddPartitions(self._txn, tuple(self._rng.sample(history.partitions, history.registered_at_once)))
        if draw < 0.5:
            return AddSubscriptions(self._txn, (self._rng.choice(SUBSCRIPTIONS),))
        return End(self._txn, draw < 0.8)

    def _done(self, txn: TxnId) -> None:
        match self._command:
            case Begin():
                self._truth.told_begun(txn)
                self._txn = txn
            case AddPartitions(partitions=partitions):
                for each in partitions:
                    self._history.told_registered(txn, each)
            case AddSubscriptions(subscriptions=(each,)):
                self._history.told_registered(txn, each)
            case End(commit=commit):
                self._truth.told_ended(txn, commit)
                self._txn = None


class RemoteAccess:
    """Coordinators by request only; now and then a request comes a second time, much later."""

    def __init__(self, history: History, log: RepeatingLog, actor: Actor) -> None:
        self._history = history
        logs = LogViews(log, TOPIC, CoordinatorState, history.clock)
        self._remote = [
            RemoteCoordinator(
                log,
                number,
                logs,
                history.clock,
                new_request=history.name,
                wait=lambda seconds: actor.pause(),
            )
            for number in range(history.coordinators)
        ]

    def candidates(self) -> Sequence[int]:
        return self._history.rng.sample(range(self._history.coordinators), self._history.coordinators)

    def request(self, coordinator: int, command: Command, deadline: Deadline) -> TxnId:
        return self._remote[coordinator].request(command, NEVER)


class RepeatingLog(ActorsLog):
    """Sends some requests once more at another time, as nobody ordered."""

    def __init__(self, history: History, actor: Actor) -> None:
        super().__init__(history.log, actor, history.rng, history.broker, history.unknown_share, history.between)
        self._history = history

    def append(self, topic: StateTopic, partition: int, key: bytes, value: bytes | None, deadline: Deadline) -> int:
        history = self._history
        if history.rng.random() < 0.2:
            history.broker.send(lambda: history.log.append(topic, partition, key, value, NEVER))
        return super().append(topic, partition, key, value, deadline)


@pytest.mark.parametrize("seeds", in_three(40, range(1000)), ids=str)
def test_no_transaction_has_two_outcomes_and_every_one_ends(seeds: range) -> None:
    finished = sum(History(seed).run() for seed in seeds)
    assert finished > len(seeds)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_in_many_thousand_histories_no_transaction_has_two_outcomes() -> None:
    assert sum(History(seed, steps=300).run() for seed in range(1000, 12_000)) > 11_000
