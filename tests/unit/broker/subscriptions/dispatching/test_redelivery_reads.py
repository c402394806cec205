"""Records are read a second time from Kafka: what comes again, and delayed messages ahead of their time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import cast

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import StoreError
from pulsar_on_kafka.broker.subscriptions.dispatching.redelivery_reads import DelayedPrefetch, RedeliveryReads
from pulsar_on_kafka.broker.subscriptions.records.open_transactions import TransactionWaits
from pulsar_on_kafka.broker.transactions.buffer.entries import BufferEntries
from pulsar_on_kafka.broker.transactions.records.views import BufferAccess
from pulsar_on_kafka.kafka.reading.fetcher import Fetcher, near_ones
from pulsar_on_kafka_mapping.records.record_headers import TXN
from tests.same_incarnation import SAME_INCARNATION
from tests.unit.broker.subscriptions.dispatching.served import Record, Served, records
from tests.unit.broker.transactions.buffer_records import Entries, aborted, opened, txn


class Reading:
    """Two partitions of which 10 records each were handed out, and are to be read again."""

    def __init__(self) -> None:
        self.served = Served(partitions=2)
        served = self.served
        for number in (0, 1):
            served.publish(*records(10), partition=number)
        fetcher = cast("Fetcher", served)
        looking: TransactionWaits = served.dispatcher.looking
        self.reads = RedeliveryReads("orders", fetcher, looking, SAME_INCARNATION)
        self.ahead = DelayedPrefetch("orders", fetcher, served.clock)

    def read(self, *offsets: int) -> tuple[list[int], list[int]]:
        found = self.reads.read(self.served.owned[0], offsets)
        return list(found.records), found.gone

    def delay(self, *offsets: int, in_s: float = 5.0, partition: int = 0) -> None:
        delayed = self.served.owned[partition].intake.delayed
        assert delayed is not None
        for offset in offsets:
            delayed.set_aside(offset, self.served.clock.now_ms() + int(in_s * 1000))
        delayed.advance(self.served.clock.now_ms())

    def step(self, partition: int = 0) -> list[int]:
        """What is at hand after reading ahead a little."""
        owned = self.served.owned[partition]
        self.ahead.step(owned)
        return sorted(owned.intake.delayed_soon._records)


def test_what_is_wanted_is_read_in_order() -> None:
    reading = Reading()
    assert not reading.reads.failed
    assert reading.read(7, 3, 5) == ([3, 5, 7], [])
    assert reading.served.reads == [[3, 5, 7]]
    assert not reading.reads.failed


def test_what_is_at_hand_is_not_read() -> None:
    reading = Reading()
    soon = reading.served.owned[0].intake.delayed_soon
    soon.keep(3, 0, reading.served.log[0][3], 0)
    assert reading.read(3) == ([3], [])
    assert reading.served.reads == []
    soon.keep(3, 0, reading.served.log[0][3], 0)
    assert reading.read(3, 4) == ([3, 4], [])
    assert reading.served.reads == [[4]]


def test_what_is_at_hand_is_not_delivered_if_kafka_has_deleted_it() -> None:
    reading = Reading()
    owned = reading.served.owned[0]
    owned.intake.delayed_soon.keep(3, 0, reading.served.log[0][3], 0)
    reading.served.begin = 5
    assert reading.read(3, 4) == ([], [4, 3])
    assert owned.next_unacked == 5


def test_what_is_wanted_soon_is_read_in_the_same_go() -> None:
    reading = Reading()
    owned = reading.served.owned[0]
    reading.read(0)  # how large records are is known from now on
    for offset, reads in ((2, [[2, 4, 5]]), (4, []), (5, []), (7, [[7, 8]]), (8, [])):
        reading.served.reads.clear()
        found = reading.reads.read(owned, (offset,), (2, 4, 5) if offset < 6 else (7, 8))
        assert (list(found.records), found.gone, reading.reads.failed) == ([offset], [], False)
        assert reading.served.reads == reads
    reading.reads.read(owned, (0,), [1, 3])
    reading.reads.read(owned, (9,), [1, 9])
    reading.served.reads.clear()
    assert reading.read(1) == ([1], []), "read for another consumer is what lies far from it, meanwhile"
    assert reading.read(3) == ([3], []), "not wanted soon any more"
    assert reading.served.reads == [[3]]
    reading.reads.read(owned, (0,), [1, 3])
    reading.reads.forget(owned)
    reading.served.reads.clear()
    assert reading.read(1) == ([1], [])
    assert reading.served.reads == [[1]]


def test_what_is_at_hand_is_not_read_though_it_is_wanted_soon() -> None:
    reading = Reading()
    owned = reading.served.owned[0]
    reading.read(0)
    owned.intake.delayed_soon.keep(4, 0, reading.served.log[0][4], 0)
    found = reading.reads.read(owned, (3, 4, 5), (3, 4, 5, 6))
    assert (sorted(found.records), reading.served.reads) == ([3, 4, 5], [[0], [3, 5, 6]])


def test_reading_has_failed_when_nothing_came_that_was_not_at_hand() -> None:
    reading = Reading()
    soon = reading.served.owned[0].intake.delayed_soon
    soon.keep(3, 0, reading.served.log[0][3], 0)
    reading.served.fails = True
    assert reading.read(3, 4) == ([3], [])
    assert reading.reads.failed
    soon.keep(3, 0, reading.served.log[0][3], 0)
    assert reading.read(3) == ([3], [])
    assert not reading.reads.failed


def test_what_is_missing_between_others_is_gone_and_counts_as_acknowledged() -> None:
    reading = Reading()
    owned = reading.served.owned[0]
    owned.redeliveries.waiting.update((2, 4, 6))
    del reading.served.log[0][4]
    assert reading.read(2, 4, 6) == ([2, 6], [4])
    assert owned.cursor.is_acknowledged(4)
    assert list(owned.redeliveries.waiting) == [2, 6]
    del reading.served.log[0][2]
    assert reading.read(2) == ([], [2])
    assert not reading.reads.failed


def test_what_lies_before_the_logs_beginning_is_gone_and_no_more() -> None:
    reading = Reading()
    owned = reading.served.owned[0]
    reading.served.begin = 5
    assert reading.read(2, 4, 5, 8) == ([], [2, 4])
    assert owned.cursor.next_unacked == 5
    assert owned.meter.deleted_unacknowledged == 5
    assert reading.read(5, 8) == ([5, 8], [])


def test_nothing_is_gone_while_nobody_knows_where_the_log_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody_knows(*_: object) -> int:
        raise StoreError("no broker answers")

    reading = Reading()
    reading.served.begin = 5
    monkeypatch.setattr(reading.served, "log_start", nobody_knows)
    assert reading.read(2, 8) == ([], [])
    assert reading.reads.failed
    assert reading.served.owned[0].cursor.next_unacked == 0


class Buffer:
    """What is on record of transactions."""

    def __init__(self) -> None:
        self.entries = Entries()
        self.asked = 0

    def query(self, question: Callable[[BufferEntries], None]) -> None:
        self.asked += 1
        question(self.entries)


def test_of_what_is_read_again_nothing_of_open_or_aborted_transactions_is_found() -> None:
    served, buffer = Served(), Buffer()
    owned = served.owned[0]
    where = owned.intake.committed.where
    is_open, lost, kept = txn(1), txn(2), txn(3)
    served.write(*(Record(headers={TXN: each.to_bytes()}) for each in (is_open, lost, kept)), Record())
    still_open = opened(0, life=where.incarnation)
    buffer.entries.put(is_open, still_open, where=where)
    buffer.entries.put(lost, aborted([1], life=where.incarnation), where=where)
    looking = TransactionWaits("test", cast("BufferAccess", buffer), served.clock)
    reads = RedeliveryReads("orders", cast("Fetcher", served), looking, SAME_INCARNATION)
    found = reads.read(owned, range(4))
    assert (sorted(found.records), found.gone) == ([2, 3], [1])
    assert buffer.asked == 1
    assert [owned.is_acknowledged(offset) for offset in range(4)] == [False, True, False, False]
    buffer.entries.drop(is_open, still_open, where=where)
    assert sorted(reads.read(owned, [0]).records) == [0]
    assert sorted(reads.read(owned, [2, 3]).records) == [2, 3]
    assert buffer.asked == 2, "what is known is not asked for again"


def test_of_what_was_read_ahead_nothing_of_aborted_transactions_is_found() -> None:
    served, buffer = Served(), Buffer()
    owned = served.owned[0]
    served.write(Record(), Record(headers={TXN: txn(1).to_bytes()}), Record())
    buffer.entries.put(
        txn(1), aborted([1], life=owned.intake.committed.where.incarnation), where=owned.intake.committed.where
    )
    looking = TransactionWaits("test", cast("BufferAccess", buffer), served.clock)
    reads = RedeliveryReads("orders", cast("Fetcher", served), looking, SAME_INCARNATION)
    reads.read(owned, [0])  # how large records are is known from now on
    assert list(reads.read(owned, [0], range(3)).records) == [0]
    found = reads.read(owned, [1, 2])
    assert (list(found.records), found.gone, served.reads) == ([2], [1], [[0], [0, 1, 2]])
    assert owned.is_acknowledged(1)


def test_delayed_messages_are_read_ahead_of_their_time() -> None:
    reading = Reading()
    reading.delay(1, 4, 7)
    reading.delay(2, in_s=3600.0)
    assert reading.step() == [1, 4, 7]
    assert reading.served.reads == [[1, 4, 7]]
    assert not reading.ahead.under_way
    assert reading.read(1, 4, 7) == ([1, 4, 7], [])
    assert len(reading.served.reads) == 1


def test_where_nothing_is_delayed_nothing_is_read_ahead() -> None:
    reading = Reading()
    reading.served.own(0)  # as a Failover subscription's
    assert reading.step() == []
    assert reading.served.reads == []


def test_one_partition_is_read_ahead_at_a_time_and_each_once_a_second() -> None:
    reading = Reading()
    reading.delay(1)
    reading.delay(2, partition=1)
    assert (reading.step(), reading.step(1)) == ([1], [2])
    for after_s, expected in ((0.0, []), (0.5, []), (0.5, [3])):
        reading.served.clock.seconds += after_s
        reading.ahead.forget(reading.served.owned[0])
        reading.served.own(0, delays=True)
        reading.delay(3)
        assert reading.step() == expected


def test_reading_ahead_stops_after_some_milliseconds_and_goes_on() -> None:
    reading = Reading()
    served = reading.served
    served.slow(0.01)
    reading.delay(*range(5))
    reading.delay(8, partition=1)
    assert reading.step() == [0, 1]
    assert reading.ahead.under_way
    assert reading.step(1) == [], "the other one waits"
    assert reading.step() == [0, 1, 2, 3]
    assert reading.step() == [0, 1, 2, 3, 4]
    assert not reading.ahead.under_way
    assert not served.owned[0].intake.delayed_soon.required
    assert reading.step(1) == [8]


def test_what_is_forgotten_is_not_read_ahead_any_more() -> None:
    reading = Reading()
    served = reading.served
    served.slow(0.02)
    reading.delay(*range(5))
    reading.delay(8, partition=1)
    assert reading.step() == [0]
    reading.ahead.forget(served.owned[1])
    assert reading.ahead.under_way
    reading.ahead.forget(served.owned[0])
    assert not reading.ahead.under_way
    assert len(served.owned[0].intake.delayed_soon) == 0
    assert reading.step(1) == [8]


def test_what_cannot_be_read_ahead_is_read_when_it_is_due() -> None:
    reading = Reading()
    reading.delay(1)
    reading.served.fails = True
    assert reading.step() == []
    assert not reading.ahead.under_way
    assert not reading.served.owned[0].intake.delayed_soon.required
    reading.served.fails = False
    a = reading.served.consumer("a")
    reading.served.turn()
    a.queue.clear()
    reading.served.owned[0].in_flight.let_go_of_all()
    assert reading.served.received(a, 6.0) == [1]


class ManyBatches:
    """Each record comes in a batch of its own, and those between the wanted ones are read through."""

    def __init__(self, served: Served, sizes: list[int]) -> None:
        self.offsets: list[int] = []
        """Those that came by the last reading."""
        self._log = served.log[0]
        served.publish(*records(len(sizes) - len(self._log)))
        for offset, size in enumerate(sizes):
            self._log[offset]._value = bytes(size)
        served.read_at = self.read_at  # type: ignore[method-assign]

    def read_at(self, topic: str, partition: int, offsets: Sequence[int], deadline: Deadline) -> Iterator[list[Record]]:
        self.offsets = []
        for run in near_ones(offsets):
            for offset in range(run[0], run[-1] + 1):
                self.offsets.append(offset)
                if offset in offsets:
                    yield [self._log[offset]]


MIB = 1024 * 1024


@pytest.mark.parametrize("apart", [1, 3])
def test_what_is_wanted_soon_costs_no_more_bytes_than_are_kept(apart: int) -> None:
    reading = Reading()
    came = ManyBatches(reading.served, [MIB // 2] * 400)
    owned = reading.served.owned[0]
    for place in range(0, 30, apart):
        found = reading.reads.read(owned, (place,), range(0, 400, apart))
        assert list(found.records) == [place]
        assert len(came.offsets) <= 3, "the wanted one, and 1 MiB"


def test_what_is_wanted_soon_costs_few_bytes_where_larger_records_follow() -> None:
    reading = Reading()
    came = ManyBatches(reading.served, [10] * 20 + [MIB // 2] * 380)
    owned = reading.served.owned[0]
    for place in range(15):
        assert list(reading.reads.read(owned, (place,), range(400)).records) == [place]
        assert len(came.offsets) <= 23
    assert list(reading.reads.read(owned, (19,), range(400)).records) == [19]
    assert sorted(reading.reads._ahead[0])[-1] < 23


def test_between_wanted_ones_that_lie_far_apart_only_what_is_wanted_is_read() -> None:
    reading = Reading()
    came = ManyBatches(reading.served, [10] * 9000)
    owned = reading.served.owned[0]
    reading.read(0)
    reading.reads.read(owned, (1, 8000), range(0, 9000, 50))
    assert came.offsets[:2] == [1, 8000]


def test_of_small_records_many_that_are_wanted_soon_come_at_once() -> None:
    reading = Reading()
    came = ManyBatches(reading.served, [10] * 400)
    owned = reading.served.owned[0]
    read: list[int] = []
    for place in range(131):
        assert list(reading.reads.read(owned, (place,), range(400)).records) == [place]
        read += came.offsets
        came.offsets = []
    assert read == list(range(131)), "each of them once"
