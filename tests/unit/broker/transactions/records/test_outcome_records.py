"""Buffers and pending acks read the records that a coordinator appends."""

from __future__ import annotations

from dataclasses import dataclass

from pyroaring import BitMap64

from pulsar_on_kafka.broker.cursor.identity import CursorName
from pulsar_on_kafka.broker.transactions.buffer.entries import BufferEntries, TxnEntryStatus
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition, look_over
from pulsar_on_kafka.broker.transactions.pending_acks.log import PendingAckLog
from pulsar_on_kafka.broker.transactions.records.outcomes import (
    Ended,
    Records,
    aborted_records,
    end_records,
    low_water_records,
    open_records,
    opens_gone,
    void_records,
)
from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.records.message_record import Headers
from pulsar_on_kafka_mapping.records.transaction_headers import marker_headers
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_BUFFER_SNAPSHOT, TRANSACTION_PENDING_ACK
from pulsar_on_kafka_mapping.state.transactions.pending_acks import TxnOutcome
from pulsar_on_kafka_mapping.state.transactions.transaction_log import TopicSubscription

ORDERS = DataPartition("persistent://public/default/orders", 1, 7)
BILLS = DataPartition("persistent://public/default/bills", 0, 8)
T1, T2 = TxnId(0, 1), TxnId(0, 2)


def fold(into: BufferEntries | PendingAckLog, records: Records, topic: str) -> None:
    """Fold records like the reader of `topic`'s partition."""
    number = TRANSACTION_BUFFER_SNAPSHOT.partition_for(topic)
    for offset, (key, value) in enumerate(records.get(number, [])):
        into.apply(LogRecord(offset, key, value, 0))


def test_buffers_read_what_is_written_for_them() -> None:
    entries = {where: BufferEntries() for where in (ORDERS, BILLS)}
    opened = open_records([(T1, ORDERS), (T1, BILLS), (T2, ORDERS)], {ORDERS: 5, BILLS: 9}, "aa")
    for where, found in entries.items():
        fold(found, opened, where.topic)
    assert entries[ORDERS].open_bounds(ORDERS) == {T1: 5, T2: 5}
    assert entries[BILLS].open_bounds(BILLS) == {T1: 9}

    aborted = aborted_records(T1, ORDERS, BitMap64([6, 8]), 5, 10, "aa", sealed=True)
    fold(entries[ORDERS], aborted, ORDERS.topic)
    fold(entries[ORDERS], opens_gone([(T1, ORDERS), (T2, BILLS)], entries[ORDERS]), ORDERS.topic)
    assert entries[ORDERS].status(ORDERS, T1) is TxnEntryStatus.ABORTED
    assert entries[ORDERS].snapshot(ORDERS).excluded == BitMap64([6, 8])
    assert entries[ORDERS].open_bounds(ORDERS) == {T2: 5}
    assert opens_gone([(T1, ORDERS)], entries[ORDERS]) == {}

    marks = low_water_records(0, 2, "aa")
    assert sorted(marks) == list(range(16))
    fold(entries[ORDERS], marks, ORDERS.topic)
    assert entries[ORDERS].status(ORDERS, T2) is TxnEntryStatus.COMMITTED


def test_void_records_say_again_what_their_session_said_before() -> None:
    entries = BufferEntries()
    for offset in (11, 12):
        fold(entries, void_records({T1: BitMap64([offset])}, ORDERS, entries, "aa"), ORDERS.topic)
    assert entries.void(ORDERS, T1) == BitMap64([11, 12])


def test_subscriptions_learn_of_the_end() -> None:
    log = PendingAckLog()
    one = TopicSubscription(ORDERS.topic, 1, "audit")
    records = end_records([Ended(T1, True, (), (one,)), Ended(T2, False, (), (one,))])
    assert list(records) == [TRANSACTION_PENDING_ACK.partition_for(ORDERS.topic)]
    fold(log, records, ORDERS.topic)
    ends = log.cursor(CursorName(*one)).ends
    assert {txn: end.outcome for txn, end in ends.items()} == {T1: TxnOutcome.COMMITTED, T2: TxnOutcome.ABORTED}


@dataclass
class Fetched:
    """A record in librdkafka's form."""

    found: Headers | None

    def headers(self) -> Headers | None:
        return self.found


def test_what_a_run_says_of_transactions() -> None:
    run: list[Headers | None] = [
        None,
        [("__pulsar.txn", b"0:1")],
        [("__pulsar.txn", b"unreadable")],
        [("__pulsar.event_time", b"7")],
        marker_headers(T1, committed=True),
        marker_headers(T2, committed=False),
    ]
    records = [Fetched(headers) for headers in run]
    looked = look_over(range(20, 26), records)
    assert [(met.offset, met.txn, met.ended) for met in looked.met] == [(21, T1, None), (24, T1, True), (25, T2, False)]
    assert looked.odd == [22, 23, 24, 25]


def test_records_of_one_transaction_are_met_together_up_to_its_marker() -> None:
    values = (b"0:1", None, b"0:1", b"0:2", b"0:1")
    records = [Fetched(None if value is None else [("__pulsar.txn", value)]) for value in values]
    run = [*records, Fetched(marker_headers(T2, committed=True)), records[0], records[3], records[0]]
    looked = look_over(range(10, 19), run)
    assert [met.offsets() for met in looked.met] == [[10, 12, 14, 16, 18], [13], [15], [17]]
    assert looked.odd == [15]


def test_an_id_in_another_spelling_is_not_met_together_past_its_marker() -> None:
    spelled = Fetched([("__pulsar.txn", b"0:01")])
    looked = look_over(range(10, 13), [spelled, Fetched(marker_headers(T1, committed=True)), spelled])
    assert [(met.offsets(), met.txn) for met in looked.met] == [([10], T1), ([11], T1), ([12], T1)]
