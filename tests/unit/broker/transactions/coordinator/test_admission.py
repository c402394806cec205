"""Admission of transactions in a turn, and the order of those that wait."""

from __future__ import annotations

from concurrent.futures import Future

from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import DeadlineExceeded, TransactionCoordinatorNotFound
from pulsar_on_kafka.broker.transactions.coordinator.rules import TransactionAdmission
from pulsar_on_kafka.broker.transactions.serving.commands import CoordinatorCommands, WaitingCommand
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.transactions.transaction_requests import Begin, End


def test_beside_a_broker_nearby_few_are_begun_at_once_and_more_where_a_turn_takes_long_anyway() -> None:
    admission = TransactionAdmission()
    assert admission.begins == 4
    admission.appended(0.0007, 1000.0)
    assert admission.begins == 4
    far = TransactionAdmission()
    far.appended(0.010, 1000.0)
    assert far.begins == 40


def test_one_slow_append_says_nothing_and_a_network_that_became_slower_is_noticed() -> None:
    admission = TransactionAdmission()
    for second in range(20):
        admission.appended(0.5 if second % 2 else 0.001, 1000.0 + second)
    assert admission.begins == 4
    for second in range(20, 100):
        admission.appended(0.010, 1000.0 + second)
    assert admission.begins == 40
    admission.appended(0.001, 1100.0)
    assert admission.begins == 4, "and one that became faster at once"


def waiting(command: Begin | End, deadline: Deadline | None = None) -> WaitingCommand:
    return WaitingCommand(command, future=Future[TxnId](), deadline=deadline or Deadline.never())


def test_whoever_is_in_the_middle_of_a_transaction_comes_first() -> None:
    commands = CoordinatorCommands(0, 100, 60_000, SystemClock())
    begins = [waiting(Begin(1000)) for _ in range(5)]
    end = waiting(End(TxnId(0, 1), commit=True))
    for each in (*begins, end):
        commands.add(each)
    assert list(commands) == [end]
    assert len(commands) == 6
    assert commands.let_in(2)
    assert list(commands) == [end, *begins[:2]]
    commands.drop(begins[2])
    assert not commands.let_in(4)
    assert list(commands) == [end, *begins[:2], *begins[3:]]


def test_who_was_not_let_in_is_told_when_its_time_is_over_and_when_the_coordinator_moves() -> None:
    commands = CoordinatorCommands(0, 100, 60_000, SystemClock())
    late, other = waiting(Begin(1000), Deadline.after(0.0)), waiting(Begin(1000))
    commands.add(late)
    commands.add(other)
    commands.drop_late()
    assert late.future is not None
    assert other.future is not None
    assert isinstance(late.future.exception(0), DeadlineExceeded)
    commands.resign()
    assert isinstance(other.future.exception(0), TransactionCoordinatorNotFound)
    assert len(commands) == 0
