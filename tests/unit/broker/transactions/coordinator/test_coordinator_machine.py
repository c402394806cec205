"""A coordinator's decisions on a state that was read to the end."""

from __future__ import annotations

from itertools import product

import pytest

from pulsar_on_kafka.base.errors import InvalidOption, InvalidTxnStatus, TooManyTransactions, TransactionNotFound
from pulsar_on_kafka.broker.transactions.coordinator import coordinator_machine
from pulsar_on_kafka.broker.transactions.coordinator.counts import TICK_MS, TransactionTimeouts
from pulsar_on_kafka.broker.transactions.coordinator.rules import (
    FOLLOWS,
    TRANSITIONS,
    CoordinatorSettings,
    GroupDelay,
    TransactionInput,
    in_groups,
)
from pulsar_on_kafka.broker.transactions.coordinator.state import CoordinatorState
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.transactions.transaction_log import (
    NewTransaction,
    PartitionsAdded,
    StatusUpdated,
    TopicPartition,
    TopicSubscription,
    TxnStatus,
)
from pulsar_on_kafka_mapping.state.transactions.transaction_requests import AddPartitions, AddSubscriptions, Begin, End
from tests.unit.broker.transactions.coordinator_logs import OwnedLog

SETTINGS = CoordinatorSettings(max_open=2, max_participants=3)
TXN = TxnId(5 << 48, 1)
PARTITION = TopicPartition("persistent://a/b/c", 0)
OTHER = TopicPartition("persistent://a/b/c", 1)
ON_THE_WAY = {
    TxnStatus.OPEN: (),
    TxnStatus.COMMITTING: (TxnStatus.COMMITTING,),
    TxnStatus.COMMITTED: (TxnStatus.COMMITTING, TxnStatus.COMMITTED),
    TxnStatus.ABORTING: (TxnStatus.ABORTING,),
    TxnStatus.ABORTED: (TxnStatus.ABORTING, TxnStatus.ABORTED),
}


def state_with(status: TxnStatus = TxnStatus.OPEN, *partitions: TopicPartition) -> CoordinatorState:
    log = OwnedLog(5)
    log.new(1)
    if partitions:
        log.put(1, PartitionsAdded(1, partitions))
    for each in ON_THE_WAY[status]:
        log.put(1, StatusUpdated(1, each))
    return log.state()


# Ending -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "commit"), list(product(TxnStatus, [True, False])))
def test_every_end_is_written_waited_for_done_or_refused_as_the_table_says(status: TxnStatus, commit: bool) -> None:
    state = state_with(status)
    after = TRANSITIONS.get((status, TransactionInput.COMMIT if commit else TransactionInput.ABORT))
    if after is None:
        with pytest.raises(InvalidTxnStatus, match=f"1407374883553280:1 is {status.value}, it cannot"):
            coordinator_machine.end(state, End(TXN, commit), 1)
        return
    decision = coordinator_machine.end(state, End(TXN, commit), 1)
    if status is TxnStatus.OPEN:
        assert decision == coordinator_machine.Write(TXN, (StatusUpdated(1, after),))
    elif status in (TxnStatus.COMMITTED, TxnStatus.ABORTED):
        assert decision == coordinator_machine.Done(TXN)
    else:
        assert decision == coordinator_machine.Wait()


def test_the_table_knows_two_ways_and_no_way_back() -> None:
    assert {(before.value, after.value) for before, after in FOLLOWS} == {
        ("OPEN", "COMMITTING"),
        ("COMMITTING", "COMMITTED"),
        ("OPEN", "ABORTING"),
        ("ABORTING", "ABORTED"),
    }


def test_only_an_open_transaction_times_out() -> None:
    for status in TxnStatus:
        transaction = state_with(status).transaction(TXN)
        assert transaction is not None
        write = coordinator_machine.time_out(transaction, 1)
        assert (write is not None) == (status is TxnStatus.OPEN)
    assert write is None


@pytest.mark.parametrize(("status", "committed"), [("COMMITTING", True), ("ABORTING", False)])
def test_an_outcome_in_place_is_the_last_status(status: str, committed: bool) -> None:
    transaction = state_with(TxnStatus(status)).transaction(TXN)
    assert transaction is not None
    assert coordinator_machine.committed(transaction) is committed
    last = TxnStatus.COMMITTED if committed else TxnStatus.ABORTED
    assert coordinator_machine.in_place(transaction, 7) == coordinator_machine.Write(TXN, (StatusUpdated(7, last),))


@pytest.mark.parametrize("txn", [TxnId(5 << 48, 2), TxnId(4 << 48, 1), TxnId((5 << 48) + 1, 1)])
def test_an_unknown_id_is_not_found(txn: TxnId) -> None:
    with pytest.raises(TransactionNotFound, match="coordinator 5 does not know it"):
        coordinator_machine.end(state_with(), End(txn, commit=True), 1)
    with pytest.raises(TransactionNotFound):
        coordinator_machine.register(state_with(), AddPartitions(txn, (PARTITION,)), 1, frozenset(), SETTINGS)


# Beginning ----------------------------------------------------------------------------------------------------------


def test_a_new_transaction_says_when_it_began_for_whom_and_which_id_it_has() -> None:
    write = coordinator_machine.begin(state_with(), Begin(60_000, "billing"), 3, "ab", 9, 1_000, CoordinatorSettings())
    assert write == coordinator_machine.Write(
        TxnId(5 << 48, 9), (NewTransaction(3, 1_000, 60_000, 9, "ab", "billing"),)
    )


@pytest.mark.parametrize("timeout_ms", [0, 86_400_001])
def test_a_timeout_out_of_range_is_refused(timeout_ms: int) -> None:
    with pytest.raises(InvalidOption, match=f"timeout is {timeout_ms} ms, expected 1 to 86400000 ms"):
        coordinator_machine.begin(state_with(), Begin(timeout_ms), 1, "", 2, 0, SETTINGS)


def test_no_more_than_the_limit_are_open() -> None:
    log = OwnedLog(5)
    log.new(1)
    log.new(2)
    with pytest.raises(TooManyTransactions, match="coordinator 5 has 2 unfinished transactions, expected below 2"):
        coordinator_machine.begin(log.state(), Begin(1), 1, "", 3, 0, SETTINGS)
    log.put(1, StatusUpdated(1, TxnStatus.ABORTING))
    log.put(1, StatusUpdated(1, TxnStatus.ABORTED))
    coordinator_machine.begin(log.state(), Begin(1), 1, "", 3, 0, SETTINGS)


def test_what_is_being_written_counts_as_open() -> None:
    coordinator_machine.begin(state_with(), Begin(1), 1, "", 2, 0, SETTINGS)
    with pytest.raises(TooManyTransactions):
        coordinator_machine.begin(state_with(), Begin(1), 1, "", 3, 0, SETTINGS, under_way=1)


def test_requests_are_refused_when_too_many_of_them_are_remembered() -> None:
    log = OwnedLog(5)
    few = CoordinatorSettings(max_open=1, max_finished=1)
    for local_id in (1, 2):
        log.new(local_id, request=f"r{local_id}")
        for each in ON_THE_WAY[TxnStatus.ABORTED]:
            log.put(local_id, StatusUpdated(1, each))
    with pytest.raises(TooManyTransactions, match="remembers 2 transactions of other processes, expected below 2"):
        coordinator_machine.begin(log.state(), Begin(1), 1, "r3", 3, 0, few)
    coordinator_machine.begin(log.state(), Begin(1), 1, "", 3, 0, few)


def test_ids_end_where_the_record_does() -> None:
    with pytest.raises(TooManyTransactions, match="all of its ids"):
        coordinator_machine.begin(state_with(), Begin(1), 1, "", 2**63, 0, SETTINGS)


# Registering --------------------------------------------------------------------------------------------------------


def test_a_partition_is_written_then_announced_then_done() -> None:
    command = AddPartitions(TXN, (PARTITION, PARTITION))
    written = coordinator_machine.register(state_with(), command, 1, frozenset(), SETTINGS)
    assert written == coordinator_machine.Write(TXN, (PartitionsAdded(1, (PARTITION,)),))
    known = state_with(TxnStatus.OPEN, PARTITION)
    assert coordinator_machine.register(known, command, 1, frozenset(), SETTINGS) == coordinator_machine.Announce(
        TXN, (PARTITION,)
    )
    assert coordinator_machine.register(known, command, 1, {PARTITION}, SETTINGS) == coordinator_machine.Done(TXN)


def test_only_what_is_missing_is_written() -> None:
    known = state_with(TxnStatus.OPEN, PARTITION)
    written = coordinator_machine.register(known, AddPartitions(TXN, (PARTITION, OTHER)), 1, frozenset(), SETTINGS)
    assert written == coordinator_machine.Write(TXN, (PartitionsAdded(1, (OTHER,)),))


def test_a_subscription_needs_no_announcement() -> None:
    log = OwnedLog(5)
    log.new(1)
    command = AddSubscriptions(TXN, (TopicSubscription("persistent://a/b/c", 0, "s"),))
    written = coordinator_machine.register(log.state(), command, 1, frozenset(), SETTINGS)
    assert isinstance(written, coordinator_machine.Write)
    log.put(1, written.values[0])
    assert coordinator_machine.register(log.state(), command, 1, frozenset(), SETTINGS) == coordinator_machine.Done(TXN)


@pytest.mark.parametrize("status", [status for status in TxnStatus if status is not TxnStatus.OPEN])
def test_nothing_is_added_to_what_is_not_open(status: TxnStatus) -> None:
    with pytest.raises(InvalidTxnStatus, match=f"is {status.value}, expected OPEN to add to it"):
        coordinator_machine.register(state_with(status), AddPartitions(TXN, (PARTITION,)), 1, frozenset(), SETTINGS)


def test_no_more_than_the_limit_take_part() -> None:
    many = AddPartitions(TXN, tuple(TopicPartition("persistent://a/b/c", number) for number in range(4)))
    with pytest.raises(InvalidOption, match="would have 4 partitions and subscriptions, at most 3"):
        coordinator_machine.register(state_with(), many, 1, frozenset(), SETTINGS)


def test_a_long_list_is_written_in_parts() -> None:
    many = tuple(TopicPartition("persistent://a/b/c", number) for number in range(1_200))
    write = coordinator_machine.register(state_with(), AddPartitions(TXN, many), 1, frozenset(), CoordinatorSettings())
    assert isinstance(write, coordinator_machine.Write)
    assert [len(value.partitions) for value in write.values if isinstance(value, PartitionsAdded)] == [500, 500, 200]


# Time-outs and groups -----------------------------------------------------------------------------------------------


def test_timeouts_expire_by_deadline_in_ticks_and_never_early() -> None:
    timeouts = TransactionTimeouts()
    timeouts.add(3, now_ms=50, left_ms=1_000)
    timeouts.add(2, now_ms=50, left_ms=1_030)
    timeouts.add(1, now_ms=50, left_ms=5_000)
    timeouts.add(4, now_ms=50, left_ms=-7)
    assert timeouts.next_ms() == TICK_MS
    assert timeouts.expired(99) == []
    assert timeouts.expired(100) == [4]
    assert timeouts.expired(1_099) == []
    assert timeouts.expired(1_100) == [2, 3]
    timeouts.remove(1)
    assert timeouts.next_ms() is None
    assert timeouts.expired(10_000) == []


def test_a_timeout_may_be_replaced_and_leftovers_do_not_pile_up() -> None:
    timeouts = TransactionTimeouts()
    for now_ms in range(1_000):
        timeouts.add(1, now_ms * 100, 5_000)
    assert len(timeouts) == 1
    assert len(timeouts._queue) < 20
    assert timeouts.expired(10**9) == [1]
    assert 1 not in timeouts


def test_groups_keep_order_and_both_limits_and_a_large_record_goes_alone() -> None:
    records = [(b"a", b"1" * 3), (b"b", None), (b"c", b"1" * 20), (b"d", b"1"), (b"e", b"1"), (b"f", b"1")]
    groups = [[key for key, _ in group] for group in in_groups(records, 2, 6)]
    assert groups == [[b"a", b"b"], [b"c"], [b"d", b"e"], [b"f"]]
    assert list(in_groups([], 2, 6)) == []


def test_a_group_waits_for_its_delay_or_until_it_is_full() -> None:
    delay = GroupDelay(most=3, delay_s=1.0)
    assert not delay.due(0, 5.0)
    assert delay.remaining_s(5.0) is None
    assert not delay.due(1, 5.0)
    assert delay.remaining_s(5.25) == 0.75
    assert not delay.due(2, 5.9)
    assert delay.due(2, 6.0)
    assert not delay.due(1, 6.5)
    assert delay.due(3, 6.6)


@pytest.mark.parametrize("name", ["max_open", "group_records", "finished_kept_ms"])
def test_settings_are_checked(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is 0, expected 1 or more"):
        CoordinatorSettings(**{name: 0})
