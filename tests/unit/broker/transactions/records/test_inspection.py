"""Coordinators as operators see them."""

from __future__ import annotations

from pulsar_on_kafka.broker.transactions.coordinator.state import CoordinatorState, txn_id
from pulsar_on_kafka.broker.transactions.records.inspection import (
    coordinator_stats,
    slow_transactions,
    transaction_info,
)
from pulsar_on_kafka_mapping.state.transactions.transaction_log import (
    PartitionsAdded,
    StatusUpdated,
    TopicPartition,
    TxnStatus,
)
from tests.unit.broker.transactions.coordinator_logs import OwnedLog

PARTITION = TopicPartition("persistent://a/b/c", 0)


def some_transactions() -> CoordinatorState:
    log = OwnedLog(2)
    for local_id in (1, 2, 3):
        log.new(local_id, timeout_ms=10_000 * local_id)  # all at 1,000 ms
    log.put(1, PartitionsAdded(1, (PARTITION,)))
    log.put(2, StatusUpdated(1, TxnStatus.COMMITTING))
    log.put(3, StatusUpdated(1, TxnStatus.ABORTING))
    log.put(3, StatusUpdated(1, TxnStatus.ABORTED))
    return log.state()


def test_stats_of_a_coordinator() -> None:
    stats = coordinator_stats(some_transactions())
    assert (stats.coordinator, stats.owner, stats.highest_id, stats.low_water) == (2, ("a", 1), 3, 0)
    assert (stats.open, stats.ending) == (1, 1)


def test_stats_of_one_that_never_served() -> None:
    stats = coordinator_stats(CoordinatorState(2))
    assert (stats.owner, stats.highest_id, stats.low_water, stats.open, stats.ending) == (None, -1, -1, 0, 0)


def test_what_a_transaction_is() -> None:
    transaction = some_transactions().transaction(txn_id(2, 1))
    assert transaction is not None
    info = transaction_info(transaction)
    assert (info.id, info.status, info.opened_at_ms, info.timeout_at_ms) == (
        txn_id(2, 1),
        TxnStatus.OPEN,
        1_000,
        11_000,
    )
    assert (info.partitions, info.subscriptions) == ((PARTITION,), ())


def test_slow_ones_are_not_finished_for_a_long_time() -> None:
    state = some_transactions()
    assert [info.id.least_bits for info in slow_transactions(state, 6_000, 5_000)] == [1, 2]
    assert slow_transactions(state, 5_999, 5_000) == []
