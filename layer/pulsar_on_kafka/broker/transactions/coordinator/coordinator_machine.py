"""The coordinator machine computes from a command and the state, read to the end, the records to write or the reply.
Pure.

A decision with records changes nothing by itself. The records are written and read back as valid, and then the command
is decided once more, until it is `Done`. So every reply rests on the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from pulsar_on_kafka.base.errors import InvalidOption, InvalidTxnStatus, TooManyTransactions, TransactionNotFound
from pulsar_on_kafka.broker.transactions.coordinator.rules import (
    COMMITTED,
    OPEN,
    TRANSITIONS,
    CoordinatorSettings,
    TransactionInput,
)
from pulsar_on_kafka.broker.transactions.coordinator.state import CoordinatorState, LoggedTransaction, txn_id
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.transactions.transaction_log import (
    LogValue,
    NewTransaction,
    PartitionsAdded,
    StatusUpdated,
    SubscriptionsAdded,
    TopicPartition,
    TopicSubscription,
)
from pulsar_on_kafka_mapping.state.transactions.transaction_requests import AddPartitions, AddSubscriptions, Begin, End

MAX_LOCAL_ID: Final = 2**63 - 1
_PARTICIPANTS_A_RECORD: Final = 500


@dataclass(frozen=True, slots=True)
class Write:
    """Write these records about one transaction, in this order, and decide again when they are read back."""

    txn: TxnId
    values: tuple[LogValue, ...]


@dataclass(frozen=True, slots=True)
class Announce:
    """The registration is in the log; these partitions must be announced to their buffers before it is answered."""

    txn: TxnId
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """The outcome is decided, and not everywhere yet."""


@dataclass(frozen=True, slots=True)
class Done:
    """The answer. After `End` it is given when the outcome is everywhere, as Pulsar does it."""

    txn: TxnId


Decision = Write | Announce | Wait | Done


def begin(
    state: CoordinatorState,
    command: Begin,
    by: int,
    request: str,
    next_id: int,
    now_ms: int,
    settings: CoordinatorSettings,
    under_way: int = 0,
) -> Write:
    """A new transaction, under `next_id`; `under_way` others are written together with it.

    Raises:
        InvalidOption: a time-out of less than 1 ms or above the coordinator's limit.
        TooManyTransactions: as many are unfinished as may be.
    """
    longest = settings.max_timeout_ms
    if not 1 <= command.timeout_ms <= longest:
        raise InvalidOption(f"transaction timeout is {command.timeout_ms} ms, expected 1 to {longest} ms")
    if next_id > MAX_LOCAL_ID:
        raise TooManyTransactions(f"coordinator {state.coordinator} has given all of its ids")
    unfinished = state.unfinished + under_way
    if unfinished >= settings.max_open:
        raise TooManyTransactions(
            f"coordinator {state.coordinator} has {unfinished} unfinished transactions, "
            f"expected below {settings.max_open}"
        )
    if request and state.begun_by_requests + under_way >= settings.max_open + settings.max_finished:
        raise TooManyTransactions(
            f"coordinator {state.coordinator} remembers {state.begun_by_requests} transactions of other processes, "
            f"expected below {settings.max_open + settings.max_finished}"
        )
    new = NewTransaction(by, now_ms, command.timeout_ms, next_id, request, command.owner)
    return Write(txn_id(state.coordinator, next_id), (new,))


def register(
    state: CoordinatorState,
    command: AddPartitions | AddSubscriptions,
    by: int,
    announced: AbstractSet[TopicPartition],
    settings: CoordinatorSettings,
) -> Decision:
    """Register participants, each once. `announced`: partitions whose buffers know of the transaction for certain.

    Raises:
        TransactionNotFound, InvalidTxnStatus: it is not open.
        InvalidOption: the transaction would have more participants than it may.
    """
    transaction = _known(state, command.txn)
    if transaction.status is not OPEN:
        raise InvalidTxnStatus(
            f"transaction {_text(command.txn)} is {transaction.status.value}, expected OPEN to add to it"
        )
    missing: Sequence[TopicPartition | TopicSubscription]
    if isinstance(command, AddPartitions):
        missing = [each for each in dict.fromkeys(command.partitions) if each not in transaction.partitions]
    else:
        missing = [each for each in dict.fromkeys(command.subscriptions) if each not in transaction.subscriptions]
    if transaction.participants + len(missing) > settings.max_participants:
        raise InvalidOption(
            f"transaction {_text(command.txn)} would have {transaction.participants + len(missing)} partitions and "
            f"subscriptions, at most {settings.max_participants} are possible"
        )
    if missing:
        kind = PartitionsAdded if isinstance(command, AddPartitions) else SubscriptionsAdded
        parts = range(0, len(missing), _PARTICIPANTS_A_RECORD)
        return Write(command.txn, tuple(kind(by, tuple(missing[at : at + _PARTICIPANTS_A_RECORD])) for at in parts))  # type: ignore[arg-type]
    if isinstance(command, AddPartitions):
        silent = tuple(each for each in dict.fromkeys(command.partitions) if each not in announced)
        if silent:
            return Announce(command.txn, silent)
    return Done(command.txn)


def end(state: CoordinatorState, command: End, by: int) -> Decision:
    """Commit or abort.

    Raises:
        TransactionNotFound: it is over and forgotten, or never was.
        InvalidTxnStatus: it ends the other way.
    """
    transaction = _known(state, command.txn)
    move = TransactionInput.COMMIT if command.commit else TransactionInput.ABORT
    after = TRANSITIONS.get((transaction.status, move))
    if after is None:
        raise InvalidTxnStatus(
            f"transaction {_text(command.txn)} is {transaction.status.value}, it cannot {move.value} any more"
        )
    if after is not transaction.status:
        return Write(command.txn, (StatusUpdated(by, after),))
    return Done(command.txn) if transaction.finished else Wait()


def time_out(transaction: LoggedTransaction, by: int) -> Write | None:
    """Abort it, unless it is ending already."""
    after = TRANSITIONS.get((transaction.status, TransactionInput.TIME_OUT))
    return None if after is None else Write(transaction.id, (StatusUpdated(by, after),))


def in_place(transaction: LoggedTransaction, by: int) -> Write:
    """Its outcome is everywhere. Only for a transaction that is COMMITTING or ABORTING."""
    return Write(transaction.id, (StatusUpdated(by, TRANSITIONS[transaction.status, TransactionInput.IN_PLACE]),))


def committed(transaction: LoggedTransaction) -> bool:
    """Whether the transaction commits. Only for a transaction that is not open."""
    return (
        transaction.status is COMMITTED or TRANSITIONS.get((transaction.status, TransactionInput.IN_PLACE)) is COMMITTED
    )


def _known(state: CoordinatorState, txn: TxnId) -> LoggedTransaction:
    transaction = state.transaction(txn)
    if transaction is None:
        raise TransactionNotFound(
            f"transaction {_text(txn)}: coordinator {state.coordinator} does not know it (any more)"
        )
    return transaction


def _text(txn: TxnId) -> str:
    return txn.to_bytes().decode()
