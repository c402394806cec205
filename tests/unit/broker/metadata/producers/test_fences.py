"""Void records by random logs: judged batch by batch, from any start, they are those that the rule names."""

from __future__ import annotations

import random

from pulsar_on_kafka.broker.metadata.producers.fences import Fences
from pulsar_on_kafka_mapping.records.record_headers import FENCE, PRODUCER


class Record:
    def __init__(self, epoch: int | None, exclusive: bool) -> None:
        self.epoch = epoch
        self.exclusive = exclusive

    def headers(self) -> list[tuple[str, bytes]] | None:
        if self.epoch is None:
            return None
        producer = [(PRODUCER, b"7:%d:name:with:colons" % self.epoch)]
        return [*producer, (FENCE, b"")] if self.exclusive else producer


def naive(log: list[Record]) -> set[int]:
    void, highest = set(), 0
    for offset, record in enumerate(log):
        if record.epoch is not None and record.epoch < highest:
            void.add(offset)
        if record.exclusive and record.epoch is not None:
            highest = max(highest, record.epoch)
    return void


def test_five_thousand_logs_read_from_anywhere() -> None:
    for seed in range(5000):
        chance = random.Random(seed)
        exclusive = {epoch for epoch in range(1, 6) if chance.random() < 0.5}
        log = [
            Record(epoch, epoch in exclusive)
            for _ in range(40)
            for epoch in [chance.choice([None, 0, 0, 1, 2, 3, 4, 5])]
        ]
        first: dict[int, int] = {}
        for offset, record in enumerate(log):
            if record.exclusive and record.epoch is not None:
                first.setdefault(record.epoch, offset)
        start = chance.randrange(40)
        fences = Fences((offset, epoch) for epoch, offset in first.items() if offset < start)
        found: set[int] = set()
        position = start
        while position < len(log):
            end = min(len(log), position + chance.randrange(1, 9))
            offsets, records = list(range(position, end)), log[position:end]
            fences.learn(offsets, records, [i for i, record in enumerate(records) if record.exclusive])
            if fences:
                found.update(offsets[i] for i in fences.void_in(offsets, records))
            position = end
        assert found == {offset for offset in naive(log) if offset >= start}, f"seed {seed}"
