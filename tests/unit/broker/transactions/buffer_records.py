"""Shorthand for records of the buffer topic."""

from __future__ import annotations

from pyroaring import BitMap64

from pulsar_on_kafka.broker.transactions.buffer.entries import BufferEntries
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition
from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.state_keys import LowWaterKey, TransactionBufferKey, encode_key
from pulsar_on_kafka_mapping.state.transactions.transaction_buffer import (
    AbortedEntry,
    BufferEntry,
    OpenEntry,
    VoidEntry,
    buffer_records,
    encode_low_water,
    kind_of,
)

HERE = DataPartition("persistent://public/default/orders", 0, 7)
COORDINATOR = 2


def txn(number: int) -> TxnId:
    return TxnId(COORDINATOR << 48, number)


def key_of(which: TxnId, entry: BufferEntry, session: str = "aa", where: DataPartition = HERE) -> TransactionBufferKey:
    return TransactionBufferKey(where.topic, where.partition, *which, kind_of(entry).value, session, 0)


def opened(bound: int, life: int = HERE.incarnation) -> OpenEntry:
    return OpenEntry(life, bound)


def aborted(
    offsets: list[int],
    *,
    sealed: bool = True,
    bound: int = 0,
    end: int | None = None,
    life: int = HERE.incarnation,
    late_until_ms: int = 0,
) -> AbortedEntry:
    last = max(offsets, default=0) + 1 if end is None else end
    return AbortedEntry(life, bound, last, sealed, BitMap64(offsets), 1, late_until_ms)


def void(offsets: list[int], life: int = HERE.incarnation) -> VoidEntry:
    return VoidEntry(life, BitMap64(offsets))


class Entries(BufferEntries):
    """Takes what a writer would append."""

    def __init__(self) -> None:
        super().__init__()
        self.end = 0
        self.now_ms = 0

    def put(self, which: TxnId, entry: BufferEntry, session: str = "aa", where: DataPartition = HERE) -> None:
        for key, value in buffer_records(key_of(which, entry, session, where), entry):
            self._append(encode_key(key), value)

    def drop(self, which: TxnId, entry: BufferEntry, session: str = "aa", where: DataPartition = HERE) -> None:
        self._append(encode_key(key_of(which, entry, session, where)), None)

    def low(self, mark: int, session: str = "aa") -> None:
        self._append(encode_key(LowWaterKey(COORDINATOR, session)), encode_low_water(mark))

    def _append(self, key: bytes, value: bytes | None) -> None:
        self.apply(LogRecord(self.end, key, value, self.now_ms))
        self.end += 1
