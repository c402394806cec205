"""Topics that are deleted ledger by ledger under random histories: those who delete, maintain, work off events and make
topics anew are stopped for long, killed, and hear nothing of what became of their writes and requests.

All but Kafka and the queue of events is the real code. Brokers learn late of what was made and deleted. A cluster that
knows which lives were condemned judges each deletion. In the end there is a Kafka topic for each living topic, with all
of its data, and no other one. `make soak` runs more.

Kafka deletes by name, whatever has it by then. It executes a deletion at any time within an hour, up to twice, also of
a process that is dead. Actors that are stopped are stopped for more than the five seconds after which they send none.
No actor is stopped between its last look and its making of a Kafka topic.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError, StoreError
from pulsar_on_kafka.broker.managed_ledger.deletion import DeletionVerdict, judge
from pulsar_on_kafka.broker.managed_ledger.ledger_list_update import LogRange
from pulsar_on_kafka.broker.managed_ledger.model import Ledger, LedgerPlace
from pulsar_on_kafka.broker.managed_ledger.trimming import Needs
from pulsar_on_kafka.broker.metadata.entities import Entities
from pulsar_on_kafka.broker.metadata.removals import REQUESTS_ARRIVE_WITHIN_MS
from pulsar_on_kafka.broker.metadata.topics import TOPIC_KEYS, Topics
from pulsar_on_kafka.kafka.records import TopicDescription
from pulsar_on_kafka.service.ledgers.partition_state import PartitionLook
from pulsar_on_kafka.service.ledgers.topic_deletion import TopicDeletion, ledgers_of
from pulsar_on_kafka.statelog.api import LogRecord, StateLog
from pulsar_on_kafka.statelog.versioned import VersionedEntities
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.instances import Instance
from pulsar_on_kafka_mapping.state.metadata.metadata_records import LifeState, TopicRecord, decode_topic
from pulsar_on_kafka_mapping.state.state_topics import LEDGERS, StateTopic
from tests.memory_log import MemoryStateLog
from tests.simulation.broker import SimulatedBroker
from tests.simulation.history import ActorsHistory
from tests.simulation.test_deletion_histories import Queue, SeenQueue
from tests.simulation.turns import NEVER, Actor, ActorsLog, ManualClock, kafka_cleans, simulated_topic
from tests.simulation.verdicts import verdicts_of

SIZE = 5
NAMES = [TopicName.parse(f"persistent://public/default/{name}") for name in ("a", "b")]
_MAX_STALE = 3
"""Answers of a broker that has not learned of a change yet."""
_UNANSWERED = 0.15
"""Share of the deletions that are not answered."""
_MAX_NOTED_S = 300
"""Between the note of a request and its sending."""
STEP_S = 6
"""More than what may lie between the last look at a Kafka topic and its deletion."""


@dataclass
class KafkaTopic:
    name: str
    id: str
    logs: dict[int, LogRange]


class Cluster:
    """Kafka's topics, and what may become of them."""

    def __init__(self, told: str, rng: random.Random) -> None:
        self.told = told
        self.rng = rng
        self.topics: dict[str, KafkaTopic] = {}
        self.names: set[str] = set()
        """Of all Kafka topics that were made."""
        self.condemned: dict[str, Mapping[str, int]] = {}
        """By the id of a Kafka topic whose life is DELETING: up to where each of its ledgers was asked for."""
        self.stale: dict[str, tuple[KafkaTopic | None, int]] = {}
        """What brokers told of a name before its last change, and how often they still do."""
        self.told_late = 0
        self.made = self.cut = 0
        self.at_once = self.by_ledgers = 0
        self.asked_twice = 0
        """Two maintainers asked for a deletion at once, up to different ends: what the second one noted is void."""

    def create(self, name: str, partitions: int) -> bool:
        if name in self.topics:
            return False
        self.made += 1
        self.names.add(name)
        self._learned_late(name)
        self.topics[name] = KafkaTopic(name, f"id{self.made}", {p: LogRange(0, 0) for p in range(max(1, partitions))})
        return True

    def delete(self, name: str, *, all_of_it: bool) -> bool:
        topic = self.topics.get(name)
        if topic is None:
            return False
        assert topic.id in self.condemned, f"{self.told}: Kafka topic {topic} went, and nobody wanted that"
        if not all_of_it:
            ends = self.condemned[topic.id]
            left = {p: log for p, log in topic.logs.items() if log.start < ends.get(str(p), log.end + 1)}
            assert not left, f"{self.told}: Kafka topic {name} went before its ledgers {left}"
        self.by_ledgers += not all_of_it
        self.at_once += all_of_it
        self._learned_late(name)
        del self.topics[name]
        return True

    def describe(self, name: str) -> KafkaTopic | None:
        """The answer of a broker, which may have learned of nothing yet."""
        before, times = self.stale.get(name, (None, 0))
        if times == 0:
            return self.topics.get(name)
        self.stale[name] = (before, times - 1)
        self.told_late += 1
        return before

    def _learned_late(self, name: str) -> None:
        if self.rng.random() < 0.3:
            self.stale[name] = (self.topics.get(name), self.rng.randint(1, _MAX_STALE))
        else:
            self.stale.pop(name, None)

    def cut_off(self, name: str, partition: int, before: int) -> None:
        topic = self.topics.get(name)
        if topic is None or partition not in topic.logs:
            raise StoreError("simulated: no such topic")
        assert topic.id in self.condemned, f"{self.told}: {name} lives and lost what lies below {before}"
        start, end = topic.logs[partition]
        self.cut += before > start
        topic.logs[partition] = LogRange(max(start, min(before, end)), end)


class TopicsLog(MemoryStateLog):
    """Tells the cluster of what is on record: of each version the first one in the log. A proposal that comes behind it
    is void, and says nothing."""

    def __init__(self, clock: ManualClock, cluster: Cluster) -> None:
        super().__init__(clock)
        self.cluster = cluster
        self._truth = VersionedEntities(TOPIC_KEYS)

    def append_many(self, topic: StateTopic, partition: int, records: Any, deadline: Any) -> list[int]:
        offsets = super().append_many(topic, partition, records, deadline)
        for offset, (key, value) in zip(offsets, records, strict=True):
            self._truth.apply(LogRecord(offset, key, value, 0))
            named = TOPIC_KEYS.decode(key)
            state = None if named is None else self._truth.state(named.entity)
            if state is not None and state.offset == offset:
                self._hear(decode_topic(state.value))
            elif named is not None and value is not None:
                self.cluster.asked_twice += self._asks_other_ends(decode_topic(value))
        return offsets

    def _asks_other_ends(self, void: TopicRecord) -> bool:
        condemned = self.cluster.condemned.get(void.kafka_topic_id)
        return void.state is LifeState.DELETING and bool(condemned) and void.deletion_ends not in ({}, condemned)

    def _hear(self, record: TopicRecord) -> None:
        cluster = self.cluster
        if record.state is LifeState.DELETING:
            cluster.condemned.setdefault(record.kafka_topic_id, {})
            if record.deletion_ends:
                cluster.condemned[record.kafka_topic_id] = record.deletion_ends
        if record.state is LifeState.DELETED:
            there = [topic for topic in cluster.topics.values() if topic.id == record.kafka_topic_id]
            assert not there, f"{cluster.told}: {record} is said to be gone, and is there"


class SeenKafka:
    """`KafkaAdmin` as one actor meets it: after each look the others may have their turns, and a request may fail, done
    or not. `all_of_it`: it may delete topics that hold data."""

    def __init__(
        self,
        cluster: Cluster,
        may_be_made: Callable[[str], bool],
        actor: Actor | None,
        rng: random.Random,
        *,
        all_of_it: bool,
        broker: SimulatedBroker,
        clock: ManualClock,
    ) -> None:
        self._broker = broker
        self._clock = clock
        self._cluster = cluster
        self._may_be_made = may_be_made
        self._actor = actor
        self._rng = rng
        self._all_of_it = all_of_it

    def describe_topic(self, topic: str, deadline: Any) -> TopicDescription | None:
        found = self._cluster.describe(topic)
        described = None if found is None else TopicDescription(topic, found.id, len(found.logs))
        self._others(0.3)
        return described

    def log_ranges(self, partitions: Sequence[tuple[str, int]], deadline: Any) -> dict[tuple[str, int], LogRange]:
        there = {(topic.name, p): log for topic in self._cluster.topics.values() for p, log in topic.logs.items()}
        found = {where: there[where] for where in partitions if where in there}
        self._others(0.3)
        return found

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str], deadline: Any) -> bool:
        if topic not in self._cluster.topics and not self._may_be_made(topic):
            raise StoreError("simulated: it was stopped for long before this")
        made = self._cluster.create(topic, partitions)
        self._others(0.4)
        return made

    def delete_topic(self, topic: str, deadline: Any) -> bool:
        gone = self._requested(lambda: self._cluster.delete(topic, all_of_it=self._all_of_it))
        self._others(0.4)
        return bool(gone)

    def delete_records(self, topic: str, before: Mapping[int, int], deadline: Any) -> None:
        for partition, offset in before.items():
            self._requested(lambda p=partition, o=offset: self._cluster.cut_off(topic, p, o))  # type: ignore[misc]
            self._others(0.4)

    def _requested(self, execute: Callable[[], Any]) -> Any:
        """The answer of a request by name, which may be executed late, or twice, and not be answered."""
        too_late_s = self._clock.seconds + REQUESTS_ARRIVE_WITHIN_MS // 1000 - _MAX_NOTED_S

        def arrive() -> Any:
            if self._clock.seconds >= too_late_s:
                return None
            try:
                return execute()
            except StoreError as failure:
                return failure

        connection = self._broker.connect()
        if self._actor is not None and self._rng.random() < _UNANSWERED:
            connection.send(arrive)
            if self._rng.random() < 0.5:
                connection.send_again()
            raise StoreError("simulated: no answer")
        answer = connection.call(arrive)
        if isinstance(answer, StoreError):
            raise answer
        return answer

    def _others(self, share: float) -> None:
        if self._actor is not None and self._rng.random() < share:
            self._actor.pause()
        if self._actor is not None and self._rng.random() < 0.03:
            raise StoreError("simulated")


class Process:
    """The code of one process, on the log and the Kafka that it meets."""

    def __init__(self, history: History, actor: Actor | None = None, *, all_of_it: bool = False) -> None:
        rng = history.rng
        log: StateLog = history.log
        if actor is not None:
            log = ActorsLog(history.log, actor, rng, history.broker, history.unknown_share, between=0.2)
        self._cluster = history.cluster
        self.verdicts = history.verdicts
        admin: Any = SeenKafka(
            history.cluster,
            history.is_creating,
            actor,
            rng,
            all_of_it=all_of_it,
            broker=history.broker,
            clock=history.clock,
        )
        self.kafka: SeenKafka = admin
        namespaces: Any = SimpleNamespace(
            require=lambda namespace, deadline: None, policies_for_topics=lambda namespace, deadline: {}
        )
        entities = Entities(log, history.topic, TOPIC_KEYS, history.clock)
        self.topics = Topics(entities, namespaces, admin, history.clock, Instance(), until=_asked_often)
        self.deletion = TopicDeletion(self.topics, admin, SeenQueue(history.queue, actor, rng))
        services: Any = SimpleNamespace(
            topics=self.topics,
            admin=admin,
            clock=history.clock,
            ledger_views=SimpleNamespace(query=lambda name, question, deadline: question(self)),
        )
        use: Any = SimpleNamespace(log_of=self._log_of, needs_of=self._needs_of)
        self.look = PartitionLook(services, use, self.deletion)

    # Of living topics: all of their ledgers are listed, and needed ---------------------------------------------------

    def ledgers(self, place: LedgerPlace) -> list[Ledger]:
        life = self.topics.last_life(TopicName.parse(place.topic), NEVER)
        if life is None or life.topic is None or life.incarnation != place.incarnation:
            raise StoreError("simulated: it went meanwhile")
        topic = self._cluster.topics.get(life.topic.kafka_topic)
        if topic is None or topic.id != life.topic.kafka_topic_id:
            raise StoreError("simulated: it went meanwhile")
        record = TopicRecord(place.topic, LifeState.ACTIVE, topic.name, 0, SIZE, incarnation=place.incarnation)
        return list(ledgers_of(record, {place.partition: topic.logs[place.partition]}))

    def _log_of(self, topic: Any, partition: int, deadline: Any) -> LogRange | None:
        where = (topic.kafka_topic, partition)
        return self.kafka.log_ranges([where], deadline).get(where)

    def _needs_of(self, topic: Any, partitions: Collection[int], deadline: Any) -> dict[int, Needs]:
        return {partition: Needs([0], []) for partition in partitions}

    # What a worker does ---------------------------------------------------------------------------------------------

    def carry_out(self, event: tuple[str, int, int]) -> DeletionVerdict:
        """Carry the event out, by the steps of `DeletionWorker`."""
        name, partition, ledger_id = event
        found = self.look.at(TopicName.parse(name), partition, NEVER, with_list=True)
        judgement = judge(name, partition, ledger_id, found.now, former=found.former)
        if judgement.verdict is DeletionVerdict.DELETE and found.whose is not None:
            self.look.delete(found.whose, partition, judgement.before, NEVER)
        if found.deleting is not None and judgement.verdict is not DeletionVerdict.REFUSE:
            self.look.end(found.deleting, NEVER)
        self.verdicts[judgement.verdict] += 1
        return judgement.verdict


class History(ActorsHistory):
    log: TopicsLog
    step_s = STEP_S

    def __init__(self, seed: int, steps: int = 700) -> None:
        super().__init__(seed, steps)
        self.cluster = Cluster(self.told, random.Random(seed))
        self.log = TopicsLog(self.clock, self.cluster)
        self.topic = simulated_topic(with_lag=self.rng.random() < 0.5)
        self.queue = Queue()
        self.unknown_share = self.rng.choice([0.0, 0.05, 0.15])
        self.verdicts = dict.fromkeys(DeletionVerdict, 0)

    def is_creating(self, kafka_topic: str) -> bool:
        """Whether somebody wants this Kafka topic to be made."""
        entities = Entities(self.log, self.topic, TOPIC_KEYS, self.clock)
        records = [decode_topic(found.value) for found in entities.all(NEVER)]
        return any(each.kafka_topic == kafka_topic and each.state is LifeState.CREATING for each in records)

    def run(self) -> Cluster:
        self.begin(self._maintainer, self._maintainer, self._worker, self._worker, self._user, self._user)
        self.play()
        self.broker.execute_all()
        self._all_comes_to_its_end()
        return self.cluster

    def step(self, draw: float) -> None:
        if draw < 0.85:
            self.schedule.step_one_of(self.actors)
        elif draw < 0.9:
            self._messages_come()
        elif draw < 0.96:
            kafka_cleans(self.log, self.topic, self.clock, self.rng)
        elif draw < 0.98 and self.broker.waiting:
            self.broker.execute_one()
        elif draw > 0.985:
            self.one_dies()

    def _messages_come(self) -> None:
        """Also to a topic that is being deleted: its producers have not heard of that."""
        if self.cluster.topics:
            topic = self.cluster.topics[self.rng.choice(sorted(self.cluster.topics))]
            partition = self.rng.choice(sorted(topic.logs))
            start, end = topic.logs[partition]
            topic.logs[partition] = LogRange(start, end + self.rng.choice([1, 4, 5, 17]))

    # Who lives here -----------------------------------------------------------------------------------------------

    def _maintainer(self, actor: Actor) -> None:
        process = Process(self, actor)
        while True:
            actor.pause()
            _attempt(process.deletion.run, range(LEDGERS.partitions), NEVER)

    def _worker(self, actor: Actor) -> None:
        process = Process(self, actor)
        while True:
            actor.pause()
            event = self._forged(process) if self.rng.random() < 0.1 else self._next_event()
            if event is None:
                continue
            verdict = _attempt(process.carry_out, event)
            actor.pause()  # a worker that ends here has not acknowledged
            if (
                verdict in (DeletionVerdict.DONE, DeletionVerdict.DELETE, DeletionVerdict.REFUSE)
                and event in self.queue.events
            ):
                self.queue.events.remove(event)

    def _next_event(self) -> tuple[str, int, int] | None:
        return self.rng.choice(self.queue.events) if self.queue.events else None

    def _forged(self, process: Process) -> tuple[str, int, int] | None:
        """One that asks for a ledger of a topic that lives, or did a moment ago."""
        topic = _attempt(process.topics.find, self.rng.choice(NAMES), NEVER)
        return None if topic is None else (str(topic.name), 0, topic.layout.ledger_id(0, self.rng.randrange(3)))

    def _user(self, actor: Actor) -> None:
        """Makes topics and deletes them; some at once, as those that somebody is connected to are."""
        process = Process(self, actor, all_of_it=True)
        while True:
            actor.pause()
            name = self.rng.choice(NAMES)
            draw = self.rng.random()
            if draw < 0.4:
                _attempt(process.topics.create, name, self.rng.choice([0, 2]), NEVER, entries_per_ledger=SIZE)
            elif draw < 0.55:
                doomed = _attempt(process.topics.begin_deletion, name, NEVER)
                if doomed is not None and self.rng.random() < 0.2:
                    self._finishes(process, doomed)

    def _finishes(self, process: Process, doomed: TopicRecord) -> None:
        try:
            process.topics.finish_deletion(doomed, NEVER)
        except LayerError:
            return
        doing = [each.kafka_topic_id for each in Process(self).topics.records.being_deleted(NEVER)]
        assert doomed.kafka_topic_id not in doing, f"{self.told}: {doomed} is finished, and not said to be gone"

    # What must hold -----------------------------------------------------------------------------------------------

    def _all_comes_to_its_end(self) -> None:
        self.clock.seconds += 1000
        self.cluster.stale.clear()  # by now each broker has learned of everything
        process = Process(self)
        for name in NAMES:  # who finds a topic half made finishes it
            process.topics.find(name, NEVER)
        for _ in range(3):
            process.deletion.run(range(LEDGERS.partitions), NEVER)
            waiting = [event for event in self.queue.events if process.carry_out(event) is DeletionVerdict.WAIT]
            self.queue.events = waiting
        assert not self.queue.events, f"{self.told}: {self.queue.events} would wait for ever"
        assert not process.topics.records.being_deleted(NEVER), self.told
        living = {record.kafka_topic: record for record in process.topics.records.active(NEVER)}
        assert living.keys() == self.cluster.topics.keys(), f"{self.told}: {living}, Kafka has {self.cluster.topics}"
        for kafka_name, topic in self.cluster.topics.items():
            assert topic.id == living[kafka_name].kafka_topic_id, self.told
            assert not living[kafka_name].bound, f"{self.told}: {topic} was left over for who made it anew"
            assert all(log.start == 0 for log in topic.logs.values()), f"{self.told}: {topic} lost data"


def _asked_often(settled: Callable[[], bool], _: Deadline) -> bool:
    """Longer than any broker of these takes to learn, and as often on a slow machine: a seed is one history."""
    return any(settled() for _ in range(_MAX_STALE + 1))


def _attempt(wish: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What it gives; None where it fails."""
    try:
        return wish(*arguments, **options)
    except LayerError:
        return None


def test_a_topic_goes_with_the_last_of_its_ledgers_and_no_other_one_does() -> None:
    found = [History(seed).run() for seed in range(40, 80)]
    assert sum(cluster.by_ledgers for cluster in found) > 30
    assert sum(cluster.at_once for cluster in found) > 80
    assert sum(cluster.cut for cluster in found) > 100
    assert sum(cluster.told_late for cluster in found) > 100
    assert sum(cluster.asked_twice for cluster in found) > 0
    assert sum("-x-" in name for cluster in found for name in cluster.names) > 20


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_in_thousands_of_histories_topics_go_with_their_ledgers() -> None:
    verdicts = verdicts_of(History(seed) for seed in range(40, 5040))
    assert all(count > 1_000 for count in verdicts.values()), verdicts
