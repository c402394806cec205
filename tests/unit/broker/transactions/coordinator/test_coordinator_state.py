"""The coordinator's state as a fold over its log."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.broker.transactions.coordinator.rules import CoordinatorSettings
from pulsar_on_kafka.broker.transactions.coordinator.state import NO_ID, CoordinatorState, txn_id
from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka.statelog.take_over import Owner
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.state.state_keys import (
    CoordinatorTakeoverKey,
    TransactionLogKey,
    TransactionRequestKey,
    encode_key,
)
from pulsar_on_kafka_mapping.state.transactions.transaction_log import (
    Answered,
    NewTransaction,
    PartitionsAdded,
    StatusUpdated,
    SubscriptionsAdded,
    TakenOver,
    TopicPartition,
    TopicSubscription,
    TxnStatus,
    encode_log_value,
)
from tests.unit.broker.transactions.coordinator_logs import OwnedLog

PARTITION = TopicPartition("persistent://a/b/c", 0)
SUBSCRIPTION = TopicSubscription("persistent://a/b/c", 0, "s")
KEPT = CoordinatorSettings(finished_kept_ms=10_000)
LATER_MS = 1_000_000
A = Owner("a", 1)


def finish(log: OwnedLog, local_id: int, *, commit: bool = True) -> list[bytes]:
    first, last = ("COMMITTING", "COMMITTED") if commit else ("ABORTING", "ABORTED")
    return [log.put(local_id, StatusUpdated(1, TxnStatus(each))) for each in (first, last)]


def status(state: CoordinatorState, local_id: int) -> TxnStatus | None:
    found = state.transaction(txn_id(state.coordinator, local_id))
    return None if found is None else found.status


# What a transaction is ----------------------------------------------------------------------------------------------


def test_a_transaction_is_what_its_records_say() -> None:
    log = OwnedLog()
    log.new(1, request="r")
    log.put(1, PartitionsAdded(1, (PARTITION,)))
    log.put(1, SubscriptionsAdded(1, (SUBSCRIPTION,)))
    log.put(1, StatusUpdated(1, TxnStatus.COMMITTING))
    found = log.state().begun_by("r")
    assert found is not None
    assert found.id == txn_id(0, 1)
    assert (list(found.partitions), list(found.subscriptions)) == ([PARTITION], [SUBSCRIPTION])
    assert (found.status, found.deadline_ms(), found.finished) == (TxnStatus.COMMITTING, 61_000, False)
    assert [each.id.least_bits for each in log.state().ending()] == [1]


def test_records_without_a_new_belong_to_what_is_over() -> None:
    log = OwnedLog()
    key = log.put(3, PartitionsAdded(1, (PARTITION,)))
    other = log.put(3, StatusUpdated(1, TxnStatus.COMMITTING))
    state = log.state()
    assert status(state, 3) is None
    assert (state.unfinished, state.ending()) == (0, [])
    assert state.to_clean(A, LATER_MS, KEPT) == [key, other]


def test_the_first_decision_stands() -> None:
    log = OwnedLog()
    log.new(1)
    log.put(1, StatusUpdated(1, TxnStatus.ABORTING))
    log.put(1, StatusUpdated(1, TxnStatus.COMMITTING))
    log.put(1, StatusUpdated(1, TxnStatus.COMMITTED))
    assert status(log.state(), 1) is TxnStatus.ABORTING


def test_what_is_added_after_the_decision_does_not_take_part() -> None:
    log = OwnedLog()
    log.new(1)
    log.put(1, StatusUpdated(1, TxnStatus.COMMITTING))
    log.put(1, PartitionsAdded(1, (PARTITION,)))
    found = log.state().transaction(txn_id(0, 1))
    assert found is not None
    assert not found.partitions


def test_a_tombstone_takes_a_record_back_as_if_it_had_never_been_there() -> None:
    log = OwnedLog()
    log.new(1)
    added = log.put(1, PartitionsAdded(1, (PARTITION,)))
    decided = log.put(1, StatusUpdated(1, TxnStatus.ABORTING))
    log.put(1, StatusUpdated(1, TxnStatus.COMMITTING))
    log.tombstone(decided, added)
    found = log.state().transaction(txn_id(0, 1))
    assert found is not None
    assert found.status is TxnStatus.COMMITTING
    assert not found.partitions


# Who may write ------------------------------------------------------------------------------------------------------


def test_records_of_a_former_owner_are_void() -> None:
    log = OwnedLog()
    log.new(1)
    log.take_over("b", 2, 1)
    void = [log.put(1, StatusUpdated(1, TxnStatus.COMMITTING)), log.new(2), log.answer("r", Answered(1))]
    log.put(1, StatusUpdated(2, TxnStatus.ABORTING), "b")
    state = log.state()
    assert status(state, 1) is TxnStatus.ABORTING
    assert status(state, 2) is None
    assert state.answer("r") is None
    assert state.to_clean(Owner("b", 2), LATER_MS, KEPT) == void
    assert state.to_clean(A, LATER_MS, KEPT) == []


def test_a_late_new_below_a_known_id_opens_nothing() -> None:
    log = OwnedLog()
    log.new(7)
    late = log.new(6)
    state = log.state()
    assert status(state, 6) is None
    assert state.to_clean(A, LATER_MS, KEPT) == [late]


def test_what_makes_a_late_new_void_goes_after_it() -> None:
    log = OwnedLog()
    log.new(7)
    finish(log, 7)
    late = log.new(6)
    log.new(8)
    assert log.state().to_clean(A, LATER_MS, KEPT) == [late]  # and not the NEW of 7, though it is over
    log.tombstone(late)
    assert late not in log.state().to_clean(A, LATER_MS, KEPT)
    assert log.state().to_clean(A, LATER_MS, KEPT) != []


def test_older_takeovers_go_when_nothing_is_void() -> None:
    log = OwnedLog()
    log.take_over("b", 2)
    void = log.new(1)
    older = log.records[0].key
    owner = Owner("b", 2)
    assert log.state().to_clean(owner, LATER_MS, KEPT) == [void]
    log.tombstone(void)
    assert log.state().to_clean(owner, LATER_MS, KEPT) == [older]


# Ids and the low-water mark -----------------------------------------------------------------------------------------


def test_the_highest_id_survives_the_tombstones_of_every_transaction() -> None:
    log = OwnedLog()
    for local_id in range(1, 9):
        log.new(local_id)
        finish(log, local_id)
    for _ in range(3):
        log.tombstone(*log.state().to_clean(A, LATER_MS, KEPT))
        log.compact()
    assert log.state().highest_id == 8
    assert [each.id.least_bits for each in log.state().transactions()] == [8]
    log.take_over("b", 2, log.state().highest_id)
    owner = Owner("b", 2)
    for _ in range(3):
        log.tombstone(*log.state().to_clean(owner, LATER_MS, KEPT))
        log.compact()
    assert list(log.state().transactions()) == []
    assert log.state().highest_id == 8
    assert len(log.records) == 1


def test_the_low_water_mark_is_one_below_the_lowest_unfinished() -> None:
    log = OwnedLog()
    assert CoordinatorState(0).low_water == NO_ID
    for local_id in (3, 4, 6):
        log.new(local_id)
    assert log.state().low_water == 2
    finish(log, 4)
    assert log.state().low_water == 2
    finish(log, 3, commit=False)
    assert log.state().low_water == 5
    finish(log, 6)
    assert log.state().low_water == 6


# Forgetting ---------------------------------------------------------------------------------------------------------


def test_a_finished_transaction_is_kept_for_its_time_and_new_goes_first() -> None:
    log = OwnedLog()
    new = log.new(1)
    rest = finish(log, 1)
    log.new(2)
    finished_ms = 3_000
    assert log.state().to_clean(A, finished_ms + 9_999, KEPT) == []
    assert log.state().to_clean(A, finished_ms + 10_000, KEPT) == [new]
    log.tombstone(new)
    assert log.state().to_clean(A, finished_ms + 10_000, KEPT) == rest


def test_of_too_many_finished_the_oldest_go_at_once() -> None:
    log = OwnedLog()
    news = []
    for local_id in range(1, 6):
        news.append(log.new(local_id))
        finish(log, local_id)
    log.new(6)
    few = CoordinatorSettings(max_finished=3, finished_kept_ms=LATER_MS)
    assert log.state().to_clean(A, 20_000, few) == news[:2]


def test_what_requests_began_is_kept_for_its_whole_time_however_many() -> None:
    log = OwnedLog()
    for local_id in range(1, 6):
        log.new(local_id, request=f"r{local_id}")
        finish(log, local_id)
    log.new(6)
    few = CoordinatorSettings(max_finished=3, finished_kept_ms=LATER_MS)
    assert log.state().to_clean(A, 20_000, few) == []
    assert log.state().begun_by_requests == 5


def test_the_first_answer_counts_until_it_is_old_and_goes_last() -> None:
    log = OwnedLog()
    first = log.answer("r", Answered(1, "InvalidTxnStatus", "why"))
    second = log.answer("r", Answered(1))
    state = log.state()
    assert state.answer("r") == Answered(1, "InvalidTxnStatus", "why")
    assert state.to_clean(A, 12_000 - 1, KEPT) == []
    assert state.to_clean(A, 12_000, KEPT) == [second, first]
    log.tombstone(second, first)
    assert log.state().answer("r") is None


def test_changes_are_followed_only_when_asked_for() -> None:
    log = OwnedLog()
    log.new(2)
    log.new(4)
    followed = CoordinatorState(0, follow_changes=True)
    for record in log.records:
        followed.apply(record)
    assert [local_id for local_id, _ in followed.take_touched()] == [2, 4]
    assert followed.take_touched() == []
    assert log.state().take_touched() == []


# What cannot be read ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (TransactionRequestKey(0, "r"), TakenOver(1), "TransactionRequestKey in a transaction log"),
        (CoordinatorTakeoverKey(1, "s", 1), TakenOver(1), "in the log of coordinator 0"),
        (CoordinatorTakeoverKey(0, "s", 1), Answered(1), "Answered under"),
        (TransactionLogKey(0, 0, 1, "s", 1), TakenOver(1), "TakenOver under"),
        (TransactionLogKey(0, 1 << 48, 1, "s", 1), NewTransaction(1, 1, 1, 1), "is of another coordinator than 0"),
        (TransactionLogKey(0, 0, 5, "s", 1), NewTransaction(1, 1, 1, 4), "max_local_id 4, expected its own id or more"),
    ],
)
def test_a_record_that_cannot_be_is_corrupt_and_changes_nothing(key: object, value: object, expected: str) -> None:
    state = OwnedLog().state()
    record = LogRecord(1, encode_key(key), encode_log_value(value), 0)  # type: ignore[arg-type]
    with pytest.raises(CorruptRecord, match=expected):
        state.apply(record)
    assert (state.owner, state.highest_id, list(state.transactions())) == (A, 0, [])
