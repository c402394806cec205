"""Records on their way to a consumer or reader: those of open transactions wait here, with all that comes behind them,
and those of aborted ones are left out. One partition's; no I/O and no threads.

What waits is let go when the marker of the transaction that holds it up is read behind it. The caller must also read
the records of transactions (`learn`) from time to time, above all before and while nothing more is read
because too much waits here (`full`). Source: TopicTransactionBuffer's max read position.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import compress
from operator import attrgetter
from typing import Any, Final, NamedTuple

from pyroaring import BitMap64

from pulsar_on_kafka.broker.transactions.buffer.buffer_machine import TransactionBuffer
from pulsar_on_kafka.broker.transactions.buffer.entries import BufferEntries
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition, Looked, MetRecord, look_over
from pulsar_on_kafka_mapping.ids.txn_id import TxnId

MAX_BYTES: Final = 4 * 1024 * 1024
MAX_RECORDS: Final = 10_000

_UNCOUNTED: Final = -1
"""Most records pass at once, so the bytes that wait are counted afterwards."""

_OFFSET: Final = attrgetter("offset")


class Passed(NamedTuple):
    """Records that may go on, in offset order, and the offsets of those that want a further look (`Looked.odd`);
    without the offsets that are `excluded` for good, markers among them: they count as acknowledged. `upto`, exclusive:
    everything below was judged."""

    offsets: list[int]
    records: list[Any]
    odd: list[int]
    excluded: BitMap64
    upto: int


class ReadCommitted:
    """Memory: 4 MiB of payload or 10,000 records, and beyond it one run, besides what TransactionBuffer says."""

    def __init__(self, where: DataPartition, now_ms: Callable[[], int]) -> None:
        self.where = where
        self._buffer = TransactionBuffer(where)
        self._now_ms = now_ms
        self.in_use = False
        """Something of a transaction was met here."""
        self.end = 0
        """Behind the last record that was taken in, while some wait."""
        self._offsets: list[int] = []
        self._records: list[Any] = []
        self._odd: list[int] = []
        self._met: list[MetRecord] = []
        self._bytes = 0
        self.late: dict[TxnId, BitMap64] = {}
        """Records that came after the end of their transactions, and are to be put on record as void."""

    @property
    def waits_from(self) -> int | None:
        """The first offset that may not be read yet, of those that are here."""
        return self._offsets[0] if self._offsets else None

    @property
    def full(self) -> bool:
        """Too much waits: nothing more is to be read."""
        return self._bytes > MAX_BYTES or len(self._offsets) > MAX_RECORDS

    def waiting(self) -> int:
        return len(self._offsets)

    def take(self, offsets: list[int], records: list[Any], looked: Looked, end: int) -> Passed:
        """Takes the next records, which were looked over, all below `end`; returns those that may pass."""
        if not looked.met and not self._offsets:
            return Passed(offsets, records, looked.odd, BitMap64(), end)
        self.in_use = True
        self.end = end
        if self._offsets:
            self._offsets += offsets
            self._records += records
            self._odd += looked.odd
            self._met += looked.met
            self._bytes += sum(map(len, records))
            if self._is_held_up_still(looked.met):
                return Passed([], [], [], BitMap64(), self._offsets[0])
        else:
            self._offsets, self._records, self._odd, self._met = offsets, records, looked.odd, looked.met
            self._bytes = _UNCOUNTED
        passed = self.release()
        if self._bytes == _UNCOUNTED:
            self._bytes = sum(map(len, self._records))
        return passed

    def _is_held_up_still(self, come: Sequence[MetRecord]) -> bool:
        """Whether the new records have no marker of the transaction whose record is the first that waits."""
        if not self._met or self._met[0].offset != self._offsets[0]:
            return False
        blocker = self._met[0].txn
        return not any(one.ended is not None and one.txn == blocker for one in come)

    def release(self) -> Passed:
        """Returns the waiting records that may pass, by what is known now."""
        judged = self._buffer.judge(self._met, self._now_ms())
        for txn, late in judged.late.items():
            self.late[txn] = self.late.get(txn, BitMap64()) | late
        offsets, records, odd = self._offsets, self._records, self._odd
        upto = self.end if judged.upto is None else judged.upto
        judged.excluded.update([one.offset for one in self._met if one.ended is not None and one.offset < upto])
        if judged.upto is None:
            self._clear()
        else:
            offsets, records, odd = self._let_go_below(upto)
        if judged.excluded:
            left_out = frozenset(judged.excluded)
            stays = [offset not in left_out for offset in offsets]
            offsets, records = list(compress(offsets, stays)), list(compress(records, stays))
            odd = [offset for offset in odd if offset not in left_out]
        return Passed(offsets, records, odd, judged.excluded, upto)

    def _keep_met_from(self, start: int) -> None:
        at = bisect_left(self._met, start, key=_OFFSET)
        reach_over = [found for one in self._met[:at] if (found := one.from_offset(start)) is not None]
        self._met = sorted(reach_over + self._met[at:], key=_OFFSET)

    def _let_go_below(self, upto: int) -> tuple[list[int], list[Any], list[int]]:
        """Gives offsets, records and odd offsets."""
        at, odd_at = bisect_left(self._offsets, upto), bisect_left(self._odd, upto)
        offsets, records, odd = self._offsets[:at], self._records[:at], self._odd[:odd_at]
        if at:
            self._offsets, self._records, self._odd = self._offsets[at:], self._records[at:], self._odd[odd_at:]
            self._keep_met_from(upto)
            if self._bytes == _UNCOUNTED or len(self._records) < at:  # the shorter part is the cheaper one to count
                self._bytes = sum(map(len, self._records))
            else:
                self._bytes -= sum(map(len, records))
        return offsets, records, odd

    def unsettled(self) -> list[TxnId]:
        """Returns the transactions to read (`learn`), so that more records may pass."""
        return self._buffer.unsettled(self._met)

    def learn(self, txns: Sequence[TxnId], entries: BufferEntries) -> None:
        """Take in what is on record now of these transactions, in entries whose end was asked for after the run was
        fetched."""
        self._buffer.learn(txns, entries)

    def forget_below(self, start: int) -> None:
        if self._offsets and self._offsets[0] < start:
            if self._offsets[-1] < start:
                self._clear()
            else:
                self._let_go_below(start)

    def rewind(self) -> None:
        self._clear()
        self._buffer.rewind()

    def _clear(self) -> None:
        self._offsets, self._records, self._odd, self._met = [], [], [], []
        self._bytes = 0

    def unknown_in(self, looked: Looked) -> list[TxnId]:
        """Returns the transactions to `learn` before `sort_out`."""
        return self._buffer.unknown(looked.met)

    def sort_out(self, looked: Looked) -> tuple[BitMap64, BitMap64]:
        """Returns those of these records that may not be read yet, and those that are never delivered."""
        return self._buffer.fates(looked.met)


def look_over_any(records: dict[int, Any]) -> Looked:
    """`look_over` records that are no run."""
    offsets = sorted(records)
    return look_over(offsets, [records[offset] for offset in offsets])
