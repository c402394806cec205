"""Random histories: the data source, the JVM path and the subscription's next consumer have the same messages."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest
from pyspark.sql import SparkSession

from pulsar_on_kafka.spark import read_pulsar
from tests.spark.histories import (
    History,
    Row,
    Stage,
    by_topic,
    difference,
    options_of,
    play,
    row_of,
    row_of_message,
    rows_of_source,
)
from tests.steps import Unique

_SEEDS: Final = 3_000
_SHORT: Final = 30
_TOGETHER: Final = 99
_PROPERTIES: Final = 6
_STEPS: Final = 8
_SIDE_BY_SIDE: Final = 33
_IN_ONE_JOB: Final = 5


class Bounds:
    """Random bounds for one history: messages at which a read begins and ends, by partition."""

    def __init__(self, rows: Sequence[Row], chance: random.Random) -> None:
        self.start: dict[str, list[int]] = {}
        self.end: dict[str, list[int]] = {}
        self.rows: list[Row] = []
        for topic in sorted({str(row[3]) for row in rows}):
            of_topic = sorted((row for row in rows if row[3] == topic), key=_place)
            low = chance.randrange(len(of_topic)) if chance.random() < 0.7 else None
            high = chance.randrange(low or 0, len(of_topic)) if chance.random() < 0.7 else None
            for at, bounds in ((low, self.start), (high, self.end)):
                if at is not None:
                    bounds[topic] = [*bytes(of_topic[at][0])]  # type: ignore[call-overload]
            self.rows += of_topic[low : None if high is None else high + 1]


def _place(row: Row) -> tuple[int, int]:
    return int(row[9]), int(row[10])  # type: ignore[call-overload]


def compare(stage: Stage, threads: ThreadPoolExecutor, histories: Sequence[History], chance: random.Random) -> int:
    """Compares the source with consumers, for the whole and within bounds; returns the number of rows."""
    options = options_of(stage, histories)
    found = by_topic(rows_of_source(options))
    counts = [found.get(history.topic, Counter()).total() for history in histories]
    left = list(threads.map(History.left, histories, counts))
    wanted = {h.topic: Counter(map(row_of_message, messages)) for h, messages in zip(histories, left, strict=True)}
    _check(histories, found, wanted)
    bounds = {topic: Bounds(list(rows), chance) for topic, rows in wanted.items()}
    within = {
        "startingOffsets": json.dumps({name: at for each in bounds.values() for name, at in each.start.items()}),
        "endingOffsets": json.dumps({name: at for each in bounds.values() for name, at in each.end.items()}),
        "minPartitions": str(chance.randrange(1, 200)),
    }
    bounded = by_topic(rows_of_source({**options, **within}))
    _check(histories, bounded, {topic: Counter(each.rows) for topic, each in bounds.items()})
    return sum(counts)


def _check(histories: Sequence[History], found: dict[str, Counter[Row]], wanted: dict[str, Counter[Row]]) -> None:
    told = {h.topic: difference(found.get(h.topic, Counter()), wanted.get(h.topic, Counter())) for h in histories}
    assert not any(told.values()), {topic: text for topic, text in told.items() if text}


def _readable(row: Row) -> Row:
    """A row of the JVM path without the headers whose name is no UTF-8. Kafka's Java client returns such a name with
    replacement characters; all others omit the header."""
    properties: Sequence[tuple[str, str]] = row[_PROPERTIES]  # type: ignore[assignment]
    kept = tuple(each for each in properties if "\ufffd" not in each[0])
    return (*row[:_PROPERTIES], kept, *row[_PROPERTIES + 1 :])


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
def test_rows_are_what_the_next_consumer_gets(spark: SparkSession, stage: Stage, unique: Unique, seeds: range) -> None:
    """Each history has its own topic. One job of the JVM path reads a sample of them."""
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as threads:
        histories = play(stage, threads, {seed: unique(f"seed{seed}") for seed in seeds}, _STEPS)
        compare(stage, threads, histories, random.Random(seeds[0]))
        options = options_of(stage, histories[:_IN_ONE_JOB])
        rows = by_topic(_readable(row_of(row.asDict())) for row in read_pulsar(spark, **options).collect())
        _check(histories[:_IN_ONE_JOB], rows, by_topic(rows_of_source(options)))
        list(threads.map(History.end, histories))
