"""Outcomes are the writes of a coordinator outside its own log: the places where a transaction takes effect.

An implementation of `Outcomes` appends the records that the functions here return, by partition of the state topic. The
records of one function may go into one append. Records that must be durable first come from a function of their own.

Every call is idempotent, because the coordinator's next owner repeats it. A coordinator that was paused may make a call
long after another one did: the call then writes the decided outcome, which was durable and valid before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from pyroaring import BitMap64

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import StoreError
from pulsar_on_kafka.broker.transactions.buffer.entries import BufferEntries
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.state_keys import LowWaterKey, PendingAckEndKey, TransactionBufferKey, encode_key
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_BUFFER_SNAPSHOT, TRANSACTION_PENDING_ACK
from pulsar_on_kafka_mapping.state.transactions.pending_acks import TxnOutcome, encode_end
from pulsar_on_kafka_mapping.state.transactions.transaction_buffer import (
    AbortedEntry,
    BufferEntry,
    BufferKind,
    OpenEntry,
    VoidEntry,
    buffer_records,
    encode_low_water,
    kind_of,
)
from pulsar_on_kafka_mapping.state.transactions.transaction_log import TopicPartition, TopicSubscription


@dataclass(frozen=True, slots=True)
class OpenedTransaction:
    """An OPEN in a partition's buffer: the topic's life then, and below which offset none of its records lies."""

    incarnation: int
    lower_bound: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A transaction that is COMMITTING or ABORTING in the log, durable and valid, with the participants that still need
    effects.

    `deadline_ms` is the Unix time at which it would have timed out: no record of it carries a later time. `opened`: its
    OPENs, when the session that ends it wrote all of them; otherwise the buffers are read. `again`: another session or
    a failed attempt may have written some of the effects before.
    """

    txn: TxnId
    committed: bool
    partitions: tuple[TopicPartition, ...]
    subscriptions: tuple[TopicSubscription, ...]
    deadline_ms: int = 0
    opened: Mapping[TopicPartition, OpenedTransaction] = field(default_factory=dict)
    again: bool = False


Announcement: TypeAlias = tuple[TxnId, Sequence[TopicPartition]]
"""A transaction, and where it is about to write."""


class PartitionsFailed(StoreError):
    """A call failed in these data partitions, or its outcome is unknown. In `announce` nothing was done then; in
    `write_markers` and `settle_buffers` everything in the others."""

    def __init__(
        self, partitions: Iterable[TopicPartition], reason: str, unreached: Iterable[TopicPartition] = ()
    ) -> None:
        """`unreached`: further partitions that the call had no time for: the next call continues with these."""
        super().__init__(reason)
        self.unreached = frozenset(unreached)
        self.partitions = self.unreached.union(partitions)

    @property
    def troubled(self) -> frozenset[TopicPartition]:
        return self.partitions - self.unreached


class Outcomes(Protocol):
    """Each call returns when everything it was given is durable, and raises a LayerError otherwise; then the
    coordinator does it again, later. What cannot take part any more (its topic or subscription was deleted) is done.

    `session` is the coordinator's, for keys of its records.
    """

    def announce(
        self, participants: Sequence[Announcement], session: str, deadline: Deadline
    ) -> Mapping[tuple[TxnId, TopicPartition], OpenedTransaction]:
        """OPEN entries in the buffers: these transactions are about to write there. A transaction may be over by the
        time it is written, or announced a second time by another session with a later lower bound.

        Raises PartitionsFailed where it knows which ones."""

    def write_markers(self, ended: Sequence[Ended], deadline: Deadline) -> None:
        """Commit and abort markers into the data partitions. Raises PartitionsFailed where it knows which ones, also
        when it is longer under way than others should have to wait for."""

    def end_acks(self, ended: Sequence[Ended], deadline: Deadline) -> None:
        """ENDs to the pending acks of the subscriptions."""

    def settle_buffers(
        self, ended: Sequence[Ended], session: str, deadline: Deadline, along: Sequence[Announcement] = ()
    ) -> Mapping[tuple[TxnId, TopicPartition], OpenedTransaction]:
        """Buffer entries: OPEN goes, of an aborted one ABORTED stands before that. `along` is announced together with
        that, and with the errors, of `announce`; after NoSuchTopic and PartitionsFailed none of that was.

        Raises PartitionsFailed where it knows which ones."""

    def publish_low_water(self, coordinator: int, low_water: int, session: str, deadline: Deadline) -> None:
        """Publishes that every transaction of this coordinator at or below this id is finished for good. The highest
        mark ever published counts."""


Records: TypeAlias = dict[int, list[tuple[bytes, bytes | None]]]


def open_records(
    announced: Iterable[tuple[TxnId, DataPartition]], ends: Mapping[DataPartition, int], session: str
) -> Records:
    """OPEN entries. `ends`: the ends of the data partitions, taken after the transactions were registered."""
    found: Records = {}
    for txn, where in announced:
        _add(found, where, txn, OpenEntry(where.incarnation, ends[where]), session)
    return found


def aborted_records(
    txn: TxnId,
    where: DataPartition,
    offsets: BitMap64,
    bound: int,
    end: int,
    session: str,
    *,
    sealed: bool,
    late_until_ms: int = 0,
) -> Records:
    """The ABORTED entry, to be durable before the OPENs go.

    `offsets` are the transaction's records in [`bound`, `end`), found by reading from its OPEN's bound. `sealed`: no
    other one can come any more. `late_until_ms`: see `AbortedEntry`.
    """
    found: Records = {}
    _add(found, where, txn, AbortedEntry(where.incarnation, bound, end, sealed, offsets, 1, late_until_ms), session)
    return found


def opens_gone(over: Iterable[tuple[TxnId, DataPartition]], entries: BufferEntries) -> Records:
    """Tombstones of the existing OPENs of all sessions."""
    found: Records = {}
    for txn, where in over:
        keys = entries.keys_of(where, txn, BufferKind.OPEN)
        if keys:
            partition = TRANSACTION_BUFFER_SNAPSHOT.partition_for(where.topic)
            found.setdefault(partition, []).extend((encode_key(key), None) for key in keys)
    return found


def own_opens_gone(over: Iterable[tuple[TxnId, DataPartition]], session: str) -> Records:
    found: Records = {}
    for txn, where in over:
        key = TransactionBufferKey(where.topic, where.partition, *txn, BufferKind.OPEN.value, session, 0)
        partition = TRANSACTION_BUFFER_SNAPSHOT.partition_for(where.topic)
        found.setdefault(partition, []).append((encode_key(key), None))
    return found


def void_records(late: Mapping[TxnId, BitMap64], where: DataPartition, entries: BufferEntries, session: str) -> Records:
    """VOID entries for late records (`Judged.late`), including those that this session wrote before."""
    found: Records = {}
    for txn, offsets in late.items():
        together = offsets | entries.void_of_session(where, txn, session)
        _add(found, where, txn, VoidEntry(where.incarnation, together), session)
    return found


def end_records(ended: Iterable[Ended]) -> Records:
    found: Records = {}
    for one in ended:
        value = encode_end(TxnOutcome(one.committed))
        for topic, partition, subscription in one.subscriptions:
            key = PendingAckEndKey(topic, partition, subscription, *one.txn)
            found.setdefault(TRANSACTION_PENDING_ACK.partition_for(topic), []).append((encode_key(key), value))
    return found


def low_water_records(coordinator: int, low_water: int, session: str) -> Records:
    """A coordinator's mark, for every partition of the buffer topic: each is read by itself."""
    record = (encode_key(LowWaterKey(coordinator, session)), encode_low_water(low_water))
    return {partition: [record] for partition in range(TRANSACTION_BUFFER_SNAPSHOT.partitions)}


def _add(found: Records, where: DataPartition, txn: TxnId, entry: BufferEntry, session: str) -> None:
    key = TransactionBufferKey(where.topic, where.partition, *txn, kind_of(entry).value, session, 0)
    records = found.setdefault(TRANSACTION_BUFFER_SNAPSHOT.partition_for(where.topic), [])
    records += [(encode_key(part), value) for part, value in buffer_records(key, entry)]
