"""Inspection of coordinators and their transactions by an operator, from any process: their logs say it. Pure.

Source: Pulsar's TransactionCoordinatorStats and TransactionMetadata (`pulsar-admin transactions`).
"""

from __future__ import annotations

from dataclasses import dataclass

from pulsar_on_kafka.mapping.ids.txn_id import TxnId
from pulsar_on_kafka.mapping.state.transactions.transaction_log import TopicPartition, TopicSubscription, TxnStatus
from pulsar_on_kafka.transactions.coordinator.rules import OPEN
from pulsar_on_kafka.transactions.coordinator.state import CoordinatorState, Transaction


@dataclass(frozen=True, slots=True)
class CoordinatorStats:
    """One coordinator.

    Attributes:
        owner: session and version of who took over last; None before the first. It may be dead.
        highest_id: the last id that was given; -1 before the first.
        low_water: every transaction at or below it is finished.
        open, ending: transactions that are open, and that are COMMITTING or ABORTING.
    """

    coordinator: int
    owner: tuple[str, int] | None
    highest_id: int
    low_water: int
    open: int
    ending: int


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """One transaction. Times are Unix times in milliseconds."""

    id: TxnId
    status: TxnStatus
    opened_at_ms: int
    timeout_at_ms: int
    partitions: tuple[TopicPartition, ...]
    subscriptions: tuple[TopicSubscription, ...]


def coordinator_stats(state: CoordinatorState) -> CoordinatorStats:
    ending = len(state.ending())
    return CoordinatorStats(
        state.coordinator,
        None if state.owner is None else (state.owner.session, state.owner.version),
        state.highest_id,
        state.low_water,
        state.unfinished - ending,
        ending,
    )


def transaction_info(transaction: Transaction) -> TransactionInfo:
    return TransactionInfo(
        transaction.id,
        transaction.status,
        transaction.new.start_ms,
        transaction.deadline_ms(),
        tuple(transaction.partitions),
        tuple(transaction.subscriptions),
    )


def slow_transactions(state: CoordinatorState, now_ms: int, at_least_ms: int) -> list[TransactionInfo]:
    """Those that are not finished `at_least_ms` after they were opened, the oldest first: open ones, and those whose
    effects do not get to their places."""
    found = [each for each in state.transactions() if not each.finished]
    old = [each for each in found if now_ms - each.new.start_ms >= at_least_ms]
    return [transaction_info(each) for each in sorted(old, key=lambda each: (each.new.start_ms, each.id))]


def overdue(info: TransactionInfo, now_ms: int) -> bool:
    """Open beyond its time-out: nobody serves its coordinator, or the clocks of two machines differ."""
    return info.status is OPEN and now_ms > info.timeout_at_ms
