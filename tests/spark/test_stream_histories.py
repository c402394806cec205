"""Random histories of streams: the data source's reader, driven as Spark drives it, with restarts, repeated plans and
processes that die between a commit and its acknowledgements."""

from __future__ import annotations

import json
import pickle
import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka_spark.source.source_plans import columns_now
from pulsar_on_kafka_spark.source.stream_reader import HAS_LIMITS, StreamReader, stream_reader
from tests.spark.histories import History, Row, Stage, options_of, rows_of_plans, rows_of_source
from tests.steps import Unique
from tests.waiting import until

_SEEDS: Final = 304
_SHORT: Final = 4
_TOGETHER: Final = 20
_SIDE_BY_SIDE: Final = 10
_ROUNDS: Final = 10


def all_available() -> Any:
    """Spark's limit for `Trigger.Once`, from version 4.2 on."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    return ReadAllAvailable()


class ProcessDied(Exception):
    pass


class Query:
    """The micro-batches of one query. Its logs survive when its process dies. Source: MicroBatchExecution."""

    def __init__(self, options: dict[str, str], chance: random.Random, *, limits: bool) -> None:
        self._limits = limits
        self._made = (stream_reader if limits else StreamReader)(options, columns_now(options))
        self._chance = chance
        self.offsets: list[Any] = []
        self.delivered: Counter[Row] = Counter()
        """The rows of completed batches."""
        self.completed = 0
        self.last: Counter[Row] = Counter()
        """The rows of the batch that was read last."""
        self.last_ids: set[object] = set()
        self.excluded: set[bytes] = set()
        """The ids that were acknowledged before the batch was planned."""
        self._reader: Any = None

    def runs(self) -> bool:
        """Whether a batch is planned and not completed."""
        return len(self.offsets) > self.completed

    def step(self, may_die: Callable[[], None] = lambda: None) -> bool:
        """Plans a batch, or completes one; False where there is nothing. `may_die` raises at some of these points."""
        reader = self._opened()
        if not self.runs():
            return self._planned(reader, may_die)
        start, end = self._start(reader), self.offsets[-1]
        rows = self._rows(reader, start, end)
        if self._chance.random() < 0.3:
            assert self._rows(reader, start, end) == rows, "a batch planned twice has other rows"
        assert not self.last or rows == self.last, "a repeated batch has other rows"
        self.last_ids = {row[0] for row in rows}
        assert not self.last_ids & self.excluded, "acknowledged messages are delivered"
        self.last = rows
        may_die()
        self.completed += 1
        self.delivered += rows
        self.last = Counter()
        return True

    def _planned(self, reader: Any, may_die: Callable[[], None]) -> bool:
        start = self._start(reader)
        if self._limits:
            limit = None if self._chance.random() < 0.1 else reader.getDefaultReadLimit()
            end = reader.latestOffset(start, limit or all_available())
        else:
            end = reader.latestOffset()
        if end == start:
            return False
        may_die()
        self.offsets.append(json.loads(json.dumps(end)))
        may_die()
        if len(self.offsets) > 1:
            reader.commit(self.offsets[-2])
        may_die()
        return True

    def _start(self, reader: Any) -> Any:
        before = self.offsets[: len(self.offsets) - self.runs()]
        return before[-1] if before else reader.initialOffset()

    def _rows(self, reader: Any, start: Any, end: Any) -> Counter[Row]:
        return Counter(rows_of_plans(reader.partitions(start, end)))

    def _opened(self) -> Any:
        if self._reader is None:
            self._reader = pickle.loads(pickle.dumps(self._made))  # noqa: S301
        return self._reader

    def stop(self) -> None:
        """The process ends; the next step has a new one."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.stop()


class StreamHistory:
    """One history with a query beside it, and what the query owes."""

    def __init__(self, stage: Stage, topic: str, seed: int) -> None:
        self.seed = seed
        self.history: History = stage.history(topic, seed)
        self.chance = self.history.chance
        self.history.delays = self.history.kind is pulsar.ConsumerType.Exclusive
        self.options = options_of(stage, [self.history])
        limited = HAS_LIMITS and seed % 4 != 3
        limits = self.chance.choice(_LIMITS) if limited else {}
        self.query = Query({**self.options, **limits}, self.chance, limits=limited)
        self.need: dict[object, int] = {}
        """By id: how often a message is to be delivered, where that is not once."""
        self.events: list[object] = []
        """What happened, for a failure's message."""
        self.again: Counter[object] = Counter()
        """By id: how many deliveries more than one may come."""

    def play(self, rounds: int) -> None:
        for _ in range(rounds):
            if self.chance.random() < 0.1 and not self.query.runs():
                self.seek()
            else:
                self.events.append(self.history.step(seeks=False))
            for _ in range(self.chance.randrange(4)):
                self.run(dies=True)
        self.history.stop_sending()
        for txn in self.history.open:
            txn.abort()
        self.history.open.clear()
        until(self.is_over, lambda: f"seed {self.seed}: {rows_of_source(self.options)[:3]} to be acknowledged")
        self.check()
        self.query.stop()

    def run(self, *, dies: bool) -> bool:
        if not self.query.runs():
            self.query.excluded = set(self.history.acknowledged)
        try:
            went = self.query.step(self.die if dies else lambda: None)
        except ProcessDied:
            self.query.stop()
            self.events.append("died")
            return True
        self.events.append((len(self.query.offsets), self.query.completed))
        if dies and self.chance.random() < 0.15:
            self.query.stop()
        return went

    def is_over(self) -> bool:
        while self.run(dies=False):
            pass
        return not rows_of_source(self.options)

    def die(self) -> None:
        if self.chance.random() < 0.1:
            raise ProcessDied

    def seek(self) -> None:
        """Messages that are owed again are to be delivered again, unless they are in the batch whose acknowledgements
        may come later; those that were passed need not be delivered."""
        before = {row[0] for row in rows_of_source(self.options)}
        self.history.seek()
        after = {row[0] for row in rows_of_source(self.options)}
        self.events.append(("seek", len(before), len(after)))
        for each in before - after:
            self.need[each] = 0
        count = Counter[object]()
        for row, times in self.query.delivered.items():
            count[row[0]] += times
        for each in after:
            self.again[each] += 1
            self.need[each] = (
                0 if each in self.query.last_ids else count[each] + (each not in before or not count[each])
            )
        self.history.acknowledged -= after

    def check(self) -> None:
        need: dict[object, int] = {**self.need}
        need.update((each, 0) for each in self.history.acknowledged)
        sent = Counter(rows_of_source({name: text for name, text in self.options.items() if name != "subscription"}))
        delivered = self.query.delivered
        unknown = delivered.keys() - sent.keys()
        assert not unknown, f"seed {self.seed}: never sent: {list(unknown)[:3]}"
        passed = self.history.passed
        missing = [
            row
            for row in sent
            if delivered[row] < need.get(row[0], 1) and int(str(row[9])) > passed.get(str(row[3]), -1)
        ]
        assert not missing, f"seed {self.seed}: {len(missing)} not delivered: {missing[:3]} after {self.events}"
        often = [(delivered[row], row) for row in sent if delivered[row] > 1 + self.again[row[0]]]
        assert not often, f"seed {self.seed}: {len(often)} delivered too often: {often[:3]}"


_LIMITS: Final[list[dict[str, str]]] = [{}, {"maxOffsetsPerTrigger": "7"}, {"maxOffsetsPerTrigger": "40"}]


@pytest.mark.parametrize(
    "seeds",
    [
        range(_SHORT),
        *(
            pytest.param(range(first, first + _TOGETHER), marks=(pytest.mark.soak, pytest.mark.timeout(0)))
            for first in range(_SHORT, _SEEDS, _TOGETHER)
        ),
    ],
    ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}",
)
def test_each_message_is_in_one_completed_batch_and_acknowledged(stage: Stage, unique: Unique, seeds: range) -> None:
    def one(seed: int) -> None:
        stream = StreamHistory(stage, unique(f"stream{seed}"), seed)
        stream.play(_ROUNDS)
        stream.history.end()

    with ThreadPoolExecutor(_SIDE_BY_SIDE) as threads:
        list(threads.map(one, seeds))
