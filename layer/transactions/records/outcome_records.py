"""The records by which a coordinator tells partitions and subscriptions of a transaction, grouped for appending. Pure.

Whoever implements `Outcomes` appends them; each function gives, by partition of the state topic, what may go into one
append. What must be durable before something else comes from another function.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from pyroaring import BitMap64

from pulsar_on_kafka.mapping.ids.txn_id import TxnId
from pulsar_on_kafka.mapping.state.state_keys import LowWaterKey, PendingAckEndKey, TransactionBufferKey, encode_key
from pulsar_on_kafka.mapping.state.state_topics import TRANSACTION_BUFFER_SNAPSHOT, TRANSACTION_PENDING_ACK
from pulsar_on_kafka.mapping.state.transactions.pending_acks import TxnOutcome, encode_end
from pulsar_on_kafka.mapping.state.transactions.transaction_buffer import (
    AbortedEntry,
    BufferEntry,
    BufferKind,
    OpenEntry,
    VoidEntry,
    buffer_records,
    encode_low_water,
    kind_of,
)
from pulsar_on_kafka.transactions.buffer.entries import BufferEntries
from pulsar_on_kafka.transactions.buffer.model import DataPartition
from pulsar_on_kafka.transactions.records.outcomes import Ended

Records: TypeAlias = dict[int, list[tuple[bytes, bytes | None]]]


def open_records(
    announced: Iterable[tuple[TxnId, DataPartition]], ends: Mapping[DataPartition, int], session: str
) -> Records:
    """OPEN entries. `ends`: where the data partitions end, asked for after the transactions were registered."""
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
    """Tombstones of the OPENs that are there, whoever wrote them."""
    found: Records = {}
    for txn, where in over:
        keys = entries.keys_of(where, txn, BufferKind.OPEN)
        if keys:
            partition = TRANSACTION_BUFFER_SNAPSHOT.partition_for(where.topic)
            found.setdefault(partition, []).extend((encode_key(key), None) for key in keys)
    return found


def own_opens_gone(over: Iterable[tuple[TxnId, DataPartition]], session: str) -> Records:
    """Tombstones of the OPENs that this session wrote."""
    found: Records = {}
    for txn, where in over:
        key = TransactionBufferKey(where.topic, where.partition, *txn, BufferKind.OPEN.value, session, 0)
        partition = TRANSACTION_BUFFER_SNAPSHOT.partition_for(where.topic)
        found.setdefault(partition, []).append((encode_key(key), None))
    return found


def void_records(late: Mapping[TxnId, BitMap64], where: DataPartition, entries: BufferEntries, session: str) -> Records:
    """VOID entries for records that came late (`Judged.late`), with what this session said before."""
    found: Records = {}
    for txn, offsets in late.items():
        together = offsets | entries.void_of_session(where, txn, session)
        _add(found, where, txn, VoidEntry(where.incarnation, together), session)
    return found


def end_records(ended: Iterable[Ended]) -> Records:
    """ENDs for the subscriptions that take part."""
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
