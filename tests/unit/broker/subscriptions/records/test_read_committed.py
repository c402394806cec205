"""Messages wait for the end of their transaction; the buffer is asked about it, and records are read again one by
one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from pyroaring import BitMap64

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.subscriptions.dispatching.redelivery_reads import RedeliveryReads
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.records import read_committed
from pulsar_on_kafka.broker.subscriptions.records.open_transactions import TransactionWaits
from pulsar_on_kafka.broker.subscriptions.records.read_committed import Passed, ReadCommitted
from pulsar_on_kafka.broker.transactions.buffer.entries import BufferEntries
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition, look_over
from pulsar_on_kafka.broker.transactions.records.views import BufferAccess
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.records.message_record import Headers
from pulsar_on_kafka_mapping.records.record_headers import TXN
from pulsar_on_kafka_mapping.records.transaction_headers import marker_headers
from tests.clocks import PacedClock
from tests.same_incarnation import SAME_INCARNATION
from tests.unit.broker.subscriptions.partition.test_owned_partition import a_partition
from tests.unit.broker.transactions.buffer_records import HERE, Entries, aborted, opened, txn

T1, T2 = txn(1), txn(2)


@dataclass
class Record:
    at: int
    found: Headers = field(default_factory=list)
    size: int = 10

    def __len__(self) -> int:
        return self.size

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes:
        return bytes(self.size)

    def headers(self) -> Headers:
        return self.found


def of(at: int, which: TxnId, size: int = 10) -> Record:
    return Record(at, [(TXN, which.to_bytes())], size)


def marker(at: int, which: TxnId, *, committed: bool) -> Record:
    return Record(at, marker_headers(which, committed=committed))


def take(committed: ReadCommitted, *records: Record) -> Passed:
    offsets = [record.at for record in records]
    return committed.take(offsets, list(records), look_over(offsets, records), offsets[-1] + 1)


@pytest.fixture
def committed() -> ReadCommitted:
    return ReadCommitted(HERE, lambda: 0)


@pytest.fixture
def entries() -> Entries:
    return Entries()


# What waits -----------------------------------------------------------------------------------------------------------


def test_plain_records_pass_as_they_are(committed: ReadCommitted) -> None:
    records = [Record(0), Record(1)]
    passed = take(committed, *records)
    assert (passed.offsets, passed.records, passed.upto) == ([0, 1], records, 2)
    assert not committed.in_use


def test_a_run_that_holds_the_marker_needs_no_question(committed: ReadCommitted) -> None:
    passed = take(committed, of(0, T1), of(1, T2), marker(2, T2, committed=False), marker(3, T1, committed=True))
    assert (passed.offsets, list(passed.excluded), passed.upto) == ([0], [1, 2, 3], 4)
    assert committed.waits_from is None


def test_everything_from_the_first_open_record_on_waits_for_its_marker(committed: ReadCommitted) -> None:
    assert take(committed, Record(0), of(1, T1), Record(2)).offsets == [0]
    assert (committed.waits_from, committed.waiting()) == (1, 2)
    assert take(committed, of(3, T2), marker(4, T2, committed=True)).offsets == []
    passed = take(committed, marker(5, T1, committed=True), Record(6))
    assert (passed.offsets, passed.upto, committed.waits_from) == ([1, 2, 3, 6], 7, None)


def test_what_is_on_record_lets_go_without_a_marker(committed: ReadCommitted, entries: Entries) -> None:
    entries.put(T1, opened(0))
    take(committed, of(0, T1), of(1, T2), Record(2))
    assert committed.unsettled() == [T1, T2]
    committed.learn(committed.unsettled(), entries)
    assert committed.release().offsets == []
    entries.put(T1, aborted([0]))
    committed.learn(committed.unsettled(), entries)
    passed = committed.release()
    assert (passed.offsets, list(passed.excluded), passed.upto) == ([1, 2], [0], 3)


def test_it_is_full_beyond_its_bytes_and_beyond_its_records(
    committed: ReadCommitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(committed, of(0, T1, size=read_committed.MAX_BYTES))
    assert not committed.full
    take(committed, of(1, T1, size=1))
    assert committed.full
    committed.rewind()
    assert not committed.full
    monkeypatch.setattr(read_committed, "MAX_RECORDS", 2)
    take(committed, of(0, T1), of(1, T1))
    assert not committed.full
    take(committed, of(2, T1))
    assert committed.full


def test_what_nobody_wants_any_more_does_not_wait(committed: ReadCommitted) -> None:
    take(committed, of(0, T1), of(1, T1), Record(2), of(3, T2))
    committed.forget_below(1)
    assert committed.waits_from == 1
    committed.forget_below(2)
    assert committed.release().offsets == [2]
    assert committed.waits_from == 3
    committed.forget_below(4)
    assert committed.waits_from is None


# When it is looked at again -------------------------------------------------------------------------------------------


class Access:
    """The buffer topic of one partition, or nobody who answers."""

    def __init__(self, entries: Entries) -> None:
        self.entries = entries
        self.asked = 0
        self.answers = True
        self.put: list[dict[TxnId, BitMap64]] = []
        self.told: list[set[TxnId]] = []

    def query(self, question: Callable[[BufferEntries], None], deadline: Deadline | None = None) -> None:
        self.asked += 1
        if not self.answers:
            raise errors.DeadlineExceeded("nobody answers")
        question(self.entries)

    def hold_up(self, txns: set[TxnId]) -> None:
        self.told.append(txns)

    def put_on_record(self, where: DataPartition, late: dict[TxnId, BitMap64]) -> None:
        if not self.answers:
            raise errors.DeadlineExceeded("nobody answers")
        self.put.append(late)


@dataclass
class Looks:
    clock: PacedClock
    access: Access
    looking: TransactionWaits


@pytest.fixture
def looks(entries: Entries) -> Looks:
    clock, access = PacedClock(), Access(entries)
    return Looks(clock, access, TransactionWaits("test", cast("BufferAccess", access), clock))


def test_the_same_blocker_is_asked_about_in_growing_intervals(
    looks: Looks, committed: ReadCommitted, entries: Entries
) -> None:
    entries.put(T1, opened(0))
    take(committed, of(0, T1))
    looks.looking.note(0, committed)
    waited = []
    for _ in range(6):
        assert not looks.looking.is_due(came=0)
        waited.append(round(looks.looking.in_s(), 3))
        looks.clock.ms += round(looks.looking.in_s() * 1000) + 1
        assert looks.looking.is_due(came=0)
        assert looks.looking.look_again({0: committed}, lambda partition: None)
        looks.looking.note(0, committed)
    assert waited == [0.02, 0.04, 0.08, 0.16, 0.2, 0.2]
    assert looks.access.asked == 6
    assert looks.access.told == [{T1}] * 6, "it may be abandoned"


def test_what_waits_is_counted_however_it_came(committed: ReadCommitted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_committed, "MAX_BYTES", 30)
    take(committed, of(0, T1, 20), of(1, T1, 20), of(2, T2))
    assert committed.full
    take(committed, of(3, T2), marker(4, T1, committed=True))
    assert (committed.waits_from, committed.waiting(), committed.full) == (2, 3, False)
    take(committed, of(5, T2))
    assert committed.full
    take(committed, marker(6, T2, committed=True), of(7, T1, 20), of(8, T1, 10))
    assert (committed.waits_from, committed.full) == (None, False)
    take(committed, Record(9), of(10, txn(3), 30), Record(11, size=1))
    assert (committed.waits_from, committed.full) == (10, True)


def test_nothing_is_asked_while_a_backlog_is_read(looks: Looks, committed: ReadCommitted) -> None:
    take(committed, of(0, T1))
    looks.looking.note(0, committed)
    looks.clock.ms += 1_000
    assert looks.looking.is_due(came=99)
    assert not looks.looking.is_due(came=100), "the marker is on its way"


def test_nothing_is_asked_when_nothing_waits_any_more(looks: Looks, committed: ReadCommitted) -> None:
    take(committed, of(0, T1))
    looks.looking.note(0, committed)
    assert looks.looking
    committed.rewind()
    assert looks.looking.look_again({0: committed}, lambda partition: None)
    assert (looks.access.asked, bool(looks.looking)) == (0, False)
    assert looks.looking.in_s() == float("inf")


def test_one_question_serves_all_partitions(looks: Looks, entries: Entries) -> None:
    partitions = {number: ReadCommitted(HERE._replace(partition=number), lambda: 0) for number in range(3)}
    for number, committed in partitions.items():
        take(committed, of(0, T1))
        looks.looking.note(number, committed)
    assert looks.looking.look_again(partitions, lambda partition: None)
    assert looks.access.asked == 1
    assert [each.release().offsets for each in partitions.values()] == [[0]] * 3


def test_while_nobody_answers_messages_wait(
    looks: Looks, committed: ReadCommitted, caplog: pytest.LogCaptureFixture
) -> None:
    take(committed, of(0, T1))
    looks.looking.note(0, committed)
    looks.access.answers = False
    assert not looks.looking.look_again({0: committed}, lambda partition: None)
    assert committed.release().offsets == []
    assert "their messages wait" in caplog.text
    assert round(looks.looking.in_s(), 3) == 1.0


def test_late_records_are_put_on_record_until_that_worked(looks: Looks, committed: ReadCommitted) -> None:
    take(committed, of(0, T1), marker(1, T1, committed=True), of(2, T1))
    assert committed.late == {T1: BitMap64([2])}
    looks.access.answers = False
    looks.looking.put_late_on_record([committed])
    assert committed.late
    looks.access.answers = True
    looks.looking.put_late_on_record([committed])
    looks.looking.put_late_on_record([committed])
    assert looks.access.put == [{T1: BitMap64([2])}]


# Records that are read again ------------------------------------------------------------------------------------------


class Fetcher:
    def __init__(self, *records: Record) -> None:
        self.records = records

    def read_at(self, topic: str, partition: int, offsets: Sequence[int], deadline: Deadline) -> Iterator[list[Record]]:
        yield [record for record in self.records if record.at in offsets]


def test_what_is_read_again_after_a_crash_may_be_open_or_aborted(looks: Looks, entries: Entries) -> None:
    """Nobody knows what the owner that crashed handed out, so a record may come this way that was never looked at."""
    owned: OwnedPartition = a_partition()
    where = owned.intake.committed.where
    open_one, lost, kept = txn(1), txn(2), txn(3)
    is_open = opened(0, life=where.incarnation)
    entries.put(open_one, is_open, where=where)
    entries.put(lost, replace(aborted([1]), incarnation=where.incarnation), where=where)
    records = (of(0, open_one), of(1, lost), of(2, kept), marker(3, lost, committed=False), Record(4))
    again = RedeliveryReads("t", cast("Any", Fetcher(*records)), looks.looking, SAME_INCARNATION)
    owned.redeliveries.waiting.update(range(5))
    found = again.read(owned, range(5))
    assert (sorted(found.records), found.gone) == ([2, 4], [1, 3])
    assert looks.access.asked == 1
    assert [owned.cursor.is_acknowledged(at) for at in range(5)] == [False, True, False, True, False]
    entries.drop(open_one, is_open, where=where)
    assert sorted(again.read(owned, [0]).records) == [0]
