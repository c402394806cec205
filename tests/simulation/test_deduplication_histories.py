"""The real journal and the real rule under random histories: crashes at every point, lost answers, retries.

A producer of one name sends the ids 0, 1, 2 ... in order, repeats some, and sends again what failed. Whoever opens the
name after a crash goes on behind the id that it is told. In the end the log must hold every id once.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from layer.deadline import Deadline
from layer.deduplication.journal import Recovered, SequenceJournal
from layer.deduplication.machine import PartitionSequences, Verdict
from layer.metadata.topics import Topic
from layer.statelog.memory_log import MemoryStateLog
from mapping.headers import PRODUCER
from mapping.ledger import LedgerLayout
from mapping.state_topics import PRODUCERS
from mapping.topic_name import TopicName
from tests.simulation.turns import ManualClock

NAME = "author"


@pytest.fixture(autouse=True)
def no_stragglers(monkeypatch: pytest.MonkeyPatch) -> None:
    """This log holds nothing back."""
    monkeypatch.setattr("layer.deduplication.journal.STRAGGLERS_S", 0.0)


TOPIC = Topic(TopicName.parse("orders"), "public.default.orders", "id", 1, False, LedgerLayout(7, 50_000))


class Record:
    def __init__(self, offset: int, sequence: int, name: str) -> None:
        self._offset = offset
        self.sequence = sequence
        self.name = name

    def offset(self) -> int:
        return self._offset

    def headers(self) -> list[tuple[str, bytes | None]]:
        return [(PRODUCER, f"{self.sequence}:3:{self.name}".encode())]


class DataLog:
    """One partition in memory."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def append(self, sequence: int, name: str) -> int:
        self.records.append(Record(len(self.records), sequence, name))
        return len(self.records) - 1

    def ids(self) -> list[int]:
        return [record.sequence for record in self.records if record.name == NAME]

    def start_offsets(self, topic: str, partitions: Iterable[int], deadline: Deadline) -> Mapping[int, int]:
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, topic: str, partitions: Iterable[int], deadline: Deadline) -> Mapping[int, int]:
        return dict.fromkeys(partitions, len(self.records))

    def read(self, topic: str, partition: int, start: int, end: int, deadline: Deadline) -> Iterator[Sequence[Record]]:
        for first in range(start, end, 3):
            yield self.records[first : min(first + 3, end)]


@dataclass
class History:
    seed: int
    wanted: int = 40
    log: DataLog = field(default_factory=DataLog)
    epoch: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        clock = ManualClock()
        self.state = MemoryStateLog(clock)
        self.journal = SequenceJournal(self.state, self.log, self.log, clock)

    def open(self) -> None:
        self.epoch += 1
        if self.rng.random() < 0.5:  # another process
            self.journal = SequenceJournal(self.state, self.log, self.log, ManualClock())
        found = self.journal.recover(TOPIC, NAME, self.epoch, [0], Deadline.after(5))[0]
        assert found.highest == max(self.log.ids(), default=-1), f"seed {self.seed}"
        self.known = PartitionSequences(found.highest, found.upto)
        self.next = found.highest + 1
        self.under_way: list[int] = []
        self.failed: list[int] = []

    def send(self, sequence: int) -> None:
        verdict = self.known.judge(sequence)
        if verdict is Verdict.UNKNOWN:
            found, end = self.journal.firsts(TOPIC, 0, NAME, self.known.read_from, Deadline.after(5))
            self.known.found(found, end)
            verdict = self.known.judge(sequence)
        if verdict is Verdict.DUPLICATE:
            assert sequence in self.log.ids(), f"seed {self.seed}: {sequence} was taken for a duplicate"
        elif verdict is Verdict.NEW:
            self.known.taken(sequence)
            self.under_way.append(sequence)

    def step(self) -> None:
        what = self.rng.choice("sssssrraaaaaaanoftcx")
        if what == "s" and self.failed:
            self.send(self.failed.pop(0))
        elif what == "s" and self.next < self.wanted:
            self.send(self.next)
            self.next += 1
        elif what == "r" and self.next:
            repeated = self.rng.randrange(self.next)
            if repeated not in self.failed:  # or a crash right after it would hide what failed below it, as in Pulsar
                self.send(repeated)
        elif what == "a" and self.under_way:
            sequence = self.under_way.pop(0)
            offset = self.log.append(sequence, NAME)
            self.known.stored_at((sequence,), offset if self.rng.random() < 0.9 else None)
        elif what == "o":
            self.log.append(self.rng.randrange(self.wanted), self.rng.choice(["other", "co-" + NAME]))
        elif what == "n" and self.known.settled:
            noted = Recovered(self.known.stored, len(self.log.records))
            self.journal.save(TOPIC, NAME, self.epoch, {0: noted}, Deadline.after(5), final=False)
        elif what in "ft" and self.under_way:
            self.fail(certainly=what == "f")
        elif what == "c":
            self.crash()
        elif what == "x" and not self.under_way and not self.failed and self.known.settled:
            noted = Recovered(self.known.stored, len(self.log.records))
            self.journal.save(TOPIC, NAME, self.epoch, {0: noted}, Deadline.after(5), final=True)
            self.open()
        if self.rng.random() < 0.1:
            self.state.compact(self.rng)

    def fail(self, *, certainly: bool) -> None:
        """All that is under way fails; without certainty some of it may have been stored."""
        stored = 0 if certainly else self.rng.randint(0, len(self.under_way))
        for at, sequence in enumerate(self.under_way):
            if at < stored:
                self.log.append(sequence, NAME)
            self.known.failed((sequence,), certainly=certainly)
            self.failed.append(sequence)
        self.failed.sort()
        self.under_way = []

    def crash(self) -> None:
        """Of what was under way a beginning is stored, and nobody heard of it."""
        for sequence in self.under_way[: self.rng.randint(0, len(self.under_way))]:
            self.log.append(sequence, NAME)
        self.open()

    def play(self) -> None:
        self.open()
        for _ in range(200):
            self.step()
        for _ in range(3):
            while self.failed or self.next < self.wanted:
                sequence = self.failed.pop(0) if self.failed else self.next
                self.next = max(self.next, sequence + 1)
                self.send(sequence)
            while self.under_way:
                sequence = self.under_way.pop(0)
                self.known.stored_at((sequence,), self.log.append(sequence, NAME))
        assert sorted(self.log.ids()) == list(range(self.wanted)), f"seed {self.seed}: {self.log.ids()}"
        assert self.known.settled


@pytest.mark.parametrize("block", range(4))
def test_every_id_is_stored_once_whatever_crashes(block: int) -> None:
    for seed in range(block * 250, block * 250 + 250):
        History(seed).play()


@pytest.mark.soak
def test_many_more_histories() -> None:
    for seed in range(1_000, 20_000):
        History(seed).play()


def test_a_paused_former_holder_does_not_disturb_the_next_one() -> None:
    history = History(1)
    history.open()
    for sequence in range(5):
        history.log.append(sequence, NAME)
    history.open()
    # The former holder wakes up and writes down what it believes.
    former = {0: Recovered(99, len(history.log.records) + 10)}
    history.journal.save(TOPIC, NAME, history.epoch - 1, former, Deadline.after(5), final=True)
    history.open()
    assert history.known.stored == 4


def test_a_name_that_went_on_without_deduplication_begins_anew() -> None:
    history = History(1)
    history.open()
    history.log.append(5, NAME)
    history.journal.forget(TOPIC, NAME, Deadline.after(5))
    history.log.append(77, NAME)
    found = history.journal.recover(TOPIC, NAME, 9, [0], Deadline.after(5))
    assert found == {0: Recovered(-1, 2)}


def test_only_the_newest_snapshot_stays() -> None:
    history = History(1)
    for _ in range(5):
        history.open()
    partition = PRODUCERS.partition_for(str(TOPIC.name))
    end = history.state.end_offset(PRODUCERS, partition, Deadline.after(5))
    left: dict[bytes, bytes | None] = {}
    for batch in history.state.read(PRODUCERS, partition, 0, end, Deadline.after(5)):
        left.update((record.key, record.value) for record in batch)
    assert len([key for key, value in left.items() if value is not None]) == 1
