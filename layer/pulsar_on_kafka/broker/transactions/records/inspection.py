"""Inspection of coordinators, their transactions, and the places where these take effect, by an operator. Pure.

Source: Pulsar's TransactionCoordinatorStats, TransactionMetadata, TransactionInBufferStats,
TransactionInPendingAckStats, TransactionBufferStats and TransactionPendingAckStats (`pulsar-admin transactions`); what
they count is ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Final

from pyroaring import BitMap64

from pulsar_on_kafka.broker.cursor.identity import CursorName
from pulsar_on_kafka.broker.transactions.buffer.entries import BufferEntries, TxnEntryStatus
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition
from pulsar_on_kafka.broker.transactions.coordinator.state import CoordinatorState, LoggedTransaction
from pulsar_on_kafka.broker.transactions.pending_acks.holdings import together
from pulsar_on_kafka.broker.transactions.pending_acks.log import CursorAcks
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.transactions.pending_acks import CursorIncarnation
from pulsar_on_kafka_mapping.state.transactions.transaction_buffer import OpenEntry
from pulsar_on_kafka_mapping.state.transactions.transaction_log import TopicPartition, TopicSubscription, TxnStatus


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
    """One transaction. Times are Unix times in milliseconds. `owner` is the role for which a gateway began it, ""
    without authentication."""

    id: TxnId
    status: TxnStatus
    opened_at_ms: int
    timeout_at_ms: int
    partitions: tuple[TopicPartition, ...]
    subscriptions: tuple[TopicSubscription, ...]
    owner: str = ""


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


def transaction_info(transaction: LoggedTransaction) -> TransactionInfo:
    return TransactionInfo(
        transaction.id,
        transaction.status,
        transaction.new.start_ms,
        transaction.deadline_ms(),
        tuple(transaction.partitions),
        tuple(transaction.subscriptions),
        transaction.new.owner,
    )


def slow_transactions(state: CoordinatorState, now_ms: int, at_least_ms: int) -> list[TransactionInfo]:
    """Transactions that are not finished `at_least_ms` after they were opened, the oldest first: open ones, and those
    with effects outstanding."""
    found = [each for each in state.transactions() if not each.finished]
    old = [each for each in found if now_ms - each.new.start_ms >= at_least_ms]
    return [transaction_info(each) for each in sorted(old, key=lambda each: (each.new.start_ms, each.id))]


MAX_RANGES: Final = 100
"""The limit of offset ranges that are shown of one transaction in one place."""


class BufferedState(str, Enum):
    """The word of a partition's buffer on a transaction."""

    OPEN = "OPEN"
    ABORTED = "ABORTED"
    NOTHING = "NOTHING"
    """Its records there, if it has any, are committed."""


@dataclass(frozen=True, slots=True)
class TransactionInBuffer:
    """One transaction in one partition.

    Attributes:
        lower_bound: none of its records lies below; None where nothing is on record.
        records: how many of its records are on record as aborted or void (came after its end); `ranges` the first
            hundred ranges of these, both ends inclusive.
        sealed: of an aborted one: no further record of it can come.
        former_lives: entries that speak of a former life of the topic: of an open transaction they hold this one, too,
            others wait to be cleaned.
    """

    txn: TxnId
    topic: str
    partition: int
    on_record: BufferedState
    lower_bound: int | None = None
    records: int = 0
    ranges: tuple[tuple[int, int], ...] = ()
    sealed: bool = False
    former_lives: int = 0


@dataclass(frozen=True, slots=True)
class PartitionBufferStats:
    """Transactions in the buffer of one partition, counted.

    Attributes:
        ongoing: open transactions; `bound` is the lowest offset at which a record of one may lie, and None without any.
        aborted: aborted transactions; `unsealed` those of which a record may still arrive.
        excluded: records of aborted transactions, and records that arrived after the end of their transaction.
        entries: records of the buffer topic about this partition, `waiting` of them void or of an earlier incarnation:
            they wait to be cleaned.
    """

    topic: str
    partition: int
    ongoing: int
    bound: int | None
    aborted: int
    unsealed: int
    excluded: int
    entries: int
    waiting: int


@dataclass(frozen=True, slots=True)
class TransactionInPendingAck:
    """One transaction's pending acks on one subscription's partition.

    Attributes:
        entries: whole entries that it holds, `ranges` the first hundred ranges of them, both ends inclusive; `batches`
            entries of which it holds some messages; `cumulative` the entry up to which it holds everything.
        ended: COMMITTED or ABORTED when that is on record and the cursor has not taken it in; else "".
    """

    txn: TxnId
    topic: str
    partition: int
    subscription: str
    entries: int = 0
    ranges: tuple[tuple[int, int], ...] = ()
    batches: int = 0
    cumulative: int | None = None
    ended: str = ""


@dataclass(frozen=True, slots=True)
class PendingAckStats:
    """Pending acks of all transactions on one subscription's partition, counted.

    Attributes:
        owner: session and version of the last process that took the cursor over for acknowledgements in transactions;
            None when there were none. The process may be dead.
        ongoing: transactions that hold something; `entries` all they hold, as in `TransactionInPendingAck`.
        ended: outcomes of these and other transactions that the cursor's owner has not applied.
        former_lives: records of a subscription or topic that was deleted since.
    """

    topic: str
    partition: int
    subscription: str
    owner: tuple[str, int] | None
    ongoing: int
    entries: int
    batches: int
    cumulative: int | None
    ended: int
    former_lives: int


def in_buffer(entries: BufferEntries, where: DataPartition, txn: TxnId) -> TransactionInBuffer:
    former = sum(entry.incarnation != where.incarnation for _, entry in entries.entries(where, txn))
    aborted, void = entries.aborted(where, txn), entries.void(where, txn)
    excluded = void if aborted is None else aborted.offsets | void
    on_record: BufferedState = BufferedState.NOTHING
    bound: int | None = None
    if aborted is not None:
        on_record, bound = BufferedState.ABORTED, aborted.lower_bound
    elif entries.status(where, txn) is TxnEntryStatus.OPEN:
        on_record, bound = BufferedState.OPEN, entries.announced_bounds(where)[txn]
    return TransactionInBuffer(
        txn,
        where.topic,
        where.partition,
        on_record,
        bound,
        len(excluded),
        first_ranges(excluded),
        aborted is not None and aborted.sealed,
        former,
    )


def all_in_buffer(entries: BufferEntries, where: DataPartition) -> list[TransactionInBuffer]:
    """Every transaction that anything is on record of, by id."""
    return [in_buffer(entries, where, txn) for txn in sorted(entries.transactions(where))]


def buffer_stats(entries: BufferEntries, where: DataPartition) -> PartitionBufferStats:
    snapshot = entries.snapshot(where)
    aborted = total = waiting = 0
    for txn in entries.transactions(where):
        aborted += entries.aborted(where, txn) is not None
        for _, entry in entries.entries(where, txn):
            total += 1
            if isinstance(entry, OpenEntry):
                waiting += txn not in snapshot.open_bounds
            else:
                waiting += entry.incarnation != where.incarnation
    return PartitionBufferStats(
        where.topic,
        where.partition,
        len(snapshot.open_bounds),
        snapshot.bound,
        aborted,
        len(snapshot.unsealed),
        len(snapshot.excluded),
        total,
        waiting,
    )


def in_pending_acks(acks: CursorAcks, name: CursorName, life: CursorIncarnation, txn: TxnId) -> TransactionInPendingAck:
    held = together(acks.counted(life, txn), txn)
    end = acks.ends.get(txn)
    return TransactionInPendingAck(
        txn,
        *name,
        len(held.whole),
        first_ranges(held.whole),
        len(held.batches),
        None if held.cumulative is None else held.cumulative.offset,
        "" if end is None else end.outcome.name,
    )


def all_in_pending_acks(acks: CursorAcks, name: CursorName, life: CursorIncarnation) -> list[TransactionInPendingAck]:
    """Every transaction that holds something, or of which an outcome waits, by id."""
    txns = {*acks.life(life).transactions(), *acks.ends}
    return [in_pending_acks(acks, name, life, txn) for txn in sorted(txns)]


def pending_ack_stats(acks: CursorAcks, name: CursorName, life: CursorIncarnation) -> PendingAckStats:
    mine = acks.life(life)
    held = [together(acks.counted(life, txn), txn) for txn in mine.transactions()]
    cumulative = [ack.cumulative.offset for ack in held if ack.cumulative is not None]
    owner = mine.fence.owner
    return PendingAckStats(
        *name,
        None if owner is None else (owner.session, owner.version),
        sum(bool(ack.whole or ack.batches or ack.cumulative) for ack in held),
        sum(len(ack.whole) for ack in held),
        sum(len(ack.batches) for ack in held),
        max(cumulative, default=None),
        len(acks.ends),
        sum(
            len(log.takeovers) + sum(len(log.keys_of(txn)) for txn in log.transactions())
            for other, log in acks.lives.items()
            if other != life
        ),
    )


def first_ranges(offsets: BitMap64) -> tuple[tuple[int, int], ...]:
    """The first hundred ranges, both ends inclusive."""
    return tuple(islice(_ranges(offsets), MAX_RANGES))


def _ranges(offsets: Iterable[int]) -> Iterable[tuple[int, int]]:
    first: int | None = None
    last = -1
    for offset in offsets:
        if first is not None and offset == last + 1:
            last = offset
            continue
        if first is not None:
            yield first, last
        first = last = offset
    if first is not None:
        yield first, last
