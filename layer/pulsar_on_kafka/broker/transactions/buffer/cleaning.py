"""Cleaning finds the entries of a transaction buffer that are no longer needed. Pure.

* An OPEN that is void (see `entries`).
* Entries of an earlier incarnation of the topic: a VOID at once; an OPEN when it is void, since its transaction may
  still write to the present topic; an ABORTED when it is sealed. If the topic was deleted, an ABORTED is due once no
  record can be late; while the topic exists, `Sealing` scans it first.
* An ABORTED or VOID an hour after the log start passed the last record that it names: by then no reader holds such a
  record, and no record can be late. An unsealed entry stays for a day: a late record may wait in its producer for the
  end of an outage. The last record may lie behind the offsets that an unsealed entry names. So the log start must also
  pass the log end at the time when late records became impossible. An ABORTED is due only at or below its coordinator's
  low-water mark and after the OPENs beside it: an entry that makes an OPEN void is deleted after that OPEN.
"""

from __future__ import annotations

from typing import Final

from pulsar_on_kafka.broker.transactions.buffer.entries import BufferEntries
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.state_keys import TransactionBufferKey
from pulsar_on_kafka_mapping.state.transactions.transaction_buffer import (
    AbortedEntry,
    BufferEntry,
    OpenEntry,
    VoidEntry,
)

KEPT_FOR_MS: Final = 3_600_000
UNSEALED_KEPT_FOR_MS: Final = 24 * 3_600_000
"""A record of an aborted transaction may wait in its producer for the end of an outage: so long its ABORTED stays."""


class BufferCleaning:
    """Finds the due entries of one data partition, for the process that cleans it. Memory: a number for each entry that
    the log start passed."""

    def __init__(self, where: DataPartition) -> None:
        """`where` has the present life, or of a topic that is gone the last one."""
        self._where = where
        self._passed_ms: dict[TransactionBufferKey, int] = {}
        self._last_ends: dict[TransactionBufferKey, int] = {}
        """Unsealed entries: the log end at the time when late records became impossible."""

    def due(
        self, entries: BufferEntries, log_start: int | None, now_ms: int, log_end: int = 0
    ) -> list[TransactionBufferKey]:
        """The entries to tombstone now. `entries` is read to the end; `log_start` is the data partition's first offset,
        None when the partition was deleted; `log_end` is its end, taken after `now_ms`."""
        found: list[TransactionBufferKey] = []
        last_ends: dict[TransactionBufferKey, int] = {}
        passed: dict[TransactionBufferKey, int] = {}
        open_ones = entries.open_bounds(self._where)
        for txn in entries.transactions(self._where):
            has_open = False
            for key, entry in entries.entries(self._where, txn):
                if isinstance(entry, OpenEntry):
                    has_open = True
                    if txn not in open_ones:
                        found.append(key)
                elif entry.incarnation > self._where.incarnation:
                    continue  # of a life that began after ours was looked up
                elif log_start is None or entry.incarnation < self._where.incarnation:
                    over = isinstance(entry, VoidEntry) or self._is_over(entry, txn, entries, log_start, now_ms)
                    if over and _may_go(entry, txn, entries, has_open=has_open):
                        found.append(key)
                elif isinstance(entry, AbortedEntry) and not entry.sealed and now_ms <= entry.late_until_ms:
                    continue
                elif self._last_record(key, entry, last_ends, log_end) <= log_start:
                    passed[key] = self._passed_ms.get(key, now_ms)
                    if now_ms - passed[key] >= _kept_for_ms(entry) and _may_go(entry, txn, entries, has_open=has_open):
                        found.append(key)
        self._passed_ms, self._last_ends = passed, last_ends
        return found

    def _last_record(
        self, key: TransactionBufferKey, entry: BufferEntry, last_ends: dict[TransactionBufferKey, int], log_end: int
    ) -> int:
        if not isinstance(entry, AbortedEntry) or entry.sealed:
            return _end(entry)
        last_ends[key] = self._last_ends.get(key, log_end)
        return max(_end(entry), last_ends[key])

    def _is_over(
        self, entry: AbortedEntry, txn: TxnId, entries: BufferEntries, log_start: int | None, now_ms: int
    ) -> bool:
        """Whether an entry of an earlier incarnation is due: the partition contains no record that the entry must
        exclude, and none can arrive."""
        here = entries.aborted(self._where, txn)
        sealed = entry.sealed or (here is not None and here.sealed)
        return sealed or (log_start is None and entry.late_until_ms < now_ms)


def _kept_for_ms(entry: AbortedEntry | VoidEntry) -> int:
    return UNSEALED_KEPT_FOR_MS if isinstance(entry, AbortedEntry) and not entry.sealed else KEPT_FOR_MS


def _end(entry: BufferEntry) -> int:
    """The offset behind the last record that an entry names."""
    match entry:
        case OpenEntry(_, lower_bound):
            return lower_bound
        case AbortedEntry(offsets=offsets, end=end):
            return max(end, int(offsets.max()) + 1 if offsets else 0)
        case VoidEntry(offsets=offsets):
            return int(offsets.max()) + 1 if offsets else 0


def _may_go(entry: BufferEntry, txn: TxnId, entries: BufferEntries, *, has_open: bool) -> bool:
    return isinstance(entry, VoidEntry) or (not has_open and entries.is_over(txn))
