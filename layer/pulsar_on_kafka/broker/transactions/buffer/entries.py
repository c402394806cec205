"""Buffer entries are the state of transactions in data partitions: one partition of `__transaction_buffer_snapshot`,
folded. Pure.

The rule: a partition's OPEN entry is durable before the first record of a transaction is appended there. A reader takes
the data's end first, then the high watermark of this topic, and reads this topic to there. It then knows the state of
every record below that end: its transaction is OPEN (not readable, nor is anything at or beyond it), ABORTED
(excluded), or has no entry (committed). An OPEN at or below its coordinator's low-water mark is void, and so is one
with an ABORTED beside it: a coordinator that was paused may have written it after the transaction was over.

Several sessions may write entries of one transaction, because keys contain the session. The union of the entries
counts.

An outcome belongs to the transaction, in whichever incarnation of the topic it was written. A producer that registered
before a topic was deleted writes to the topic recreated under that name, and its records under way may be appended long
after. So an OPEN of another incarnation holds all of this one, from its first offset on, and an unsealed ABORTED
excludes the transaction's records. Bounds and offsets count in their own incarnation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import NamedTuple, TypeVar

from pyroaring import BitMap64

from pulsar_on_kafka.broker.transactions.buffer.model import BufferSnapshot, DataPartition
from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.state_keys import LowWaterKey, TransactionBufferKey, decode_key
from pulsar_on_kafka_mapping.state.transactions.transaction_buffer import (
    AbortedEntry,
    BufferEntry,
    BufferKind,
    OpenEntry,
    VoidEntry,
    decode_buffer_entry,
    decode_low_water,
)

_E = TypeVar("_E", OpenEntry, AbortedEntry, VoidEntry)


class _Mark(NamedTuple):
    """A coordinator's low-water mark as one session published it last."""

    least_bits: int
    timestamp_ms: int


class TxnEntryStatus(Enum):
    """State of a transaction that has records in a partition, by the entries."""

    OPEN = "open"
    ABORTED = "aborted"
    COMMITTED = "committed"


_Known = dict[TransactionBufferKey, BufferEntry]  # All entries of one transaction in one partition.
_Transactions = list[tuple[TxnId, _Known]]


class BufferEntries:
    """A fold for `LogView`. Its methods hold only at the end of the log.

    Memory: what is not tombstoned: an entry of some 500 bytes for each open transaction and partition, as much and a
    compressed bitmap for each aborted one until `BufferCleaning` lets it go, an hour after the last of its records left
    the log; some numbers for each coordinator; the result of `snapshot` for each partition with any of these since the
    last record.
    """

    def __init__(self) -> None:
        self._partitions: dict[tuple[str, int], dict[TxnId, _Known]] = {}
        self._low_water: dict[int, dict[str, _Mark]] = {}
        self._snapshots: dict[DataPartition, BufferSnapshot] = {}

    def apply(self, record: LogRecord) -> None:
        """Raises CorruptRecord; then nothing has changed. Keys of other kinds are passed over."""
        self._snapshots.clear()
        match decode_key(record.key):
            case TransactionBufferKey() as key:
                if record.value is None:
                    self._forget(key)
                else:
                    entry = decode_buffer_entry(key.kind, record.value)
                    transactions = self._partitions.setdefault((key.topic, key.partition), {})
                    transactions.setdefault(TxnId(key.txn_most, key.txn_least), {})[key] = entry
            case LowWaterKey(coordinator, session):
                if record.value is None:
                    self._low_water.get(coordinator, {}).pop(session, None)
                else:
                    mark = _Mark(decode_low_water(record.value), record.timestamp_ms)
                    self._low_water.setdefault(coordinator, {})[session] = mark
            case _:
                pass

    def _forget(self, key: TransactionBufferKey) -> None:
        txn = TxnId(key.txn_most, key.txn_least)
        transactions = self._partitions.get((key.topic, key.partition), {})
        known = transactions.get(txn)
        if known is not None:
            known.pop(key, None)
            if not known:
                del transactions[txn]
        if not transactions:
            self._partitions.pop((key.topic, key.partition), None)

    def low_water(self, coordinator: int) -> int:
        """Every transaction of this coordinator up to this one (least significant bits) is over; -1 for none known."""
        return max((mark.least_bits for mark in self._low_water.get(coordinator, {}).values()), default=-1)

    def low_waters(self) -> dict[int, int]:
        return {coordinator: self.low_water(coordinator) for coordinator in self._low_water}

    def is_over(self, txn: TxnId) -> bool:
        """Whether the transaction is at or below its coordinator's mark: no record of it may be written any more."""
        return txn.least_bits <= self.low_water(txn.coordinator)

    def superseded_low_waters(self, before_ms: int) -> list[LowWaterKey]:
        """Marks of ended sessions: last published before this Unix time, while another session's mark is as high. If
        such a session raises its mark while it is deleted, the other mark counts until the coordinator raises it
        again."""
        found = []
        for coordinator, marks in self._low_water.items():
            highest = max(marks, key=lambda session: marks[session], default="")
            found += [
                LowWaterKey(coordinator, session)
                for session, mark in marks.items()
                if session != highest and mark.timestamp_ms < before_ms
            ]
        return found

    def status(self, where: DataPartition, txn: TxnId) -> TxnEntryStatus:
        """The status of a transaction that a record below the data's end names, when that end was taken before this
        log's."""
        known = self._known(where, txn)
        if any(_concerns(entry, where) for entry in _of_kind(known, AbortedEntry).values()):
            return TxnEntryStatus.ABORTED
        if _of_kind(known, OpenEntry) and not self.is_over(txn):
            return TxnEntryStatus.OPEN
        return TxnEntryStatus.COMMITTED

    def outcomes(self, where: DataPartition, txns: Iterable[TxnId]) -> dict[TxnId, bool | None]:
        """Outcomes of these transactions, which have records there: True for committed, None for open."""
        found = {txn: self.status(where, txn) for txn in txns}
        return {
            txn: None if status is TxnEntryStatus.OPEN else status is TxnEntryStatus.COMMITTED
            for txn, status in found.items()
        }

    def void(self, where: DataPartition, txn: TxnId) -> BitMap64:
        """Late records of this transaction that some reader recorded as VOID."""
        return _union([entry.offsets for entry in _void(self._known(where, txn), where).values()])

    def aborted(self, where: DataPartition, txn: TxnId) -> AbortedEntry | None:
        """The entries of all sessions on an aborted transaction, together."""
        return _together(self._known(where, txn), where)

    def open_bounds(self, where: DataPartition) -> dict[TxnId, int]:
        """The open transactions, and below which offset none of their records lies."""
        return self._open(where, self._in(where))

    def _open(self, where: DataPartition, transactions: _Transactions) -> dict[TxnId, int]:
        announced = _announced(where, transactions)
        return {txn: bound for txn, bound in announced.items() if self.status(where, txn) is TxnEntryStatus.OPEN}

    def announced_bounds(self, where: DataPartition) -> dict[TxnId, int]:
        """`open_bounds` of all transactions with an OPEN, void ones too."""
        return _announced(where, self._in(where))

    def snapshot(self, where: DataPartition) -> BufferSnapshot:
        """All of it at once, for readers without headers. The same until the next record: it is not to be changed."""
        found = self._snapshots.get(where)
        if found is None:
            found = self._snapshot(where)
            if (where.topic, where.partition) in self._partitions:
                self._snapshots[where] = found
        return found

    def _snapshot(self, where: DataPartition) -> BufferSnapshot:
        excluded: list[BitMap64] = []
        unsealed: dict[TxnId, int] = {}
        others: _Transactions = []
        for txn, known in self._in(where):
            entry = _together(known, where)
            if entry is not None:
                excluded.append(entry.offsets)
                if not entry.sealed:
                    unsealed[txn] = entry.lower_bound
            if entry is None or len(known) > 1:
                others.append((txn, known))
        excluded += [void.offsets for _, known in others for void in _void(known, where).values()]
        return BufferSnapshot(where, self._open(where, others), _union(excluded), unsealed)

    def keys_of(self, where: DataPartition, txn: TxnId, kind: BufferKind) -> list[TransactionBufferKey]:
        """All keys of one kind, from every session and incarnation."""
        return [key for key in self._known(where, txn) if key.kind == kind]

    def void_of_session(self, where: DataPartition, txn: TxnId, session: str) -> BitMap64:
        """The offsets that this session has on record as void; its next VOID entry must hold them, too."""
        void = _void(self._known(where, txn), where)
        return _union([entry.offsets for key, entry in void.items() if key.session == session])

    def transactions(self, where: DataPartition) -> list[TxnId]:
        """Transactions with any entry, of every incarnation."""
        return list(self._partitions.get((where.topic, where.partition), {}))

    def places(self) -> list[tuple[str, int]]:
        """Topics and partitions that anything is on record of, in order."""
        return sorted(self._partitions)

    def count(self) -> int:
        return sum(len(known) for transactions in self._partitions.values() for known in transactions.values())

    def entries(self, where: DataPartition, txn: TxnId) -> Iterator[tuple[TransactionBufferKey, BufferEntry]]:
        """Entries in every session and incarnation; those that report the transaction as open come first."""
        known = self._known(where, txn)
        yield from _of_kind(known, OpenEntry).items()
        yield from _of_kind(known, AbortedEntry).items()
        yield from _of_kind(known, VoidEntry).items()

    def _in(self, where: DataPartition) -> _Transactions:
        return list(self._partitions.get((where.topic, where.partition), {}).items())

    def _known(self, where: DataPartition, txn: TxnId) -> _Known:
        return self._partitions.get((where.topic, where.partition), {}).get(txn, {})


def _of_kind(known: _Known, kind: type[_E]) -> dict[TransactionBufferKey, _E]:
    return {key: entry for key, entry in known.items() if isinstance(entry, kind)}


def _announced(where: DataPartition, transactions: _Transactions) -> dict[TxnId, int]:
    return {
        txn: min(_bound(entry, where) for entry in opened.values())
        for txn, known in transactions
        if (opened := _of_kind(known, OpenEntry))
    }


def _void(known: _Known, where: DataPartition) -> dict[TransactionBufferKey, VoidEntry]:
    return {key: e for key, e in _of_kind(known, VoidEntry).items() if e.incarnation == where.incarnation}


def _concerns(entry: AbortedEntry, where: DataPartition) -> bool:
    """Whether the partition may contain records of the transaction. A sealed entry of another incarnation names all
    that ever arrive."""
    return entry.incarnation == where.incarnation or not entry.sealed


def _bound(entry: OpenEntry | AbortedEntry, where: DataPartition) -> int:
    return entry.lower_bound if entry.incarnation == where.incarnation else 0


def _together(known: _Known, where: DataPartition) -> AbortedEntry | None:
    """Sealed when one session wrote all the parts of a sealed entry of this life."""
    if len(known) == 1:  # as nearly all are, of thousands
        (only,) = known.values()
        if isinstance(only, AbortedEntry) and only.incarnation == where.incarnation and only.parts == 1:
            return only
    found = {key: entry for key, entry in _of_kind(known, AbortedEntry).items() if _concerns(entry, where)}
    if not found:
        return None
    here = [entry for entry in found.values() if entry.incarnation == where.incarnation]
    sealed: dict[tuple[str, int], set[int]] = {}
    for key, entry in found.items():
        if entry.sealed:
            sealed.setdefault((key.session, entry.parts), set()).add(key.part)
    return AbortedEntry(
        where.incarnation,
        min(_bound(entry, where) for entry in found.values()),
        max((entry.end for entry in here), default=0),
        any(len(parts) == number for (_, number), parts in sealed.items()),
        _union([entry.offsets for entry in here]),
        len(found),
        max(entry.late_until_ms for entry in found.values()),
    )


def _union(bitmaps: list[BitMap64]) -> BitMap64:
    return BitMap64.union(*bitmaps) if bitmaps else BitMap64()
