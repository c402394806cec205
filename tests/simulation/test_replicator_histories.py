"""Copies of one partition under random histories of owners that are killed, paused, woken, and that hand over, also
while they take over. A reader of the target finds each record once, in order.

The lanes, the take-over, the snapshots and the fences are the real ones; the two partitions are in memory. An append
that an owner has sent is executed at any time later, or never once its process is dead.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity
from pulsar_on_kafka.broker.cursor.saved_cursor import RecoveredCursor
from pulsar_on_kafka.broker.deduplication.journal import SequenceJournal
from pulsar_on_kafka.broker.metadata.producers.fence_log import TakeOverFences
from pulsar_on_kafka.broker.metadata.producers.fence_view import HeartbeatsAndFences, KnownTakeOvers
from pulsar_on_kafka.broker.metadata.producers.fences import Fences
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.cross_cluster.target_topic import Target
from pulsar_on_kafka.service.replication.copying import Copying
from pulsar_on_kafka.service.replication.partition_copier import Lane, ReplicationCursor
from pulsar_on_kafka.statelog.view import LogView
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.records.epoch_fences import begun_by
from pulsar_on_kafka_mapping.state.state_topics import PRODUCERS
from tests.copied_records import CopiedRecord
from tests.memory_log import MemoryStateLog
from tests.seeds import in_three
from tests.simulation.turns import NEVER, ManualClock

NAME = TopicName.parse("copied")
TOPIC = Topic(NAME, "copied", "id", 1, False, LedgerLayout(7, 50_000))
IDENTITY = CursorIdentity("t", 0, "pulsar.repl.us", "k", "i", 1, 9, 100)
LIFE = 5


class TargetLog:
    """The target's partition. `between` is called before each answer of the broker."""

    def __init__(self, between: Callable[[], None]) -> None:
        self.records: list[CopiedRecord] = []
        self._between = between

    def append(self, value: bytes | None, headers: Any) -> CopiedRecord:
        self.records.append(CopiedRecord(len(self.records), value, headers))
        return self.records[-1]

    def log_start(self, topic: str, partition: int, deadline: Deadline) -> int:
        return 0

    def start_offsets(self, topic: str, partitions: Collection[int], deadline: Deadline) -> Mapping[int, int]:
        self._between()
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, topic: str, partitions: Collection[int], deadline: Deadline) -> Mapping[int, int]:
        self._between()
        return dict.fromkeys(partitions, len(self.records))

    def watermarks(self, topic: str, partition: int, deadline: Deadline) -> tuple[int, int]:
        return 0, len(self.records)

    def read(self, topic: str, partition: int, start: int, end: int, deadline: Deadline) -> Iterator[list[Any]]:
        for first in range(start, end, 3):
            self._between()
            yield self.records[first : min(first + 3, end)]


class Process:
    """A process with its producer, whose appends are executed in order, each at any time."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.sent: deque[tuple[bytes | None, Any, Callable[[Any, Any], None]]] = deque()
        self.reports: deque[Callable[[], None]] = deque()
        self.lane: Lane | None = None
        self.version = 0
        """The version of the cursor's owner that it is or was; what it does later is for nothing."""
        self.alive = True
        journal = SequenceJournal(
            history.state, history.log, cast("Any", history.log), ManualClock(), cast("Any", None),
            cast("Any", None), cast("Any", None), cast("Any", None),
        )  # fmt: skip
        node = SimpleNamespace(
            sequences=journal,
            limits=SimpleNamespace(of=lambda *_: SimpleNamespace(refuse=lambda _: None)),
            producers=SimpleNamespace(take_overs=history.take_overs),
            fetcher=history.log,
            producer=lambda *_: self,
        )
        self.target = Target(cast("Any", node), TOPIC, "eu", LIFE, "none")

    # As a `KafkaProducer` -----------------------------------------------------------------------------------------

    def produce(self, _topic: str, value: Any, _key: Any, _partition: int, delivered: Any, *rest: Any) -> None:
        self.sent.append((value, rest[-1], delivered))

    def poll_inline(self) -> None:
        """Reports come when the history says so."""

    def append(self, *append: Any) -> int:
        """A marker; what was sent before is stored before."""
        self._history.between()
        while self.sent:
            self.execute_one()
        offset = self._history.log.append(None, append[-1]).offset()
        self._history.between()
        return offset

    def execute_one(self) -> None:
        value, headers, delivered = self.sent.popleft()
        record = self._history.log.append(value, headers)
        self.reports.append(lambda: delivered(None, record))

    def drain(self) -> None:
        while self.sent:
            self.execute_one()
        while self.reports:
            self.reports.popleft()()

    # As a `ReplicatorSession` -------------------------------------------------------------------------------------

    def take_over(self) -> None:
        history = self._history
        history.version += 1
        version = self.version = history.version
        found = RecoveredCursor(CursorState(history.place, 50_000), None, "commit", version)
        lane = Lane(0, ReplicationCursor(IDENTITY, found), "copied", lambda _: (), lambda _: cast("Any", None))
        copied = self.target.take_over(0, lane.cursor.epoch, NEVER)
        if version == history.version:  # otherwise the group rejects the second commit
            copying = Copying("eu", "us", 0, LIFE, lane.cursor.epoch, lambda header: header, lambda **_: None)
            lane.begin(copying, copied)
            self.lane = lane

    @property
    def owns(self) -> bool:
        return self.lane is not None and self.version == self._history.version

    def send(self, most: int) -> None:
        assert self.lane is not None
        first = self.lane.read_position
        records = [CopiedRecord(n, b"%d" % n) for n in range(first, min(first + most, self._history.published))]
        if records:
            self.lane.send(records, cast("Any", self))
            self.lane.read_position = records[-1].offset() + 1

    def save_place(self) -> None:
        if self.owns:
            assert self.lane is not None
            self._history.place = max(self._history.place, self.lane.done_upto().highest + 1)

    def hand_over(self, *, drained: bool) -> None:
        """Also long after another process took over: then only the snapshot is written."""
        lane = self.lane
        assert lane is not None
        if drained:
            self.drain()
        lane.save_last_snapshot(self.target, NEVER)
        self.save_place()
        if self.lane is lane:
            self.lane = None


class History:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.state = MemoryStateLog(ManualClock())
        self.log = TargetLog(self.between)
        self.view = LogView(self.state, PRODUCERS, PRODUCERS.partition_for(str(NAME)), HeartbeatsAndFences,
                            ManualClock())  # fmt: skip
        self.take_overs = TakeOverFences(self.state, self.log, self.log, self._known)
        self.published = self.place = self.version = 0
        """How many records the source has, what the group says of the cursor's place, and its owner's version."""
        self.owner = Process(self)
        self.processes = [self.owner]
        self._nested = 0

    def _known(self, topic: str, question: Callable[[KnownTakeOvers], Any], _deadline: Deadline) -> Any:
        return self.view.query(lambda state: question(state.take_overs.get(topic, KnownTakeOvers())), NEVER)

    def between(self) -> None:
        """What others do before the broker answers, which may be to take over."""
        if self._nested < 2 and self.rng.random() < 0.2:
            self._nested += 1
            self.step()
            self._nested -= 1

    def step(self) -> None:
        draw = self.rng.random()
        if draw < 0.2:
            self.published += self.rng.randrange(60)
        elif draw < 0.21:
            self.state.compact(self.rng)
        elif draw < 0.24:
            self.move()
        else:
            self.step_of(self.rng.choice(self.processes), self.rng.random())
        if self.owner.lane is None and not self._nested:
            self.move()

    def step_of(self, process: Process, draw: float) -> None:
        many, lane = self.rng.randrange(80), process.lane
        if draw < 0.3:  # also of a dead process
            for _ in range(min(many, len(process.sent))):
                process.execute_one()
        elif draw < 0.5 and process.alive:
            for _ in range(min(many, len(process.reports))):
                process.reports.popleft()()
        elif draw < 0.55:
            self.die(process)
        elif lane is None:
            return
        elif draw < 0.75:
            process.send(1 + many)
        elif draw < 0.85:
            lane.save_snapshot(process.target, NEVER)
        elif draw < 0.91:
            process.save_place()
        else:
            process.hand_over(drained=self.rng.random() < 0.6)

    def die(self, process: Process) -> None:
        """Some of what it had sent may still arrive."""
        process.alive, process.lane = False, None
        while process.sent and self.rng.random() < 0.5:
            process.sent.pop()

    def move(self) -> None:
        """To another process, or to one that was the owner before; the owner may not know."""
        alive = [each for each in self.processes if each.alive]
        if not alive or self.rng.random() < 0.5:
            alive = [Process(self)]
            self.processes += alive
        self.owner = self.rng.choice(alive)
        self.owner.lane = None
        self.owner.take_over()

    def play(self) -> None:
        for _ in range(60):
            self.step()
        self._nested = 2
        while not self.owner.owns:
            self.move()
        self.owner.send(self.published)
        for process in self.rng.sample(self.processes, len(self.processes)):
            while process.sent:
                process.execute_one()
        assert self.seen() == list(range(self.published))

    def seen(self) -> list[int]:
        fences = Fences(self.take_overs.of_partitions(TOPIC, [0], NEVER)[0])
        records = self.log.records
        odd: Iterable[int] = [i for i, record in enumerate(records) if begun_by(record.headers()) is not None]
        return [int(value) for record in fences.valid(records, odd) if (value := record.value()) is not None]


@pytest.mark.parametrize("seeds", in_three(250, range(3000)), ids=str)
def test_each_record_is_copied_once_whoever_dies_or_hands_over(seeds: range) -> None:
    for seed in seeds:
        try:
            History(seed).play()
        except AssertionError as failure:
            raise AssertionError(f"seed {seed}: {failure}") from failure
