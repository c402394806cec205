"""Messages that are to be delivered later."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyroaring import BitMap64

from pulsar_on_kafka.broker.cursor.ledger_acks import of_offsets
from pulsar_on_kafka.broker.subscriptions.partition.delayed import TICK_MS, DelayedMessages, deliver_at_ms
from pulsar_on_kafka.broker.subscriptions.partition.partition_options import PartitionTerms
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Delivery, Endpoint
from pulsar_on_kafka.broker.transactions.pending_acks.holdings import Holdings
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.records.record_headers import DELIVER_AT, PRODUCER, unpack
from pulsar_on_kafka_mapping.state.transactions.pending_acks import TxnAck
from tests.seeds import for_each_seed
from tests.unit.broker.subscriptions.partition.test_owned_partition import Record, a_partition, taken

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("headers", "due_ms"),
    [(None, 0), ([(PRODUCER, b"1:0:p")], 0), ([(PRODUCER, b"1:0:p"), (DELIVER_AT, b"17000")], 17_000),
     ([(DELIVER_AT, b"soon")], 0), ([(DELIVER_AT, None)], 0), ([(DELIVER_AT, b"-5")], 0),
     ([(DELIVER_AT, b"9" * 20)], 2**53)],
)  # fmt: skip
def test_what_a_header_says(headers: Any, due_ms: int) -> None:
    assert deliver_at_ms(headers) == due_ms


def test_nothing_is_early_and_nothing_later_than_a_tick() -> None:
    delayed = DelayedMessages()
    delayed.set_aside(7, 1_050)
    assert (len(delayed), delayed.has_due) == (1, False)
    delayed.advance(1_099)
    assert not delayed.has_due
    delayed.advance(1_100)
    assert delayed.has_due
    assert delayed.take_due(10) == [7]
    assert (len(delayed), delayed.has_due, delayed.next_due_ms()) == (0, False, None)


def test_what_is_due_comes_in_order_of_the_log_and_as_much_as_is_taken() -> None:
    delayed = DelayedMessages()
    for offset in (9, 3, 5):
        delayed.set_aside(offset, offset * 1000)
    delayed.advance(HOUR_MS)
    assert delayed.take_due(2) == [3, 5]
    assert len(delayed) == 1
    assert delayed.take_due(2) == [9]


def test_cleared_is_empty() -> None:
    delayed = DelayedMessages()
    for offset in range(10):
        delayed.set_aside(offset, offset * HOUR_MS)
    delayed.advance(5 * HOUR_MS)
    delayed.clear()
    assert (len(delayed), delayed.has_due, delayed.next_due_ms()) == (0, False, None)


@for_each_seed(range(300))
def test_random_histories(seed: int) -> None:
    chance = random.Random(seed)
    delayed = DelayedMessages()
    now_ms = 1_700_000_000_000
    truth: dict[int, int] = {}
    offset = 0
    for _ in range(chance.randint(5, 60)):
        if truth and chance.random() < 0.2:
            cancelled = chance.sample(sorted(truth), chance.randint(1, min(5, len(truth))))
            delayed.forget(BitMap64(cancelled))
            for at in cancelled:
                del truth[at]
        elif chance.random() < 0.6:
            for _ in range(chance.randint(1, 10)):
                due_ms = now_ms + chance.choice((1, 50, 5_000, HOUR_MS)) * chance.randint(1, 100)
                delayed.set_aside(offset, due_ms)
                truth[offset] = due_ms
                offset += 1
        else:
            now_ms += chance.choice((1, 60, 10_000, HOUR_MS, 30 * HOUR_MS))
            delayed.advance(now_ms)
            late = [at for at, due_ms in truth.items() if due_ms + TICK_MS <= now_ms]
            found = delayed.take_due(chance.choice((3, 1000)))
            assert found == sorted(found)
            assert all(truth[at] <= now_ms for at in found), "early"
            if len(found) < 3:
                assert set(late) <= set(found), "late"
            for at in found:
                del truth[at]
        assert len(delayed) == len(truth)
        next_ms = delayed.next_due_ms()
        if truth and not delayed.has_due:
            assert next_ms is not None
            assert next_ms <= min(truth.values()) + TICK_MS
    delayed.advance(now_ms + 20_000 * HOUR_MS)
    assert delayed.take_due(10_000) == sorted(truth)


def test_few_of_many_are_forgotten_together_and_never_taken_for_more_than_that() -> None:
    delayed = DelayedMessages()
    for offset in range(100_000):
        delayed.set_aside(offset, HOUR_MS + offset % 7 * HOUR_MS)
    for offset in range(1_500):
        delayed.forget(BitMap64([offset]))
    assert len(delayed) == 100_000
    delayed.forget(BitMap64(range(1_500, 1_600)))
    assert len(delayed) == 98_400
    delayed.forget(BitMap64([1_600]))
    delayed.clear()
    delayed.set_aside(1_600, HOUR_MS)
    delayed.forget(BitMap64([5]))
    assert len(delayed) == 1


class DelayedRecord(Record):
    def headers(self) -> list[tuple[str, bytes]]:
        return [(PRODUCER, b"1:0:p"), (DELIVER_AT, b"5000")] if self.names else [(PRODUCER, b"1:0:p")]

    def set_headers(self, packed: bytes) -> None:
        assert unpack(packed) == self.headers()


def test_a_partition_sets_aside_what_is_not_due_and_reads_it_again_then() -> None:
    owned = a_partition(terms=PartitionTerms(delays=True))
    delayed = owned.intake.delayed
    assert delayed is not None
    owned.intake.accept([0, 1, 2, 3], [DelayedRecord(at, ("x",) if at % 2 else ()) for at in range(4)])
    assert taken(owned) == [0, 2]
    assert not owned.has_redeliveries
    owned.slot.acks.extend([0, 1, 2])
    owned.drain_acknowledgements(lambda: 4)
    assert owned.cursor.next_unacked == 3
    delayed.advance(6000)
    assert owned.has_redeliveries
    owned.release_due(10)
    assert list(owned.redeliveries.waiting) == [3]  # 1 was acknowledged meanwhile


def test_delayed_messages_that_a_transaction_holds_keep_their_time() -> None:
    owned = a_partition(terms=PartitionTerms(delays=True))
    holdings = Holdings()
    holdings.hold(TxnId(0, 1), TxnAck(BitMap64([0, 1])))
    owned.held.attach(holdings)
    owned.intake.accept([0, 1, 2, 3], [DelayedRecord(at, ("x",) if at % 2 else ()) for at in range(4)])
    assert taken(owned) == [2]
    assert len(owned.intake.delayed or ()) == 2
    owned.redeliver_released(holdings.release(TxnId(0, 1)).whole)
    assert list(owned.redeliveries.waiting) == [0]  # 1 waits for its time


def test_cancelled_messages_are_not_delayed_any_more() -> None:
    owned = a_partition(terms=PartitionTerms(delays=True))
    owned.intake.accept([0, 1, 2, 3], [DelayedRecord(at, ("x",) if at % 2 else ()) for at in range(4)])
    ledgers = of_offsets(BitMap64([0, 1]), {}, owned.identity.entries_per_ledger)
    assert owned.acknowledge_ledgers(ledgers) == 2
    assert owned.acknowledge_ledgers(ledgers) == 0
    assert len(owned.intake.delayed or ()) == 1
    assert taken(owned) == [2]


def test_without_a_place_for_them_they_are_delivered_at_once() -> None:
    owned = a_partition()
    owned.intake.accept([0, 1], [DelayedRecord(at, ("x",)) for at in range(2)])
    assert taken(owned) == [0, 1]


def test_a_rewind_forgets_what_was_set_aside() -> None:
    owned = a_partition(terms=PartitionTerms(delays=True))
    delayed = owned.intake.delayed
    assert delayed is not None
    owned.intake.accept([0], [DelayedRecord(0, ("x",))])
    feed = Endpoint("joe", 10, delivery_type=Delivery).feed(owned.slot)
    owned.in_flight.hold([], feed)
    assert owned.rewind() == 0
    assert owned.intake.delayed is delayed
    assert len(delayed) == 0


@for_each_seed(range(100))
def test_what_nobody_wants_is_not_due(seed: int) -> None:
    rng = random.Random(seed)
    delayed, plain = DelayedMessages(), DelayedMessages()
    now_ms = rng.randrange(HOUR_MS)
    plan = {offset: rng.randrange(2 * HOUR_MS) for offset in range(rng.randrange(60))}
    end = rng.randrange(70)
    for offset, due_ms in plan.items():
        delayed.set_aside(offset, due_ms)
        if offset >= end:
            plain.set_aside(offset, due_ms)
        if rng.random() < 0.1:
            delayed.advance(now_ms)
    delayed.forget_below(end)
    assert len(delayed) == len(plain)
    for later_ms in (now_ms, 2 * HOUR_MS + 1000):
        delayed.advance(later_ms)
        plain.advance(later_ms)
        assert sorted(delayed.take_due(100)) == sorted(plain.take_due(100))
