"""Transactions as a program sees them, on coordinators that say what a test wants."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.publishing.official_errors import as_pulsar
from pulsar_on_kafka.broker.transactions.client_transaction import (
    ClientTransaction,
    TransactionClient,
    TransactionState,
)
from pulsar_on_kafka.broker.transactions.coordinator.rules import CoordinatorSettings
from pulsar_on_kafka.broker.transactions.serving.coordinator import Coordinator
from pulsar_on_kafka.broker.transactions.serving.coordinator_client import ClusterAccess, RemoteCoordinator
from pulsar_on_kafka.broker.transactions.serving.coordinators import Coordinators
from pulsar_on_kafka.broker.transactions.serving.log_writer import CoordinatorLog
from pulsar_on_kafka.exceptions import (
    InvalidTxnStatusError,
    Timeout,
    TransactionCoordinatorNotFoundError,
    TransactionNotFound,
)
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.transactions.transaction_log import TopicPartition
from pulsar_on_kafka_mapping.state.transactions.transaction_requests import AddPartitions, Begin, Command, End
from tests.memory_log import MemoryStateLog
from tests.state_log_requests import StateLogRequests, coordinator_logs
from tests.unit.broker.transactions.serving.test_coordinator import Effects

NEVER = Deadline.never()
TXN = TxnId(3 << 48, 7)
TOPIC = "persistent://a/b/c"
Answer = TxnId | Exception


class Scripted:
    """Coordinators 0 to `count` - 1. Each wish gets the next answer of the script, then what is asked for."""

    def __init__(self, *script: Answer, count: int = 1) -> None:
        self.script = list(script)
        self.count = count
        self.asked: list[tuple[int, Command]] = []
        self.while_asking: Callable[[], object] = lambda: None

    def candidates(self) -> Sequence[int]:
        return range(self.count)

    def request(self, coordinator: int, command: Command, deadline: Deadline) -> TxnId:
        self.asked.append((coordinator, command))
        self.while_asking()
        answer = self.script.pop(0) if self.script else TXN
        if isinstance(answer, Exception):
            raise answer
        return answer


def transaction(access: Scripted, timeout_ms: int = 60_000) -> ClientTransaction:
    return ClientTransaction(TXN, timeout_ms, access, SystemClock(), wait=lambda seconds: None)


# Beginning ----------------------------------------------------------------------------------------------------------


def test_the_next_coordinator_is_asked_when_one_does_not_answer() -> None:
    access = Scripted(errors.TransactionCoordinatorNotFound("0"), errors.AppendOutcomeUnknown("1"), count=3)
    begun = TransactionClient(access, SystemClock(), wait=lambda seconds: None).begin(5_000, NEVER)
    assert begun.id == TXN
    assert [coordinator for coordinator, _ in access.asked] == [0, 1, 2]
    assert 0 < begun.remaining_ms() <= 5_000
    assert begun.state is TransactionState.OPEN


def test_without_any_coordinator_begin_says_so() -> None:
    access = Scripted(*[errors.TransactionCoordinatorNotFound("nobody")] * 9, count=2)
    with pytest.raises(
        errors.TransactionCoordinatorNotFound, match="no transaction was begun in time: nobody"
    ) as found:
        TransactionClient(access, SystemClock()).begin(5_000, Deadline.after(0))
    assert isinstance(as_pulsar(found.value), TransactionCoordinatorNotFoundError)


def test_a_missing_right_is_told_at_once() -> None:
    access = Scripted(errors.NotAuthorized("no WRITE on requests"), count=2)
    with pytest.raises(errors.NotAuthorized):
        TransactionClient(access, SystemClock()).begin(5_000, NEVER)
    assert len(access.asked) == 1


def test_when_all_are_full_begin_says_so() -> None:
    access = Scripted(*[errors.TooManyTransactions("full")] * 2, count=2)
    with pytest.raises(errors.TooManyTransactions):
        TransactionClient(access, SystemClock()).begin(5_000, NEVER)
    assert len(access.asked) == 2


def test_all_are_asked_again_until_the_deadline() -> None:
    access = Scripted(*[errors.TransactionCoordinatorNotFound("not yet")] * 7, count=2)
    begun = TransactionClient(access, SystemClock(), wait=lambda seconds: None).begin(5_000, NEVER)
    assert begun.id == TXN
    assert [coordinator for coordinator, _ in access.asked] == [0, 1] * 4


def test_a_coordinator_that_this_process_comes_to_serve_is_asked_next() -> None:
    access = Scripted(errors.AppendOutcomeUnknown("0"), count=16)
    access.candidates = lambda: [9, *range(9), *range(10, 16)] if access.asked else range(16)  # type: ignore[method-assign]
    TransactionClient(access, SystemClock(), wait=lambda seconds: None).begin(5_000, NEVER)
    assert [coordinator for coordinator, _ in access.asked] == [0, 9]


def test_an_unreadable_log_of_one_coordinator_is_no_reason_not_to_ask_the_next() -> None:
    access = Scripted(errors.Corrupt("offset 7"), count=2)
    assert TransactionClient(access, SystemClock()).begin(5_000, NEVER).id == TXN
    assert len(access.asked) == 2


# Registering --------------------------------------------------------------------------------------------------------


def test_each_partition_and_subscription_is_registered_once() -> None:
    access = Scripted()
    txn = transaction(access)
    for _ in range(3):
        txn.register_partition(TOPIC, 0, NEVER)
        txn.register_partition(TOPIC, 1, NEVER)
        txn.register_subscription(TOPIC, 0, "s", NEVER)
    assert len(access.asked) == 3
    assert {coordinator for coordinator, _ in access.asked} == {3}


def test_a_transaction_over_hundreds_of_partitions_registers_many_with_one_request() -> None:
    access = Scripted()
    txn = transaction(access)
    for number in range(250):
        txn.register_partition(TOPIC, (number + 7) % 250, NEVER, partitions=250)
    commands = [command for _, command in access.asked]
    asked = [each for command in commands if isinstance(command, AddPartitions) for each in command.partitions]
    assert sorted(asked) == [TopicPartition(TOPIC, number) for number in range(250)], "each once"
    assert [len(command.partitions) for command in commands if isinstance(command, AddPartitions)][:6] == [
        1,
        1,
        1,
        1,
        5,
        10,
    ]
    assert len(commands) < 12


def test_what_was_registered_ahead_in_vain_is_registered_when_it_is_written_to() -> None:
    access = Scripted(*[TXN] * 4, errors.DeadlineExceeded("lost"))
    txn = transaction(access)
    for number in range(4):
        txn.register_partition(TOPIC, number, NEVER, partitions=6)
    with pytest.raises(errors.DeadlineExceeded):
        txn.register_partition(TOPIC, 4, NEVER, partitions=6)
    txn.register_partition(TOPIC, 5, NEVER, partitions=6)
    command = access.asked[-1][1]
    assert isinstance(command, AddPartitions)
    assert command.partitions == (TopicPartition(TOPIC, 5), TopicPartition(TOPIC, 4))


def test_of_many_threads_one_registers_and_the_others_wait_for_it() -> None:
    access = Scripted()
    under_way, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        under_way.set()
        assert go_on.wait(10)

    access.while_asking = hold
    txn = transaction(access)
    with ThreadPoolExecutor(4) as threads:
        registered = [threads.submit(txn.register_partition, TOPIC, 0, NEVER) for _ in range(4)]
        assert under_way.wait(10)
        go_on.set()
        for each in registered:
            each.result(10)
    assert len(access.asked) == 1


def test_a_registration_that_failed_may_be_repeated() -> None:
    access = Scripted(errors.AppendOutcomeUnknown("?"))
    txn = transaction(access)
    with pytest.raises(errors.AppendOutcomeUnknown):
        txn.register_partition(TOPIC, 0, NEVER)
    assert txn.state is TransactionState.OPEN
    txn.register_partition(TOPIC, 0, NEVER)
    assert [command for _, command in access.asked] == [AddPartitions(TXN, (TopicPartition(TOPIC, 0),))] * 2


def test_a_refused_registration_ends_the_transaction() -> None:
    txn = transaction(Scripted(errors.InvalidTxnStatus("aborted")))
    with pytest.raises(errors.InvalidTxnStatus):
        txn.register_partition(TOPIC, 0, NEVER)
    assert txn.state is TransactionState.ERROR
    with pytest.raises(errors.InvalidTxnStatus, match="844424930131968:7 is ERROR, expected OPEN"):
        txn.register_partition(TOPIC, 1, NEVER)


def test_when_its_time_is_over_nothing_takes_part_any_more() -> None:
    access = Scripted()
    txn = transaction(access, timeout_ms=0)
    assert txn.state is TransactionState.TIME_OUT
    with pytest.raises(errors.InvalidTxnStatus, match="is TIME_OUT"):
        txn.begin_operation()
    assert access.asked == []


# Ending -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_whose_answer_was_lost_is_asked_for_again(commit: bool) -> None:
    access = Scripted(
        errors.TransactionOutcomeUnknown("?"),
        errors.TransactionCoordinatorNotFound("gone"),
        errors.DeadlineExceeded(""),
    )
    txn = transaction(access)
    (txn.commit if commit else txn.abort)(NEVER)
    assert [command for _, command in access.asked] == [End(TXN, commit)] * 4
    assert txn.state is (TransactionState.COMMITTED if commit else TransactionState.ABORTED)


def test_after_an_unknown_outcome_the_same_end_may_be_asked_for_and_no_other() -> None:
    txn = transaction(Scripted(errors.TransactionOutcomeUnknown("?")))
    with pytest.raises(errors.TransactionOutcomeUnknown) as found:
        txn.commit(Deadline.after(0))
    assert isinstance(as_pulsar(found.value), Timeout)
    assert txn.state is TransactionState.COMMITTING
    with pytest.raises(errors.InvalidTxnStatus, match="is COMMITTING, expected OPEN or ABORTING"):
        txn.abort(NEVER)
    txn.commit(NEVER)
    assert txn.state is TransactionState.COMMITTED
    with pytest.raises(errors.InvalidTxnStatus, match="is COMMITTED"):
        txn.commit(NEVER)


@pytest.mark.parametrize(
    ("refusal", "official"),
    [
        (errors.InvalidTxnStatus("is ABORTED"), InvalidTxnStatusError),
        (errors.TransactionNotFound("forgotten"), TransactionNotFound),
    ],
)
def test_a_refused_commit_is_an_error_with_its_official_name(
    refusal: errors.Refused, official: type[Exception]
) -> None:
    txn = transaction(Scripted(refusal))
    with pytest.raises(type(refusal)) as found:
        txn.commit(NEVER)
    assert type(as_pulsar(found.value)) is official
    assert txn.state is TransactionState.ERROR


def test_a_transaction_with_a_failed_operation_is_aborted_instead_of_committed() -> None:
    access = Scripted()
    txn = transaction(access)
    txn.begin_operation()
    txn.end_operation("the message is too big")
    with pytest.raises(errors.TransactionHasFailed, match="was aborted: the message is too big"):
        txn.commit(NEVER)
    assert [command for _, command in access.asked] == [End(TXN, commit=False)]
    assert txn.state is TransactionState.ABORTED


def test_an_end_waits_for_operations_under_way() -> None:
    access = Scripted()
    txn = transaction(access)
    txn.begin_operation()
    with pytest.raises(errors.DeadlineExceeded, match="1 operations"):
        txn.commit(Deadline.after(0))
    assert txn.state is TransactionState.OPEN
    with ThreadPoolExecutor(1) as threads:
        committed = threads.submit(txn.commit, Deadline.after(10))
        txn.end_operation()
        committed.result(10)
    assert txn.state is TransactionState.COMMITTED


# Threads, and coordinators of another process -----------------------------------------------------------------------


class Process:
    """Coordinators with their threads on a log that processes share."""

    def __init__(self, log: MemoryStateLog, effects: Effects) -> None:
        self.log = log
        self.effects = effects
        self.clock = SystemClock()
        self.coordinators = Coordinators(self._make)
        self.access = ClusterAccess(self.coordinators, self._remote, lambda: 16)
        self.client = TransactionClient(self.access, self.clock)

    def _make(self, number: int) -> Coordinator:
        return Coordinator(
            CoordinatorLog(self.log, number, self.clock),
            self.effects,
            StateLogRequests(self.log, number),
            settings=CoordinatorSettings(group_delay_ms=1),
            clock=self.clock,
        )

    def _remote(self, number: int) -> RemoteCoordinator:
        return RemoteCoordinator(self.log, number, coordinator_logs(self.log, self.clock), self.clock)

    def close(self) -> None:
        self.coordinators.close(Deadline.after(10))
        self.coordinators.close(Deadline.after(10))


def test_two_processes_and_a_coordinator_that_moves() -> None:
    log, effects = MemoryStateLog(), Effects()
    one, other = Process(log, effects), Process(log, effects)
    deadline = Deadline.after(30)
    try:
        one.coordinators.on_assign([4])
        assert one.coordinators.owned() == [4]
        near, far = one.client.begin(60_000, deadline), other.client.begin(60_000, deadline)
        assert (near.id.coordinator, far.id.coordinator) == (4, 4)
        for txn in (near, far):
            txn.register_partition(TOPIC, 0, deadline)
            txn.register_subscription(TOPIC, 0, "s", deadline)
        near.commit(deadline)
        one.coordinators.on_revoke([4])
        other.coordinators.on_assign([4])
        far.abort(deadline)
        ended = ["marker commit", "end commit", "settle commit"]
        assert effects.of(near.id) in (["open commit", *ended], ["open commit", *ended, *ended])
        assert effects.of(far.id) == ["open commit", "marker abort", "end abort", "settle abort"]
        with pytest.raises(errors.TransactionCoordinatorNotFound, match="is not assigned to this process"):
            one.coordinators.submit(4, Begin(1), deadline)
    finally:
        one.close()
        other.close()
    assert [thread for thread in threading.enumerate() if thread.name.startswith("pok-coordinator")] == []


def test_many_threads_share_a_coordinator() -> None:
    process = Process(MemoryStateLog(), Effects())
    deadline = Deadline.after(60)

    def work(number: int) -> TxnId:
        txn = process.client.begin(60_000, deadline)
        txn.register_partition(TOPIC, number % 3, deadline)
        (txn.commit if number % 2 else txn.abort)(deadline)
        return txn.id

    try:
        process.coordinators.on_assign([0, 1])
        with ThreadPoolExecutor(8) as threads:
            ids = list(threads.map(work, range(40)))
    finally:
        process.close()
    assert len(set(ids)) == 40
    assert {txn.coordinator for txn in ids} <= {0, 1}
    for number, txn in enumerate(ids):
        assert process.effects.of(txn)[1:] == (
            ["marker commit", "settle commit"] if number % 2 else ["marker abort", "settle abort"]
        )


def test_there_is_no_coordinator_beyond_the_last() -> None:
    process = Process(MemoryStateLog(), Effects())
    with pytest.raises(errors.TransactionCoordinatorNotFound, match="expected 0 to 15"):
        process.access.request(16, Begin(1), NEVER)
    process.close()
