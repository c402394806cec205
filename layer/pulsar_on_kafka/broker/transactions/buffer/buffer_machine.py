"""The buffer machine judges which records of one data partition may be delivered by a reader that sees headers. No I/O,
no clock.

A reader requests the buffer entries of a transaction only when it meets a record whose outcome it does not know.
Everything before the first such record is readable. So topics without transactions cost nothing. In other topics a
reader examines one entry for each transactional record, not one for each record.

The order that counts is that of records in the partition, not that of transaction ids: a transaction with a smaller id
may write later than one with a larger id, and reading stops at the first record of either that is open.

A marker gives the outcome of the records before it, so a reader that fetched both requests nothing. A second marker
appears in two cases: a coordinator's append was under way while its successor looked for it, or the log between was too
long to be read (see `logged_outcomes`). A late record between the two markers is delivered to readers that begin
between them.

A record behind its transaction's marker is late and never readable, whatever the outcome. A reader that passed the
marker detects late records (`Judged.late`) and writes them as VOID, for readers that begin behind the marker. The first
void record shows those readers that all later records of the transaction are late as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pyroaring import BitMap64

from pulsar_on_kafka.broker.transactions.buffer.entries import BufferEntries, TxnEntryStatus
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition, MetRecord
from pulsar_on_kafka_mapping.ids.txn_id import TxnId

MAX_KNOWN: Final = 10_000
LATE_FOR_MS: Final = 3_600_000
"""A record cannot come later than this after the end of its transaction (Kafka refuses it after 2 minutes)."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The judgement of a run of records.

    Attributes:
        upto: exclusive: nothing at or beyond it may be delivered yet; None when all of the run may.
        excluded: offsets below it that are never delivered: they count as acknowledged.
        late: some of these, by transaction, which no VOID entry names yet.
    """

    upto: int | None
    excluded: BitMap64
    late: dict[TxnId, BitMap64]


@dataclass(frozen=True, slots=True)
class _Outcome:
    aborted: bool
    void: BitMap64
    """Void records, as far as the buffer named them at the last reading."""

    def void_of(self, one: MetRecord) -> BitMap64:
        """The marker stands before the first record that is void, so all that come behind that one are, also those that
        came since."""
        first = self.void.min()
        return BitMap64(offset for offset in one.offsets() if offset >= first)


def _below(upto: int, excluded: BitMap64, late: dict[TxnId, BitMap64]) -> Judged:
    for offsets in (excluded, *late.values()):
        offsets.remove_range(upto, 2**64 - 1)
    return Judged(upto, excluded, {txn: offsets for txn, offsets in late.items() if offsets})


_COMMITTED: Final = _Outcome(aborted=False, void=BitMap64())
_ABORTED: Final = _Outcome(aborted=True, void=BitMap64())


class TransactionBuffer:
    """The transaction state of one reader. The reader reads in order, except after `rewind`.

    Memory: the outcomes of the 10,000 transactions that were looked up last (evicted ones are looked up again), and for
    each coordinator a compressed bitmap of the transactions whose markers were passed in the last hour or two.
    """

    def __init__(self, where: DataPartition) -> None:
        self.where = where
        self._known: dict[TxnId, _Outcome] = {}
        self._ended: dict[int, BitMap64] = {}
        """Markers that were passed, by most significant bits; `_ended_before` those of the hour before."""
        self._ended_before: dict[int, BitMap64] = {}
        self._hour_since_ms: int | None = None

    def unsettled(self, met: Sequence[MetRecord]) -> list[TxnId]:
        """The transactions of a run whose outcome has to be looked up (`learn`) before it can be judged."""
        ended = {one.txn for one in met if one.ended is not None}
        return list(
            dict.fromkeys(
                txn
                for txn in (one.txn for one in met if one.ended is None)
                if txn not in ended and txn not in self._known and not self._has_ended(txn)
            )
        )

    def learn(self, txns: Iterable[TxnId], entries: BufferEntries) -> None:
        """Adds the buffer entries of these transactions. The entries' end must have been taken after the run was
        fetched."""
        for txn in txns:
            status = entries.status(self.where, txn)
            if status is not TxnEntryStatus.OPEN:
                self._known[txn] = _Outcome(status is TxnEntryStatus.ABORTED, entries.void(self.where, txn))

    def judge(self, met: Sequence[MetRecord], now_ms: int) -> Judged:
        """Judge a run: `met` are its transactional records and markers by (first) offset, and no offset of it is below
        what was judged before (or `rewind` comes first). What it holds back (`upto`) is judged again later.
        """
        if not met:
            return Judged(None, BitMap64(), {})
        self._turn_the_hour(now_ms)
        judged = self._judge(met)
        while len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]
        return judged

    def _judge(self, met: Sequence[MetRecord]) -> Judged:
        excluded = BitMap64()
        late: dict[TxnId, BitMap64] = {}
        ahead: dict[TxnId, bool] = {}
        for one in met:
            if one.ended is not None:
                ahead.setdefault(one.txn, one.ended)
        for one in met:
            txn = one.txn
            if one.ended is not None:
                self._ended.setdefault(txn.most_bits, BitMap64()).add(txn.least_bits)
                self._known.pop(txn, None)
            elif self._has_ended(txn):
                excluded.update(one.offsets())
                late.setdefault(txn, BitMap64()).update(one.offsets())
            else:
                outcome = self._known.get(txn)
                if outcome is None:
                    committed = ahead.get(txn)
                    if committed is None:
                        return _below(one.offset, excluded, late)
                    outcome = _COMMITTED if committed else _ABORTED
                if outcome.aborted:
                    excluded.update(one.offsets())
                elif outcome.void:
                    void = outcome.void_of(one)
                    excluded |= void
                    if new := void - outcome.void:
                        late[txn] = late.get(txn, BitMap64()) | new
        return Judged(None, excluded, late)

    def fates(self, met: Sequence[MetRecord]) -> tuple[BitMap64, BitMap64]:
        """Judge records that are read again one by one, in any order, after `learn`: those that are not readable yet,
        and those that never are, markers among them."""
        waiting, excluded = BitMap64(), BitMap64()
        for one in met:
            outcome = self._known.get(one.txn)
            if one.ended is not None or (outcome is not None and outcome.aborted):
                excluded.update(one.offsets())
            elif outcome is None:
                waiting.update(one.offsets())
            elif outcome.void:
                excluded |= outcome.void_of(one)
        return waiting, excluded

    def unknown(self, met: Sequence[MetRecord]) -> list[TxnId]:
        """Transactions to `learn` before `fates` is called."""
        return list(dict.fromkeys(one.txn for one in met if one.ended is None and one.txn not in self._known))

    def rewind(self) -> None:
        """Continues reading elsewhere: markers passed so far do not count."""
        self._ended.clear()
        self._ended_before.clear()
        self._known.clear()

    def _has_ended(self, txn: TxnId) -> bool:
        most, least = txn
        return any(most in ended and least in ended[most] for ended in (self._ended, self._ended_before))

    def _turn_the_hour(self, now_ms: int) -> None:
        if self._hour_since_ms is None:
            self._hour_since_ms = now_ms
        elif now_ms - self._hour_since_ms >= LATE_FOR_MS:
            self._hour_since_ms = now_ms
            self._ended_before, self._ended = self._ended, {}
