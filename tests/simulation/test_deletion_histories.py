"""Both phases of deletion under random histories: owners that are paused and killed, events that come twice, late or
from forgers, workers that die before they acknowledge, while subscriptions, transactions and copies to other clusters
begin, go on and end.

A truth that knows every cursor judges each deletion of data. In the end nothing is left of what nobody needs. `make
soak` runs more.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import AppendFailed, Fenced, LayerError, StoreError
from pulsar_on_kafka.broker.managed_ledger.deletion import DeletionVerdict, PartitionGone, PartitionNow, judge
from pulsar_on_kafka.broker.managed_ledger.first_left import first_kept
from pulsar_on_kafka.broker.managed_ledger.ledger_list_update import LogRange
from pulsar_on_kafka.broker.managed_ledger.ledger_machine import LedgerLists
from pulsar_on_kafka.broker.managed_ledger.model import Ledger, LedgerPlace
from pulsar_on_kafka.broker.managed_ledger.owner import LedgerOwner, TopicLogs
from pulsar_on_kafka.broker.managed_ledger.trimming import Needs, Retention, Rollover
from pulsar_on_kafka.broker.managed_ledger.trusted import TrustedLedgers
from pulsar_on_kafka.service.ledgers.open_trimming import OpenTrimming
from pulsar_on_kafka.service.ledgers.retirement import KeptByRule, Retirement
from pulsar_on_kafka.statelog.view import LogView
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.state.metadata.ledger_records import LedgerState
from tests.memory_log import MemoryStateLog
from tests.seeds import in_three
from tests.simulation.history import ActorsHistory
from tests.simulation.test_ledger_histories import SIZE, SeenTopics, Topics, WatchedLog
from tests.simulation.turns import NEVER, Actor, ActorsLog, kafka_cleans, simulated_topic
from tests.simulation.verdicts import verdicts_of

LISTED_AGAIN = 1155
"""If a list that is made anew had again what was taken off it, a worker that trusts its own process would delete here
what a new subscription begins with."""
NEEDED_AFTER_ALL = 1042
"""If nobody asked again who needs what lies below an open ledger's raised first offset, what a subscription begins with
would go here."""
RETENTIONS = [Retention()] * 5 + [Retention(-1, -1), Retention(-1, 1), Retention(1, -1)]


@dataclass
class Use:
    """Users of a partition, each by the first offset that it needs. `new`: subscriptions whose creation has not come to
    its end: they may still be told to begin later."""

    cursors: dict[str, int] = field(default_factory=dict)
    new: dict[str, int] = field(default_factory=dict)
    copies: dict[str, int] = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)

    def promised(self) -> dict[str, int]:
        return {**self.cursors, **self.copies, **self.transactions}

    def needs(self) -> Needs:
        cursors = [*self.cursors.values(), *self.new.values(), *self.copies.values()]
        return Needs(cursors, list(self.transactions.values()))


class World(Topics):
    """Kafka's topics, and those who use them."""

    def __init__(self, rng: random.Random, told: str) -> None:
        super().__init__(rng)
        self.told = told
        self.uses: dict[LedgerPlace, Use] = {}
        self.retention: dict[str, Retention] = {}
        self.rollover: dict[str, Rollover] = {}
        self.all_is_old = False
        self.quiet = rng.random() < 0.4
        """Most of what goes is the beginning of an open ledger."""
        self.last_lives: dict[str, int] = {}
        self.names = 0
        self.deleted = 0

    def happen(self) -> None:
        draw = self.rng.random()
        if draw < 0.02 or not self.topics:
            self.lives += 1
            name = f"persistent://a/b/{self.rng.randrange(2)}"
            logs = {0: LogRange(0, 0)}
            self.topics[name] = TopicLogs(name, f"{name}#{self.lives}", LedgerLayout(self.lives, SIZE), logs)
            self.last_lives[name] = self.lives
            self.retention[name] = self.rng.choice(RETENTIONS)
            self.rollover[name] = Rollover(1, 1, self.rng.choice([3, 7, SIZE]))
            return
        topic = self.topics[self.rng.choice(sorted(self.topics))]
        if draw < 0.03:
            del self.topics[topic.name]
        elif draw < 0.05:
            self.retention[topic.name] = self.rng.choice(RETENTIONS)
        elif draw < 0.4:
            self._grow(topic)
        else:
            self._use(topic)

    def _grow(self, topic: TopicLogs) -> None:
        partition = self.rng.choice(sorted(topic.logs))
        start, end = topic.logs[partition]
        grown = LogRange(start, end + self.rng.choice([0, 1, 1] if self.quiet else [1, 3, 7, 25]))
        self.topics[topic.name] = topic._replace(logs={**topic.logs, partition: grown})

    def _use(self, topic: TopicLogs) -> None:
        """Something of what holds the log moves on, begins or ends."""
        partition = self.rng.choice(sorted(topic.logs))
        use, log = self.use(topic, partition), topic.logs[partition]
        if self.rng.random() < 0.5:  # all of them have come to the end
            use.transactions.clear()
            for each in (use.cursors, use.copies):
                each.update(dict.fromkeys(each, log.end))
            return
        draw = self.rng.random()
        kind = self.rng.choice([use.cursors, use.cursors, use.copies, use.transactions])
        if draw < 0.1 and kind is not use.cursors:
            self.names += 1
            kind[f"x{self.names}"] = log.end  # a bound is the end, a copy that begins now has nothing to copy yet
        elif draw < 0.5 and kind:
            del kind[self.rng.choice(sorted(kind))]
        elif kind and kind is not use.transactions:
            name = self.rng.choice(sorted(kind))
            kind[name] = min(log.end, kind[name] + self.rng.choice([1, 9, 30, 1000]))

    def use(self, topic: TopicLogs, partition: int) -> Use:
        return self.uses.setdefault(LedgerPlace(topic.name, topic.layout.incarnation, partition), Use())

    def delete_records(self, kafka_topic: str, partition: int, before: int) -> None:
        topic = next((each for each in self.topics.values() if each.kafka_topic == kafka_topic), None)
        if topic is None:
            raise StoreError("simulated: no such topic")
        start, end = topic.logs[partition]
        assert before <= end, f"{self.told}: {before} lies beyond the end {end}"
        if before <= start:
            return
        for who, offset in self.use(topic, partition).promised().items():
            assert offset >= before, (
                f"{self.told}: {kafka_topic}-{partition} deleted below {before}, {who} is at {offset}"
            )
        self.deleted += 1
        self.topics[topic.name] = topic._replace(logs={**topic.logs, partition: LogRange(before, end)})


class JudgedLog(WatchedLog):
    """Judges each ledger that leaves its list although Kafka has its data."""

    world: World

    def _judge(self, ledger_id: int, before: Ledger | None, *, is_tombstone: bool) -> None:
        super()._judge(ledger_id, before, is_tombstone=is_tombstone)
        if before is None or self.truth.ledger(ledger_id) is not None:
            return
        topic = self.world.topics.get(before.place.topic)
        if topic is None or topic.layout.incarnation != before.place.incarnation:
            return
        if topic.logs[before.place.partition].start >= before.end:
            return
        use = self.world.use(topic, before.place.partition)
        for who, offset in use.promised().items():
            assert offset >= before.end, f"{self.told}: {before} left its list, {who} is at {offset}"


class SeenUse:
    """Implements `TrimmingCluster` and `RetirementCluster`: the others have their turns before each answer, and it
    fails sometimes."""

    def __init__(self, world: World, actor: Actor | None, rng: random.Random) -> None:
        self._world = world
        self._actor = actor
        self._rng = rng

    def rules(self, topics: Sequence[TopicLogs], deadline: Deadline) -> Mapping[str, Mapping[int, KeptByRule]]:
        self._others()
        found = {}
        for topic in topics:
            retention = self._world.retention[topic.name]
            young = 0 if retention.time_minutes else None
            found[topic.name] = {
                p: KeptByRule(retention, log.end if young is None else young) for p, log in topic.logs.items()
            }
        return found

    def needs(self, topic: TopicLogs, partitions: Sequence[int], deadline: Deadline) -> Mapping[int, Needs]:
        self._others()
        now = self._world.topics.get(topic.name)
        if now is None or now.layout != topic.layout:
            return {}
        return {partition: self._world.use(topic, partition).needs() for partition in partitions}

    def rollovers(self, topics: Sequence[TopicLogs], deadline: Deadline) -> Mapping[str, Rollover]:
        return {topic.name: self._world.rollover[topic.name] for topic in topics}

    def rolled_over(
        self, topics: Sequence[TopicLogs], rollovers: Mapping[str, Rollover], deadline: Deadline
    ) -> Mapping[str, Mapping[int, int]]:
        self._others()
        old = self._world.all_is_old
        return {
            topic.name: {p: end if old else self._rng.randint(start, end) for p, (start, end) in topic.logs.items()}
            for topic in topics
        }

    def delete_below(self, topic: TopicLogs, before: Mapping[int, int], deadline: Deadline) -> None:
        self._others()
        for partition, offset in before.items():
            self._world.delete_records(topic.kafka_topic, partition, offset)

    def _others(self) -> None:
        if self._actor is None:
            return
        if self._rng.random() < 0.4:
            self._actor.pause()
        if self._rng.random() < 0.03:
            raise StoreError("simulated")


class Queue:
    """The events; what is not acknowledged comes again."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int, int]] = []

    def ask_for(self, ledgers: Sequence[Ledger]) -> None:
        self.events += [(each.record.topic, each.fields.partition, each.id) for each in ledgers]


class SeenQueue:
    """Implements `DeletionEvents` for one actor: some are sent and its sender hears that they were not."""

    def __init__(self, queue: Queue, actor: Actor | None, rng: random.Random) -> None:
        self._queue = queue
        self._actor = actor
        self._rng = rng

    def send(self, ledgers: Sequence[Ledger], deadline: Deadline) -> None:
        if self._actor is None:
            self._queue.ask_for(ledgers)
            return
        if self._rng.random() < 0.1:
            self._queue.ask_for(ledgers[: self._rng.randrange(len(ledgers) + 1)])
            raise StoreError("simulated")
        self._queue.ask_for(ledgers)
        if self._rng.random() < 0.5:
            self._actor.pause()


class Node:
    """The state of a process: it dies with its owner and its worker."""

    def __init__(self) -> None:
        self.trusted = TrustedLedgers(most=5)


class History(ActorsHistory):
    log: JudgedLog

    def __init__(self, seed: int, steps: int = 1000) -> None:
        super().__init__(seed, steps)
        self.log = JudgedLog(self.clock, self.told)
        self.topic = simulated_topic(with_lag=self.rng.random() < 0.5)
        self.world = self.log.world = World(self.rng, self.told)
        self.rebuild_share = self.rng.choice([0.0, 0.02])
        self.queue = Queue()
        self.sessions = 0
        self.unknown_share = self.rng.choice([0.0, 0.05, 0.15])
        self.verdicts = dict.fromkeys(DeletionVerdict, 0)

    def run(self) -> int:
        self.begin_with(self._owner, self._owner, self._worker, self._subscriber, self._subscriber)
        self.play()
        self.broker.execute_all()
        self._nothing_is_left_in_the_end()
        return self.world.deleted

    def step(self, draw: float) -> None:
        if draw < 0.7:
            self.schedule.step_one_of(self.actors)
        elif draw < 0.9:
            self.world.happen()
        elif draw < 0.96:
            kafka_cleans(self.log, self.topic, self.clock, self.rng)
        elif draw < 0.98 and self.broker.waiting:
            self.broker.execute_one()
        elif draw > 0.985:
            self.one_dies()

    # Who lives here -----------------------------------------------------------------------------------------------

    def _owner(self) -> Actor:
        node = Node()
        self.nodes = [*getattr(self, "nodes", [])[-3:], node]

        def life(actor: Actor) -> None:
            log = ActorsLog(self.log, actor, self.rng, self.broker, self.unknown_share, between=0.3)
            data = SeenTopics(self.world, actor, self.rng)
            owner = self._ledger_owner(log, data)
            retirement = Retirement(
                SeenUse(self.world, actor, self.rng), SeenQueue(self.queue, actor, self.rng), node.trusted
            )
            trimming = OpenTrimming(SeenUse(self.world, actor, self.rng), self.clock)
            while True:
                try:
                    if owner.owner is None or self.rng.random() < 0.03:
                        owner.take_over(NEVER)
                    draw = self.rng.random()
                    if draw < self.rebuild_share:
                        owner.rebuild(NEVER)
                    elif draw < 0.4:
                        owner.turn(NEVER)
                    elif draw < (0.5 if self.world.quiet else 0.8):
                        retirement.run(owner, data.living(0, NEVER), NEVER)
                    else:
                        trimming.run(owner, data.living(0, NEVER), NEVER)
                except (Fenced, AppendFailed, StoreError):
                    pass
                actor.pause()

        return Actor(life)

    def _worker(self) -> Actor:
        node = self.rng.choice(self.nodes)  # of the same process as some owner, which may be dead by now

        def life(actor: Actor) -> None:
            view = self._view(ActorsLog(self.log, actor, self.rng, self.broker, 0.0, between=0.3))
            while True:
                actor.pause()
                if not self.queue.events:
                    continue
                event = self._forged() if self.rng.random() < 0.1 else self.rng.choice(self.queue.events)
                try:
                    verdict = self._carry_out(event, view, node, actor.pause)
                except LayerError:
                    continue
                actor.pause()  # a worker that ends here has not acknowledged
                if (
                    verdict in (DeletionVerdict.DONE, DeletionVerdict.DELETE, DeletionVerdict.REFUSE)
                    and event in self.queue.events
                ):
                    self.queue.events.remove(event)

        return Actor(life)

    def _forged(self) -> tuple[str, int, int]:
        life, partition = self.rng.randrange(1, self.world.lives + 2), self.rng.randrange(3)
        index = self.rng.randrange(12)
        return (
            f"persistent://a/b/{self.rng.randrange(3)}",
            self.rng.choice([partition, self.rng.randrange(3)]),
            self.rng.choice([LedgerLayout(life, SIZE).ledger_id(partition, index), -1, 2**63, 5]),
        )

    def _carry_out(
        self, event: tuple[str, int, int], view: LogView[LedgerLists], node: Node, pause: Callable[[], None]
    ) -> DeletionVerdict:
        """Carry a verdict out, by the steps of `DeletionWorker` and `PartitionLook`."""
        name, partition, ledger_id = event
        trusted = ledger_id in node.trusted
        topic = self.world.topics.get(name)
        pause()
        now: PartitionNow | PartitionGone | None = None
        if topic is None and name in self.world.last_lives:
            now = PartitionGone(self.world.last_lives[name])
        elif topic is not None and partition in topic.logs:
            place = LedgerPlace(name, topic.layout.incarnation, partition)
            listed = () if trusted else view.query(lambda lists: lists.ledgers(place), NEVER)
            pause()
            seen = self.world.topics.get(name)
            if seen is None or seen.layout != topic.layout:
                raise StoreError("simulated: it went meanwhile")
            log = seen.logs[partition]
            pause()
            now = PartitionNow(place, topic.layout, listed, log, self.world.use(topic, partition).needs())
        found = judge(name, partition, ledger_id, now, trusted=trusted)
        self.verdicts[found.verdict] += 1
        if found.verdict is DeletionVerdict.DELETE:
            assert topic is not None
            pause()
            listed = self.log.truth.ledgers(LedgerPlace(name, topic.layout.incarnation, partition))
            assert all(ledger.first >= found.before for ledger in listed), f"{self.told}: {listed} is listed"
            self.world.delete_records(topic.kafka_topic, partition, found.before)
        return found.verdict

    def _subscriber(self) -> Actor:
        def life(actor: Actor) -> None:
            view = self._view(ActorsLog(self.log, actor, self.rng, self.broker, 0.0, between=0.3))
            while True:
                actor.pause()
                if not self.world.topics or self.rng.random() < 0.5:
                    continue
                topic = self.world.topics[self.rng.choice(sorted(self.world.topics))]
                partition = self.rng.choice(sorted(topic.logs))
                start = topic.logs[partition][self.rng.random() < 0.2]
                actor.pause()
                use, place = (
                    self.world.use(topic, partition),
                    LedgerPlace(topic.name, topic.layout.incarnation, partition),
                )
                self.world.names += 1
                name = f"s{self.world.names}"
                use.new[name] = start
                actor.pause()
                first = view.query(_first_kept_of(place), NEVER)
                actor.pause()
                del use.new[name]
                use.cursors[name] = max(start, first)
                listed = self.log.truth.ledgers(place)
                # An open ledger's first offset may be raised above what somebody needs; nothing goes then.
                assert not listed or listed[0].state is LedgerState.OPEN or listed[0].first <= use.cursors[name], (
                    f"{self.told}: {name} begins at {use.cursors[name]}, {listed[0]} is the first that is listed"
                )

        return Actor(life)

    def _view(self, log: ActorsLog | MemoryStateLog) -> LogView[LedgerLists]:
        return LogView(log, self.topic, 0, lambda: LedgerLists(0), self.clock)

    def _ledger_owner(self, log: ActorsLog | MemoryStateLog, data: SeenTopics) -> LedgerOwner:
        def session() -> str:
            self.sessions += 1
            return f"s{self.sessions}"

        return LedgerOwner(log, 0, data, self.clock, new_session=session, topic=self.topic)

    # What must hold -----------------------------------------------------------------------------------------------

    def _nothing_is_left_in_the_end(self) -> None:
        """Nobody needs anything any more, all is old, and nothing is to be kept: all goes."""
        world = self.world
        world.uses.clear()
        world.retention = dict.fromkeys(world.retention, Retention())
        data = SeenTopics(world, None, self.rng)
        owner = self._ledger_owner(self.log, data)
        owner.take_over(NEVER)
        self.clock.seconds += 1000
        node = Node()
        retirement = Retirement(SeenUse(world, None, self.rng), SeenQueue(self.queue, None, self.rng), node.trusted)
        trimming = OpenTrimming(SeenUse(world, None, self.rng), self.clock)
        world.all_is_old = True
        view = self._view(self.log)
        for _ in range(3):
            self.clock.seconds += 1000  # what has only grown is measured
            owner.turn(NEVER)
            trimming.run(owner, data.living(0, NEVER), NEVER)
            retirement.run(owner, data.living(0, NEVER), NEVER)
            waiting = []
            for event in self.queue.events:
                if self._carry_out(event, view, node, lambda: None) is DeletionVerdict.WAIT:
                    waiting.append(event)
            self.queue.events = waiting
        owner.turn(NEVER)
        assert not self.queue.events, f"{self.told}: {self.queue.events} would wait for ever"
        lists = view.query(lambda found: found, NEVER)
        for topic in world.topics.values():
            for partition, log in topic.logs.items():
                assert log.start == log.end, f"{self.told}: {topic.kafka_topic}-{partition} keeps {log}"
                (left,) = lists.ledgers(LedgerPlace(topic.name, topic.layout.incarnation, partition))
                assert left.state is LedgerState.OPEN, self.told


def _first_kept_of(place: LedgerPlace) -> Callable[[LedgerLists], int]:
    return lambda lists: first_kept(lists.ledgers(place))


@pytest.mark.parametrize("seeds", in_three(8, range(110)), ids=str)
def test_data_is_deleted_only_when_nobody_needs_it_and_then_it_is(seeds: range) -> None:
    assert sum(History(seed).run() for seed in seeds) > 9 * len(seeds)


@pytest.mark.parametrize("seed", [LISTED_AGAIN, NEEDED_AFTER_ALL])
def test_histories_that_once_went_wrong(seed: int) -> None:
    History(seed).run()


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_in_thousands_of_histories_data_is_deleted_only_when_nobody_needs_it() -> None:
    verdicts = verdicts_of(History(seed) for seed in range(110, 3110))
    assert all(count > 5_000 for count in verdicts.values()), verdicts
