"""Void records over random histories: producers die and are paused anywhere, readers begin anywhere, the log is cut,
what is on record is cleaned and compacted; all readers judge alike, by the offsets of the epochs' first records."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.producers.fence_log import FenceRecords
from pulsar_on_kafka.broker.metadata.producers.fence_view import Epoch, HeartbeatsAndFences, KnownFences
from pulsar_on_kafka.broker.metadata.producers.fences import Fences
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.statelog.api import put
from pulsar_on_kafka.statelog.view import LogView
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.records.record_headers import FENCE, PRODUCER
from pulsar_on_kafka_mapping.state.metadata.producer_records import EpochBounds, EpochFence
from pulsar_on_kafka_mapping.state.state_topics import PRODUCERS
from tests.memory_log import MemoryStateLog
from tests.seeds import in_three
from tests.simulation.turns import ManualClock

NEVER = Deadline.never()
HISTORIES = 3000
NAME = TopicName.parse("simulated")
TOPIC = Topic(NAME, "simulated", "id", 1, False, LedgerLayout(7, 50_000))


class Record:
    def __init__(self, offset: int, epoch: int, exclusive: bool) -> None:
        self.at = offset
        self.epoch = epoch
        self.exclusive = exclusive

    def offset(self) -> int:
        return self.at

    def headers(self) -> list[tuple[str, bytes | None]]:
        producer: list[tuple[str, bytes | None]] = [(PRODUCER, b"0:%d:p" % self.epoch)]
        return [*producer, (FENCE, b"")] if self.exclusive else producer


class Data:
    """The data partition; `between` is called in the middle of a reading."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.start = 0
        self.between: Callable[[], None] = lambda: None

    def append(self, epoch: int, exclusive: bool) -> int:
        self.records.append(Record(len(self.records), epoch, exclusive))
        return len(self.records) - 1

    def watermarks(self, topic: str, partition: int, deadline: Deadline) -> tuple[int, int]:
        return self.start, len(self.records)

    def read(self, topic: str, partition: int, start: int, end: int, deadline: Deadline) -> Iterator[list[Any]]:
        for at in range(max(start, self.start), end, 3):
            self.between()
            yield list(self.records[at : min(end, at + 3)])

    def start_offsets(self, topic: str, partitions: Sequence[int], deadline: Deadline) -> Mapping[int, int]:
        return {0: self.start}

    def end_offsets(self, topic: str, partitions: Sequence[int], deadline: Deadline) -> Mapping[int, int]:
        return {0: len(self.records)}


class ExclusiveProducer:
    """Writes its bounds, records, its fence, in this order and as far as it comes; it never hears of successors."""

    def __init__(self, number: int, records: FenceRecords, data: Data) -> None:
        self.epoch = Epoch(f"p{number}", number)
        self._records = records
        self._data = data
        self._first: int | None = None
        self._fenced = False
        self.over = False
        records.begin(TOPIC, self.epoch, NEVER)

    def step(self, rng: random.Random) -> None:
        draw = rng.random()
        if draw < 0.1:  # closes in good order
            if self._first is None or self._fenced:
                self._records.over(TOPIC, self.epoch, NEVER)
                self.over = True
        elif draw < 0.4 and self._first is not None:
            self._records.found(TOPIC, 0, self.epoch, self._first, NEVER)
            self._fenced = True
        else:
            offset = self._data.append(self.epoch.number, exclusive=True)
            self._first = offset if self._first is None else self._first


class History:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.log = MemoryStateLog(ManualClock())
        self.view = LogView(self.log, PRODUCERS, PRODUCERS.partition_for(str(NAME)), HeartbeatsAndFences, ManualClock())
        self.data = Data()
        self.records = FenceRecords(self.log, self.data, self.data, self.known)
        self.producers: list[ExclusiveProducer] = []
        self.readers: list[tuple[int, Fences]] = []
        self._nested = False

    def known(self, topic: str, question: Callable[[KnownFences], Any], deadline: Deadline) -> Any:
        return self.view.query(lambda state: question(state.fences.get(topic, KnownFences())), NEVER)

    def play(self) -> None:
        self.data.between = self.come_between
        for _ in range(60):
            self.step()
        for start, fences in self.readers:
            seen = [record for record in self.data.records if record.at >= start]
            valid = fences.valid(seen, [i for i, record in enumerate(seen) if record.exclusive])
            assert [record.at for record in valid] == [record.at for record in seen if not self.is_void(record)]

    def come_between(self) -> None:
        if not self._nested and self.rng.random() < 0.5:
            self._nested = True
            self.step()
            self._nested = False

    def step(self) -> None:
        rng = self.rng
        draw = rng.random()
        if draw < 0.1:
            self.producers.append(ExclusiveProducer(len(self.producers) + 1, self.records, self.data))
        elif draw < 0.5 and self.producers:
            producer = rng.choice(self.producers)
            if not producer.over:
                producer.step(rng)
        elif draw < 0.65:  # a Shared producer, perhaps one that was thrown out long ago
            self.data.append(rng.randrange(len(self.producers) + 1), exclusive=False)
        elif draw < 0.8:
            start = rng.randrange(self.data.start, len(self.data.records) + 1)
            self.readers.append((start, Fences(self.records.of_partitions(TOPIC, [0], NEVER)[0])))
        elif draw < 0.88:
            self.records.clean(TOPIC, NEVER)
        elif draw < 0.96:
            self.log.compact(rng)
        else:
            self.cut()

    def cut(self) -> None:
        """Retention; but not of a first record that nobody has found yet (see `KnownFences.unresolved`)."""
        known = self.known(str(NAME), lambda known: known.first(7, 0), NEVER)
        firsts = self.firsts()
        unknown = [
            at
            for epoch, at in firsts.items()
            if not any(e.number >= epoch and offset <= at for e, offset in known.items())
        ]
        limit = min(unknown, default=len(self.data.records))
        if not self._nested and limit > self.data.start:
            self.data.start = self.rng.randrange(self.data.start, limit + 1)

    def firsts(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for record in self.data.records:
            if record.exclusive:
                found.setdefault(record.epoch, record.at)
        return found

    def is_void(self, record: Record) -> bool:
        return any(epoch > record.epoch and at < record.at for epoch, at in self.firsts().items())


@pytest.mark.parametrize("seeds", in_three(250, range(HISTORIES)), ids=str)
def test_all_readers_judge_alike(seeds: range) -> None:
    for seed in seeds:
        try:
            History(seed).play()
        except AssertionError as failure:
            raise AssertionError(f"seed {seed}: {failure}") from failure


def test_cleaning_leaves_what_is_needed_and_no_more() -> None:
    known = KnownFences()
    for epoch, first in ((1, 10), (2, 20), (3, 15), (4, 40)):
        put(known.fences.setdefault(0, {}), Epoch("p", epoch), EpochFence(7, first))
    put(known.fences.setdefault(0, {}), Epoch("p", 0), EpochFence(6, 5))  # an earlier life
    put(known.bounds, Epoch("p", 2), EpochBounds(7, (18,)))
    put(known.bounds, Epoch("q", 5), EpochBounds(7, (41,)))

    def superfluous(log_start: int) -> list[tuple[str, int]]:
        return [(type(key).__name__, key.epoch) for key in known.superfluous("t", 7, {0: log_start})]

    assert superfluous(0) == [("ProducerKey", 2), ("ProducerKey", 0), ("ProducerBoundsKey", 2)]
    assert superfluous(15)[:2] == [("ProducerKey", 1), ("ProducerKey", 2)]
    assert ("ProducerKey", 4) not in superfluous(1000)
