"""Copies are found by the places of their originals, whatever else lies between them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.lookup.replica_index import Copies
from pulsar_on_kafka_mapping.records.original_position import OriginalPosition, encode_original
from pulsar_on_kafka_mapping.records.record_headers import ORIGINAL_ID, REPLICATED_FROM

LATER = Deadline.after(1000)


class Record:
    def __init__(self, offset: int, source: str, original: OriginalPosition | None) -> None:
        self._offset = offset
        self._headers: list[tuple[str, bytes]] = []
        if original is not None:
            self._headers = [(REPLICATED_FROM, source.encode()), (ORIGINAL_ID, encode_original(original))]

    def offset(self) -> int:
        return self._offset

    def headers(self) -> list[tuple[str, bytes]]:
        return self._headers


class Partition:
    """Some offsets hold no record any more."""

    def __init__(self, records: dict[int, Record]) -> None:
        self.records = records
        self.readings = 0

    def read(self, topic: str, partition: int, start: int, end: int, deadline: Deadline) -> Iterator[list[Any]]:
        self.readings += 1
        found = [self.records[offset] for offset in range(start, end) if offset in self.records]
        yield found[:3]
        yield found[3:]


@pytest.mark.parametrize("seed", range(60))
def test_as_looking_at_every_record(seed: int) -> None:
    """Copies of two lives of the topic, of another cluster, records of this one, and offsets without any."""
    draw = random.Random(seed)
    records: dict[int, Record] = {}
    truth: list[tuple[int, tuple[int, int]]] = []
    life, place = 5, -1
    for offset in range(draw.choice((0, 1, 10, 300))):
        kind = draw.choice(("copy", "copy", "other", "local", "nothing"))
        if draw.random() < 0.02:
            life, place = life + 1, -1
        if kind == "copy":
            place += draw.choice((1, 1, 1, 7))
            truth.append((offset, (life, place)))
            records[offset] = Record(offset, "west", OriginalPosition(place, 0, life, 3))
        elif kind == "other":
            records[offset] = Record(offset, "north", OriginalPosition(draw.randrange(9), 0, 9, 3))
        elif kind == "local":
            records[offset] = Record(offset, "", None)
    partition = Partition(records)
    copies = Copies(partition, "orders", 0, "west")
    end = max(records, default=-1) + 1
    for wanted in [
        (life, place),
        (5, -1),
        (4, 10**9),
        (9, 0),
        *(each for _, each in draw.sample(truth, min(9, len(truth)))),
    ]:
        behind = max((offset + 1 for offset, each in truth if each <= wanted), default=0)
        exact = next((offset for offset, each in truth if each == wanted), None)
        partition.readings = 0
        assert copies.behind(wanted, 0, end, LATER) == behind
        assert partition.readings <= 12
        assert copies.of(wanted, 0, end, LATER) == exact
    several = [(life, place + 3), *(each for _, each in draw.sample(truth, min(20, len(truth))))]
    assert copies.of_each(several, 0, end, LATER) == {each: offset for offset, each in truth if each in several}


def test_several_that_lie_near_each_other_are_found_by_one_look() -> None:
    records = {n: Record(n, "west", OriginalPosition(2 * n, 0, 5, 1)) for n in range(20_000)}
    partition = Partition(records)
    wanted = [(5, n) for n in range(20_000, 20_200)] + [(5, 3)]
    found = Copies(partition, "orders", 0, "west").of_each(wanted, 0, 20_000, LATER)
    assert found == {(5, 2 * n): n for n in range(10_000, 10_100)}
    assert partition.readings < 60, "not each by itself"
