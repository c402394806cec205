"""Transactions that nobody serves are served by those who wait for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.node.orphaned_transactions import HELD_UP_S, Abandoned
from pulsar_on_kafka.broker.transactions.coordinator.state import CoordinatorState, txn_id
from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka_mapping.state.state_keys import CoordinatorTakeoverKey, TransactionLogKey, encode_key
from pulsar_on_kafka_mapping.state.transactions.transaction_log import (
    LogValue,
    NewTransaction,
    StatusUpdated,
    TakenOver,
    TxnStatus,
    encode_log_value,
)
from tests.clocks import PacedClock

TXN = txn_id(3, 1)
OTHER = txn_id(3, 2)
TIMEOUT_MS = 60_000
NEVER = Deadline.never()


class Cluster:
    """One coordinator's log with one transaction, and what is done."""

    def __init__(self) -> None:
        self.clock = PacedClock()
        self.state = CoordinatorState(3)
        self.served = False
        self.joined = 0
        self.asked = 0
        self.trouble = False
        self._offset = 0
        key = CoordinatorTakeoverKey(3, "s", 1)
        self._apply(encode_key(key), TakenOver(0))
        self.write(NewTransaction(1, self.clock.now_ms(), TIMEOUT_MS, 1))
        self.abandoned = Abandoned(self, lambda deadline: self.served, self._join, self.clock)

    def write(self, value: LogValue) -> None:
        self._apply(encode_key(TransactionLogKey(3, *TXN, "s", self._offset)), value)

    def _apply(self, key: bytes, value: LogValue) -> None:
        self.state.apply(LogRecord(self._offset, key, encode_log_value(value), 0))
        self._offset += 1

    def _join(self, deadline: Deadline) -> None:
        self.joined += 1

    def query_each(
        self, partitions: Iterable[int], question: Callable[[CoordinatorState], list[float]], deadline: Deadline
    ) -> list[list[float]]:
        assert list(partitions) == [3]
        self.asked += 1
        if self.trouble:
            raise errors.StoreError("not now")
        return [question(self.state)]

    def hold_up(self, *, for_s: float = HELD_UP_S + 0.4) -> int:
        """A reader is held up for so long; how often this process came to serve by then."""
        until_ms = self.clock.ms + for_s * 1000
        while self.clock.ms <= until_ms:
            self.abandoned.hold_up({TXN, OTHER})
            looking = self.abandoned._looking
            if looking is not None:
                looking.join(30)
            self.clock.ms += 100
        return self.joined


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_what_holds_up_shortly_is_not_looked_at(cluster: Cluster) -> None:
    cluster.clock.ms += TIMEOUT_MS
    assert cluster.hold_up(for_s=HELD_UP_S - 0.2) == 0
    assert cluster.asked == 0
    cluster.clock.ms += 60_000
    assert cluster.hold_up(for_s=HELD_UP_S - 0.2) == 0, "it holds up anew"
    assert cluster.asked == 0


def test_a_transaction_in_its_time_is_waited_for(cluster: Cluster) -> None:
    assert cluster.hold_up() == 0
    assert cluster.asked > 0


def test_a_transaction_in_its_time_is_looked_at_again_when_that_is_over(cluster: Cluster) -> None:
    cluster.clock.ms += TIMEOUT_MS - 20_000
    assert cluster.hold_up(for_s=19) == 0
    assert cluster.asked < 6, "and one that nobody knows every five seconds"
    assert cluster.hold_up(for_s=2.5) == 1


def test_members_that_are_dead_are_waited_for_no_longer_than_kafka_keeps_them(cluster: Cluster) -> None:
    cluster.served = True
    cluster.clock.ms += TIMEOUT_MS
    assert cluster.hold_up(for_s=6) == 0
    assert 8 <= cluster.asked <= 14, "twice a second"
    cluster.served = False
    assert cluster.hold_up(for_s=0.8) == 1


def test_one_beyond_its_time_that_nobody_serves_makes_this_process_serve(cluster: Cluster) -> None:
    cluster.clock.ms += TIMEOUT_MS
    assert cluster.hold_up() == 1


def test_one_that_was_decided_and_does_not_end_does_so_too(cluster: Cluster) -> None:
    cluster.write(StatusUpdated(1, TxnStatus.COMMITTING))
    assert cluster.hold_up() == 1, "also in its time"


def test_where_somebody_serves_nothing_is_done(cluster: Cluster) -> None:
    cluster.served = True
    cluster.clock.ms += TIMEOUT_MS
    assert cluster.hold_up() == 0


def test_what_is_over_in_the_log_is_left_alone(cluster: Cluster) -> None:
    cluster.write(StatusUpdated(1, TxnStatus.ABORTING))
    cluster.write(StatusUpdated(1, TxnStatus.ABORTED))
    cluster.clock.ms += TIMEOUT_MS
    assert cluster.hold_up() == 0


def test_trouble_is_met_by_looking_again(cluster: Cluster) -> None:
    cluster.trouble = True
    cluster.clock.ms += TIMEOUT_MS
    assert cluster.hold_up() == 0
    cluster.trouble = False
    assert cluster.hold_up(for_s=6) >= 1


def test_nothing_is_begun_after_it_was_closed(cluster: Cluster) -> None:
    cluster.clock.ms += TIMEOUT_MS
    cluster.abandoned.close(NEVER)
    assert cluster.hold_up() == 0
    assert cluster.asked == 0
