"""Sealing aborted transactions, on the state log in memory."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

import pytest
from pyroaring import BitMap64

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import StoreError
from pulsar_on_kafka.broker.transactions.buffer.entries import BufferEntries
from pulsar_on_kafka.broker.transactions.records.views import TransactionViews
from pulsar_on_kafka.broker.transactions.upkeep.sealing import Sealing
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.state_keys import encode_key
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_BUFFER_SNAPSHOT
from pulsar_on_kafka_mapping.state.transactions.transaction_buffer import AbortedEntry, BufferEntry, buffer_records
from tests.clocks import PacedClock
from tests.memory_log import MemoryStateLog
from tests.unit.broker.transactions.buffer_records import HERE, aborted, key_of, opened, txn

NEVER = Deadline.never()
PARTITION = TRANSACTION_BUFFER_SNAPSHOT.partition_for(HERE.topic)
T1, T2 = txn(1), txn(2)
LATE_UNTIL_MS = 5_000_000


class Data:
    """One data partition: the transaction of each record."""

    def __init__(self) -> None:
        self.records: list[TxnId | None] = []
        self.life: int | None = HERE.incarnation
        self.bounded = True
        self.reads: list[tuple[int, int]] = []
        self.trouble = 0

    def incarnation(self, topic: str, deadline: Deadline) -> int | None:
        return self.life

    def bounds_lateness(self, topic: str, deadline: Deadline) -> bool:
        return self.bounded

    def end_offset(self, topic: str, partition: int, deadline: Deadline) -> int:
        return len(self.records)

    def find(
        self, topic: str, partition: int, start: int, end: int, txns: Set[TxnId], deadline: Deadline
    ) -> Mapping[TxnId, BitMap64]:
        if self.trouble:
            self.trouble -= 1
            raise StoreError("not now")
        self.reads.append((start, end))
        found: dict[TxnId, BitMap64] = {}
        for offset, each in enumerate(self.records[start:end], start):
            if each is not None and each in txns:
                found.setdefault(each, BitMap64()).add(offset)
        return found


class Rig:
    def __init__(self) -> None:
        self.clock = PacedClock()
        self.log = MemoryStateLog(self.clock)
        self.views = TransactionViews(self.log, self.clock)
        self.data = Data()
        self.sealing = self.another("seal")

    def another(self, session: str) -> Sealing:
        return Sealing(self.log, self.views, self.data, self.clock, session)

    def put(self, entry: BufferEntry, which: TxnId = T1, session: str = "aa") -> None:
        if isinstance(entry, AbortedEntry):
            entry = replace(entry, late_until_ms=LATE_UNTIL_MS)
        for key, value in buffer_records(key_of(which, entry, session), entry):
            self.log.append(TRANSACTION_BUFFER_SNAPSHOT, PARTITION, encode_key(key), value, NEVER)

    def run(self) -> int:
        return self.sealing.run([PARTITION], NEVER)

    def entry(self, which: TxnId = T1) -> AbortedEntry:
        found = self.ask().aborted(HERE, which)
        assert found is not None
        return found

    def ask(self) -> BufferEntries:
        return self.views.buffers.query_partition(PARTITION, lambda entries: entries, NEVER)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_late_records_are_named_once_none_can_come_any_more(rig: Rig) -> None:
    rig.data.records = [None, T1, T2, T1, None]
    rig.put(aborted([1], sealed=False, bound=1, end=2))
    rig.put(aborted([], sealed=False, bound=2, end=2), T2)
    assert rig.run() == 0
    rig.data.records += [T1]
    rig.clock.ms = LATE_UNTIL_MS + 1
    assert rig.run() == 2
    assert (list(rig.entry().offsets), rig.entry().sealed, rig.entry().lower_bound) == ([1, 3, 5], True, 1)
    assert (list(rig.entry(T2).offsets), rig.entry(T2).sealed) == ([2], True)
    assert rig.ask().count() == 2, "what the sealed entries replace is gone"
    assert rig.ask().snapshot(HERE).unsealed == {}
    assert rig.data.reads == [(1, 6)]
    assert rig.run() == 0


def test_what_was_known_and_left_the_log_stays_named(rig: Rig) -> None:
    rig.data.records = [None] * 8
    rig.put(aborted([2, 3], sealed=False, bound=2, end=4))
    rig.clock.ms = LATE_UNTIL_MS + 1
    assert rig.run() == 1
    assert list(rig.entry().offsets) == [2, 3]


@pytest.mark.parametrize("why", ["unbounded", "deleted", "unknown time", "sealed"])
def test_others_are_left_alone(rig: Rig, why: str) -> None:
    rig.data.records = [T1]
    rig.clock.ms = LATE_UNTIL_MS + 1
    rig.put(aborted([0], sealed=why == "sealed"))
    if why == "unknown time":
        entry = aborted([0], sealed=False)
        ((key, value),) = buffer_records(key_of(T1, entry), entry)
        rig.log.append(TRANSACTION_BUFFER_SNAPSHOT, PARTITION, encode_key(key), value, NEVER)
    rig.data.bounded = why != "unbounded"
    rig.data.life = None if why == "deleted" else HERE.incarnation
    assert rig.run() == 0
    assert rig.ask().count() == 1
    assert rig.data.reads == []


@pytest.mark.parametrize("bounded", [True, False])
def test_what_a_former_life_left_becomes_an_entry_of_the_present_one(rig: Rig, bounded: bool) -> None:
    rig.data.records = [None, T1, T2]
    rig.data.bounded = bounded
    rig.put(aborted([40], sealed=False, bound=30, life=6))
    rig.put(aborted([41], sealed=False, bound=30, life=5), session="bb")
    rig.put(aborted([2], sealed=False, bound=2), T2)
    rig.clock.ms = LATE_UNTIL_MS + 1
    assert rig.run() == (2 if bounded else 1)
    entry = rig.entry()
    assert (list(entry.offsets), entry.lower_bound, entry.end, entry.sealed) == ([1], 0, 3, bounded)
    assert rig.ask().count() == 2
    assert rig.run() == 0


def test_a_reading_that_failed_goes_on_where_it_was(rig: Rig) -> None:
    rig.data.records = [T1] + [None] * 150_000 + [T1]
    rig.put(aborted([0], sealed=False))
    rig.put(opened(0), T2)
    rig.clock.ms = LATE_UNTIL_MS + 1
    rig.data.trouble = 1
    assert rig.run() == 0
    assert rig.sealing.run([PARTITION], Deadline.after(0)) == 0
    assert rig.run() == 1
    assert rig.data.reads == [(0, 100_000), (100_000, 150_002)]
    assert list(rig.entry().offsets) == [0, 150_001]


def test_two_that_seal_the_same_leave_a_sealed_entry(rig: Rig) -> None:
    rig.data.records = [T1, T1]
    rig.put(aborted([0], sealed=False))
    rig.clock.ms = LATE_UNTIL_MS + 1
    other = rig.another("other")
    reading = rig.sealing._read(PARTITION, HERE, rig.clock.ms, NEVER)
    assert reading is not None
    assert other.run([PARTITION], NEVER) == 1
    assert rig.sealing._seal(PARTITION, HERE, reading, NEVER) == 1
    assert (list(rig.entry().offsets), rig.entry().sealed) == ([0, 1], True)
