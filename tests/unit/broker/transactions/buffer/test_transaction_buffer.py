"""Records of a data partition that may be read while transactions are open, and after they ended."""

from __future__ import annotations

import pytest
from pyroaring import BitMap64

from pulsar_on_kafka.broker.transactions.buffer.buffer_machine import LATE_FOR_MS, MAX_KNOWN, Judged, TransactionBuffer
from pulsar_on_kafka.broker.transactions.buffer.cleaning import KEPT_FOR_MS, UNSEALED_KEPT_FOR_MS, BufferCleaning
from pulsar_on_kafka.broker.transactions.buffer.entries import BufferEntries, TxnEntryStatus
from pulsar_on_kafka.broker.transactions.buffer.model import MetRecord
from pulsar_on_kafka.broker.transactions.buffer.verify import BufferFinding, compare, rebuild
from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.state_keys import LowWaterKey, TransactionBufferKey, encode_key
from pulsar_on_kafka_mapping.state.transactions.transaction_buffer import AbortedEntry, BufferKind, buffer_records
from tests.unit.broker.transactions.buffer_records import COORDINATOR, HERE, Entries, aborted, key_of, opened, txn, void

T1, T2, T3 = txn(1), txn(2), txn(3)


@pytest.fixture
def entries() -> Entries:
    return Entries()


def judge(reader: TransactionBuffer, entries: BufferEntries, met: list[MetRecord], now_ms: int = 0) -> Judged:
    reader.learn(reader.unsettled(met), entries)
    return reader.judge(met, now_ms)


# Entries --------------------------------------------------------------------------------------------------------------


def test_a_transaction_without_entry_is_committed(entries: Entries) -> None:
    assert entries.status(HERE, T1) is TxnEntryStatus.COMMITTED


def test_an_open_transaction_bounds_reading(entries: Entries) -> None:
    entries.put(T1, opened(10))
    entries.put(T2, opened(5))
    assert entries.status(HERE, T1) is TxnEntryStatus.OPEN
    assert entries.snapshot(HERE).bound == 5
    entries.drop(T2, opened(5))
    assert entries.snapshot(HERE).bound == 10


def test_a_snapshot_is_made_once_until_the_next_record(entries: Entries) -> None:
    entries.put(T1, aborted([11]))
    first = entries.snapshot(HERE)
    assert entries.snapshot(HERE) is first
    entries.put(T2, aborted([12]))
    assert entries.snapshot(HERE).excluded == BitMap64([11, 12])
    assert first.excluded == BitMap64([11])
    entries.drop(T1, aborted([11]))
    entries.drop(T2, aborted([12]))
    assert entries.snapshot(HERE) is not entries.snapshot(HERE), "nothing is kept where nothing is on record"


def test_an_open_with_an_aborted_beside_it_is_void(entries: Entries) -> None:
    entries.put(T1, opened(10))
    entries.put(T1, aborted([11]), session="bb")
    assert entries.status(HERE, T1) is TxnEntryStatus.ABORTED
    assert entries.snapshot(HERE).bound is None


def test_an_open_at_or_below_the_low_water_mark_is_void(entries: Entries) -> None:
    entries.put(T2, opened(10), session="of a paused coordinator")
    entries.low(1)
    assert entries.status(HERE, T2) is TxnEntryStatus.OPEN
    entries.low(2)
    assert entries.status(HERE, T2) is TxnEntryStatus.COMMITTED
    assert entries.is_over(T2)
    assert not entries.is_over(T3)
    assert not entries.is_over(TxnId(3 << 48, 1)), "the mark is another coordinator's"


def test_the_highest_mark_of_all_sessions_counts(entries: Entries) -> None:
    entries.low(5, "new")
    entries.low(3, "paused")
    assert entries.low_water(COORDINATOR) == 5


def test_marks_of_sessions_that_are_over_may_go_and_the_highest_stays(entries: Entries) -> None:
    entries.low(5, "first")
    entries.low(3, "paused")
    entries.now_ms = 1_000
    entries.low(5, "third")
    entries.now_ms = 2_000
    entries.low(4, "woken")
    assert entries.superseded_low_waters(0) == []
    paused, first = LowWaterKey(COORDINATOR, "paused"), LowWaterKey(COORDINATOR, "first")
    assert set(entries.superseded_low_waters(1_000)) == {paused, first}
    assert set(entries.superseded_low_waters(9_000)) == {paused, first, LowWaterKey(COORDINATOR, "woken")}


def test_bitmaps_of_all_sessions_count_together(entries: Entries) -> None:
    entries.put(T1, aborted([3, 4], sealed=False, bound=3), session="paused")
    entries.put(T1, aborted([4, 9], bound=2), session="new")
    assert entries.aborted(HERE, T1) == AbortedEntry(7, 2, 10, True, BitMap64([3, 4, 9]), 2)


def test_an_entry_is_sealed_when_all_its_parts_are_there(entries: Entries) -> None:
    offsets = list(range(0, 120_000_000, 75))
    whole = aborted(offsets)
    records = buffer_records(key_of(T1, whole), whole)
    assert len(records) > 1
    for count, (key, value) in enumerate(records, 1):
        entries.apply(LogRecord(count, encode_key(key), value, 0))
        assert entries.status(HERE, T1) is TxnEntryStatus.ABORTED
        assert (T1 in entries.snapshot(HERE).unsealed) == (count < len(records))
    assert entries.snapshot(HERE).excluded == BitMap64(offsets)


@pytest.mark.parametrize("life", [6, 8])
def test_what_is_open_in_another_life_of_the_topic_is_open_in_this_one_from_its_beginning(
    entries: Entries, life: int
) -> None:
    entries.put(T1, opened(30, life=life))
    assert entries.status(HERE, T1) is TxnEntryStatus.OPEN
    assert entries.snapshot(HERE).bound == 0
    entries.put(T1, opened(20), session="bb")
    assert entries.open_bounds(HERE) == {T1: 0}
    entries.low(1)
    assert entries.status(HERE, T1) is TxnEntryStatus.COMMITTED


def test_what_was_aborted_in_another_life_is_told_by_header_in_this_one(entries: Entries) -> None:
    entries.put(T1, aborted([30], sealed=False, bound=30, life=6, late_until_ms=9))
    assert entries.status(HERE, T1) is TxnEntryStatus.ABORTED
    assert entries.aborted(HERE, T1) == AbortedEntry(7, 0, 0, False, BitMap64(), 1, 9)
    snapshot = entries.snapshot(HERE)
    assert (snapshot.excluded, snapshot.unsealed) == (BitMap64(), {T1: 0})


def test_a_sealed_entry_and_a_void_one_speak_of_their_own_life_alone(entries: Entries) -> None:
    entries.put(T1, aborted([30], life=6))
    entries.put(T2, void([4], life=6))
    assert entries.status(HERE, T1) is TxnEntryStatus.COMMITTED
    snapshot = entries.snapshot(HERE)
    assert (snapshot.excluded, snapshot.unsealed) == (BitMap64(), {})


def test_an_unreadable_record_changes_nothing(entries: Entries) -> None:
    key = encode_key(key_of(T1, opened(0)))
    with pytest.raises(CorruptRecord):
        entries.apply(LogRecord(0, key, b"\x01\x01junk", 0))
    assert entries.transactions(HERE) == []


# Reading --------------------------------------------------------------------------------------------------------------


def test_runs_without_transactions_need_no_look() -> None:
    reader = TransactionBuffer(HERE)
    assert reader.unsettled([]) == []
    assert reader.judge([], 0) == Judged(None, BitMap64(), {})


def test_reading_stops_at_the_first_record_of_an_open_transaction(entries: Entries) -> None:
    entries.put(T1, opened(4))
    reader = TransactionBuffer(HERE)
    met = [MetRecord(3, T2), MetRecord(6, T1), MetRecord(7, T2)]
    assert reader.unsettled(met) == [T2, T1]
    assert judge(reader, entries, met).upto == 6, "what lies between the bound and its first record is readable"
    assert reader.unsettled(met[1:]) == [T1], "a transaction that is over is not asked for again"
    entries.drop(T1, opened(4))
    assert judge(reader, entries, met[1:]) == Judged(None, BitMap64(), {})


def test_the_order_that_counts_is_that_of_first_records_not_of_ids(entries: Entries) -> None:
    """The article's question: a smaller id may write later than a larger one; is anything uncommitted readable then?

    T3 writes first, at 0, then T1 at 1. Were the reader to go by ids, ending T3 would not move it past T1, or ending T1
    would let it read up to T3's next record and so over T3's first one.
    """
    for which in (T1, T3):
        entries.put(which, opened(0))
    met = [MetRecord(0, T3), MetRecord(1, T1), MetRecord(2, T3)]
    reader = TransactionBuffer(HERE)
    assert judge(reader, entries, met).upto == 0
    entries.drop(T1, opened(0))  # the smaller id commits, though it wrote later
    assert judge(reader, entries, met).upto == 0, "the first record in the partition is still open"
    assert entries.snapshot(HERE).readable_end(3, iter(met)) == 0
    entries.drop(T3, opened(0))
    assert judge(reader, entries, met).upto is None

    entries, reader = Entries(), TransactionBuffer(HERE)
    for which in (T1, T3):
        entries.put(which, opened(0))
    entries.drop(T3, opened(0))  # the larger one, which wrote first, commits first
    assert judge(reader, entries, met).upto == 1, "up to the first record of what is open, whatever its id"
    assert entries.snapshot(HERE).readable_end(3, iter(met)) == 1


def test_records_of_an_aborted_transaction_are_left_out_even_unknown_ones(entries: Entries) -> None:
    entries.put(T1, aborted([4], sealed=False, bound=4))
    judged = judge(TransactionBuffer(HERE), entries, [MetRecord(4, T1), MetRecord(6, T1), MetRecord(7, T2)])
    assert judged == Judged(None, BitMap64([4, 6]), {})
    snapshot = entries.snapshot(HERE)
    assert [snapshot.is_readable(offset, which) for offset, which in ((4, T1), (5, None), (6, T1), (7, T2))] == [
        False, True, False, True,
    ]  # fmt: skip
    assert min(snapshot.unsealed.values()) == 4


def test_a_sealed_entry_needs_no_headers(entries: Entries) -> None:
    entries.put(T1, aborted([4, 6], bound=4))
    snapshot = entries.snapshot(HERE)
    assert (snapshot.unsealed, snapshot.is_readable(6, None), snapshot.is_readable(5, None)) == ({}, False, True)


def test_a_record_behind_its_transactions_marker_is_late_and_never_readable(entries: Entries) -> None:
    reader = TransactionBuffer(HERE)
    judged = judge(reader, entries, [MetRecord(0, T1), MetRecord(1, T1, ended=True), MetRecord(2, T1)])
    assert judged == Judged(None, BitMap64([2]), {T1: BitMap64([2])})
    assert judge(reader, entries, [MetRecord(9, T1)]).excluded == BitMap64([9]), "also in a later run"
    entries.put(T1, void([2, 9]))
    behind = TransactionBuffer(HERE)
    assert judge(behind, entries, [MetRecord(2, T1), MetRecord(9, T1)]) == Judged(None, BitMap64([2, 9]), {})
    assert not entries.snapshot(HERE).is_readable(9, T1)
    assert entries.void_of_session(HERE, T1, "aa") == BitMap64([2, 9])
    assert entries.void_of_session(HERE, T1, "bb") == BitMap64()


def test_behind_a_record_that_is_void_all_of_its_transaction_is_late(entries: Entries) -> None:
    """Who began behind the marker, and asked before the others were put on record."""
    entries.put(T1, void([5]))
    reader = TransactionBuffer(HERE)
    assert judge(reader, entries, [MetRecord(5, T1)]).excluded == BitMap64([5])
    later = judge(reader, entries, [MetRecord(7, T1, more=(9,))])
    assert (later.excluded, later.late) == (BitMap64([7, 9]), {T1: BitMap64([7, 9])})


def test_what_was_read_again_after_a_rewind_is_not_late(entries: Entries) -> None:
    reader = TransactionBuffer(HERE)
    met = [MetRecord(0, T1), MetRecord(1, T1, ended=True)]
    judge(reader, entries, met)
    reader.rewind()
    assert judge(reader, entries, met) == Judged(None, BitMap64(), {})


def test_passed_markers_are_forgotten_after_an_hour_or_two(entries: Entries) -> None:
    reader = TransactionBuffer(HERE)
    judge(reader, entries, [MetRecord(0, T1, ended=True)])
    assert judge(reader, entries, [MetRecord(1, T1)], LATE_FOR_MS).late
    assert not judge(reader, entries, [MetRecord(2, T1)], 2 * LATE_FOR_MS).late


def test_outcomes_are_kept_of_the_last_ones_and_every_run_gets_through(entries: Entries) -> None:
    reader = TransactionBuffer(HERE)
    met = [MetRecord(number, txn(number)) for number in range(MAX_KNOWN + 500)]
    assert judge(reader, entries, met).upto is None
    again = [MetRecord(met[-1].offset + 1 + number, which.txn) for number, which in enumerate(met)]
    assert len(reader.unsettled(again)) == 500


# Cleaning -------------------------------------------------------------------------------------------------------------


def test_void_opens_go_at_once(entries: Entries) -> None:
    entries.put(T1, opened(0))
    entries.put(T2, opened(0))
    entries.put(T2, aborted([0]))
    entries.put(T3, opened(0))
    entries.low(1)
    keys = BufferCleaning(HERE).due(entries, 0, 0)
    assert {(key.txn_least, key.kind) for key in keys} == {(1, "OPEN"), (2, "OPEN")}


def test_an_aborted_entry_goes_an_hour_after_the_log_start_passed_it(entries: Entries) -> None:
    entries.put(T1, aborted([4, 8], end=10))
    entries.low(1)
    cleaning = BufferCleaning(HERE)
    assert cleaning.due(entries, 9, 0) == []
    assert cleaning.due(entries, 10, 100) == []
    assert cleaning.due(entries, 10, 99 + KEPT_FOR_MS) == []
    assert cleaning.due(entries, 10, 100 + KEPT_FOR_MS) == entries.keys_of(HERE, T1, BufferKind.ABORTED)


def test_one_that_is_not_sealed_stays_while_a_late_record_behind_it_may_be_in_the_log(entries: Entries) -> None:
    entries.put(T1, aborted([4], end=5, sealed=False, late_until_ms=1000))
    entries.low(1)
    cleaning = BufferCleaning(HERE)
    assert cleaning.due(entries, 5, 1000, log_end=8) == [], "one may come at 8, and another one at 20"
    assert cleaning.due(entries, 12, 1001, log_end=21) == []
    assert cleaning.due(entries, 20, 1001 + 2 * UNSEALED_KEPT_FOR_MS, log_end=40) == []
    assert cleaning.due(entries, 21, 1001 + 3 * UNSEALED_KEPT_FOR_MS, log_end=50) == []
    assert cleaning.due(entries, 22, 1001 + 4 * UNSEALED_KEPT_FOR_MS, log_end=60) == entries.keys_of(
        HERE, T1, BufferKind.ABORTED
    )


def test_what_makes_an_open_void_does_not_go_before_it(entries: Entries) -> None:
    entries.put(T1, opened(0))
    entries.put(T1, aborted([0]))
    cleaning = BufferCleaning(HERE)
    cleaning.due(entries, 5, 0)
    assert [key.kind for key in cleaning.due(entries, 5, KEPT_FOR_MS)] == ["OPEN"]
    entries.drop(T1, opened(0))
    assert cleaning.due(entries, 5, KEPT_FOR_MS) == [], "a paused coordinator may still write an OPEN"
    entries.low(1)
    assert [key.kind for key in cleaning.due(entries, 5, KEPT_FOR_MS)] == ["ABORTED"]


def test_void_entries_go_too_and_those_of_former_lives_at_once(entries: Entries) -> None:
    entries.put(T1, void([3]))
    entries.put(T2, void([0], life=6))
    cleaning = BufferCleaning(HERE)
    assert [key.txn_least for key in cleaning.due(entries, 4, 0)] == [2]
    assert {key.txn_least for key in cleaning.due(entries, 4, KEPT_FOR_MS)} == {1, 2}


@pytest.mark.parametrize("log_start", [0, None])
def test_what_is_open_goes_only_when_it_is_over_whatever_became_of_its_topic(
    entries: Entries, log_start: int | None
) -> None:
    entries.put(T1, opened(5, life=6))
    entries.put(T2, opened(5))
    cleaning = BufferCleaning(HERE)
    assert cleaning.due(entries, log_start, KEPT_FOR_MS) == []
    entries.low(1)
    assert [key.txn_least for key in cleaning.due(entries, log_start, 0)] == [1]


def test_what_was_aborted_in_a_former_life_goes_when_it_is_sealed(entries: Entries) -> None:
    entries.put(T1, aborted([5], sealed=False, life=6, late_until_ms=10))
    entries.put(T2, aborted([5], life=6))
    entries.low(2)
    cleaning = BufferCleaning(HERE)
    assert [key.txn_least for key in cleaning.due(entries, 0, KEPT_FOR_MS)] == [2]
    entries.put(T1, aborted([5], end=6), session="sealer")
    assert [(key.txn_least, key.session) for key in cleaning.due(entries, 0, 0)] == [(1, "aa"), (2, "aa")]


def test_what_was_aborted_in_a_topic_that_is_gone_goes_when_nothing_comes_late_any_more(entries: Entries) -> None:
    entries.put(T1, aborted([5], sealed=False, late_until_ms=10))
    cleaning = BufferCleaning(HERE)
    assert cleaning.due(entries, None, 11) == []
    entries.low(1)
    assert cleaning.due(entries, None, 10) == []
    assert [key.txn_least for key in cleaning.due(entries, None, 11)] == [1]


# Verifying ------------------------------------------------------------------------------------------------------------


def findings(entries: Entries, met: list[MetRecord], log_start: int = 0) -> list[tuple[BufferFinding, int, list[int]]]:
    return [
        (found.finding, found.txn.least_bits, list(found.offsets))
        for found in compare(HERE, rebuild(met), log_start, entries)
    ]


def test_a_true_buffer_has_no_differences(entries: Entries) -> None:
    entries.put(T2, aborted([1, 3], bound=1))
    entries.put(T3, opened(4))
    entries.put(T1, void([6]))
    met = [
        MetRecord(0, T1),
        MetRecord(1, T2),
        MetRecord(2, T1, ended=True),
        MetRecord(3, T2),
        MetRecord(4, T3),
        MetRecord(5, T2, ended=False),
        MetRecord(6, T1),
    ]
    assert findings(entries, met) == []


@pytest.mark.parametrize(
    ("met", "finding", "offsets"),
    [
        (
            [MetRecord(0, T1), MetRecord(1, T1, ended=True), MetRecord(2, T1, ended=False)],
            BufferFinding.TWO_OUTCOMES,
            [0],
        ),
        ([MetRecord(0, T1), MetRecord(1, T1, ended=False)], BufferFinding.ABORTED_BUT_READABLE, [0]),
        ([MetRecord(0, T1)], BufferFinding.NO_OUTCOME, [0]),
        ([MetRecord(0, T1), MetRecord(1, T1, ended=True), MetRecord(2, T1)], BufferFinding.LATE_NOT_VOID, [2]),
        ([MetRecord(5, T2), MetRecord(6, T2, ended=True)], BufferFinding.COMMITTED_BUT_ABORTED, [5]),
        ([MetRecord(5, T2), MetRecord(6, T2), MetRecord(7, T2, ended=False)], BufferFinding.OFFSETS_MISSING, [6]),
        ([MetRecord(7, T2, ended=False)], BufferFinding.OFFSETS_TOO_MANY, [5]),
        ([MetRecord(4, T2), MetRecord(5, T2), MetRecord(7, T2, ended=False)], BufferFinding.BOUND_TOO_HIGH, [4]),
        ([MetRecord(8, T3), MetRecord(9, T3, ended=True)], BufferFinding.STILL_OPEN, [8]),
        ([MetRecord(7, T3)], BufferFinding.BOUND_TOO_HIGH, [7]),
    ],
)
def test_each_difference_is_found(
    entries: Entries, met: list[MetRecord], finding: BufferFinding, offsets: list[int]
) -> None:
    entries.put(T2, aborted([5], bound=5))
    entries.put(T3, opened(8))
    found = [item for item in findings(entries, met) if item[1] == met[-1].txn.least_bits]
    assert (finding, met[-1].txn.least_bits, offsets) in found
    assert finding.is_harmless == (finding is BufferFinding.STILL_OPEN)
    assert str(compare(HERE, rebuild(met), 0, entries)[0]).startswith("transaction (562949953421312,")


def test_void_records_whose_marker_is_gone_from_the_log_are_no_difference(entries: Entries) -> None:
    entries.put(T1, void([6]))
    assert findings(entries, [MetRecord(6, T1)], log_start=5) == []
    assert findings(entries, [MetRecord(5, T1), MetRecord(6, T1, ended=True)]) == [
        (BufferFinding.VOID_NOT_LATE, 1, [6])
    ]


def test_keys_of_a_kind_are_found_whoever_wrote_them(entries: Entries) -> None:
    for session in ("aa", "bb"):
        entries.put(T1, opened(0), session)
    assert {key.session for key in entries.keys_of(HERE, T1, BufferKind.OPEN)} == {"aa", "bb"}
    assert entries.keys_of(HERE, T1, BufferKind.VOID) == []
    assert all(isinstance(key, TransactionBufferKey) for key in entries.keys_of(HERE, T1, BufferKind.OPEN))
