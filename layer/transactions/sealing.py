"""Sealing what was aborted: once no record of a transaction can come any more, its entry names all there are.

Until then readers compare headers with the transaction, from its bound on. Brokers refuse records that are older than
two minutes (`KafkaDataPartitions.prepare`), and no producer stamps a record after its transaction's time; so an entry
says until when a late one may come, and after that the partition is read once more, from the bound to its end.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field
from typing import Final, Protocol

from pyroaring import BitMap64

from layer.clock import Clock
from layer.deadline import Deadline
from layer.errors import LayerError
from layer.statelog.api import StateLog
from layer.transactions.buffer.entries import BufferEntries
from layer.transactions.buffer.model import DataPartition
from layer.transactions.outcome_records import aborted_records
from layer.transactions.views import TransactionViews
from mapping.state_keys import TransactionBufferKey, encode_key
from mapping.state_records.transaction_buffer import AbortedEntry
from mapping.state_topics import TRANSACTION_BUFFER_SNAPSHOT
from mapping.txn_id import TxnId

_log: Final = logging.getLogger(__name__)
_READ_AT_ONCE: Final = 100_000
_PARTITION_S: Final = 20.0


class SealedPartitions(Protocol):
    """What is asked of `KafkaDataPartitions`."""

    def incarnation(self, topic: str, deadline: Deadline) -> int | None: ...

    def bounds_lateness(self, topic: str, deadline: Deadline) -> bool:
        """Whether the brokers refuse old records of this topic."""
        ...

    def end_offset(self, topic: str, partition: int, deadline: Deadline) -> int: ...

    def find(
        self, topic: str, partition: int, start: int, end: int, txns: Set[TxnId], deadline: Deadline
    ) -> Mapping[TxnId, BitMap64]: ...


@dataclass(frozen=True, slots=True)
class _Unsealed:
    """What is on record of an aborted transaction, and under which keys."""

    entry: AbortedEntry
    keys: tuple[TransactionBufferKey, ...]


@dataclass(slots=True)
class _Reading:
    """How far a partition was read for the transactions that are to be sealed there."""

    unsealed: dict[TxnId, _Unsealed]
    position: int
    end: int
    found: dict[TxnId, BitMap64] = field(default_factory=dict)


class Sealing:
    """For one thread. Memory: of each partition that is being read, bitmaps of the records found so far.

    Two that seal the same do no harm: each tombstones only entries that it saw unsealed, after its own is durable.
    """

    def __init__(
        self, log: StateLog, views: TransactionViews, data: SealedPartitions, clock: Clock, session: str
    ) -> None:
        """`session` is nobody else's."""
        self._log = log
        self._views = views
        self._data = data
        self._clock = clock
        self._session = session
        self._readings: dict[DataPartition, _Reading] = {}

    def run(self, partitions: Collection[int], deadline: Deadline) -> int:
        """Seal what these partitions of the buffer topic say is due; how many entries were.

        Nothing is begun after the deadline: the next call goes on where this one ended, also within a data partition. A
        topic that cannot be read is left for then.

        Raises:
            LayerError: the state topic cannot be read or written.
        """
        done = 0
        for partition in sorted(partitions):
            due = self._due(partition, deadline)
            of_partition = TRANSACTION_BUFFER_SNAPSHOT.partition_for
            for where in [each for each in self._readings if of_partition(each.topic) == partition]:
                if where not in due:
                    del self._readings[where]
            for where, unsealed in due.items():
                if deadline.passed():
                    return done
                try:
                    reading = self._read(where, unsealed, Deadline.after(min(_PARTITION_S, deadline.remaining_s())))
                except LayerError as failure:
                    _log.info("%s-%d is sealed later: %s", where.topic, where.partition, failure)
                    continue
                if reading is not None:
                    done += self._seal(partition, where, reading, deadline)
        return done

    def _due(self, partition: int, deadline: Deadline) -> dict[DataPartition, dict[TxnId, _Unsealed]]:
        now_ms = self._clock.now_ms()
        return self._views.ask_buffer_log(partition, lambda entries: _due(entries, now_ms), deadline)

    def _read(self, where: DataPartition, unsealed: dict[TxnId, _Unsealed], deadline: Deadline) -> _Reading | None:
        """All of these transactions' records there are; None while that takes longer, or cannot be said."""
        reading = self._readings.get(where)
        if reading is None:
            if self._data.incarnation(where.topic, deadline) != where.incarnation:
                return None
            if not self._data.bounds_lateness(where.topic, deadline):
                return None
            start = min(each.entry.lower_bound for each in unsealed.values())
            end = self._data.end_offset(where.topic, where.partition, deadline)
            reading = self._readings[where] = _Reading(unsealed, start, end)
        while reading.position < reading.end:
            if deadline.passed():
                return None
            upto = min(reading.position + _READ_AT_ONCE, reading.end)
            found = self._data.find(
                where.topic, where.partition, reading.position, upto, reading.unsealed.keys(), deadline
            )
            for txn, offsets in found.items():
                reading.found.setdefault(txn, BitMap64()).update(offsets)
            reading.position = upto
        del self._readings[where]
        return reading

    def _seal(self, partition: int, where: DataPartition, reading: _Reading, deadline: Deadline) -> int:
        for txn, unsealed in reading.unsealed.items():
            entry = unsealed.entry
            offsets = entry.offsets | reading.found.get(txn, BitMap64())
            records = aborted_records(
                txn, where, offsets, entry.lower_bound, max(entry.end, reading.end), self._session, sealed=True
            )
            for values in records.values():
                self._log.append_many(TRANSACTION_BUFFER_SNAPSHOT, partition, values, deadline)
            replaced = [(encode_key(key), None) for key in unsealed.keys if key.session != self._session]
            self._log.append_many(TRANSACTION_BUFFER_SNAPSHOT, partition, replaced, deadline)
        return len(reading.unsealed)


def _due(entries: BufferEntries, now_ms: int) -> dict[DataPartition, dict[TxnId, _Unsealed]]:
    found: dict[DataPartition, dict[TxnId, _Unsealed]] = {}
    for topic, partition in entries.places():
        anyone = DataPartition(topic, partition, 0)  # what is asked next tells of all lives
        for txn in entries.transactions(anyone):
            keys: dict[int, list[TransactionBufferKey]] = {}
            for key, entry in entries.entries(anyone, txn):
                if isinstance(entry, AbortedEntry) and not entry.sealed:
                    keys.setdefault(entry.incarnation, []).append(key)
            for incarnation, those in keys.items():
                where = DataPartition(topic, partition, incarnation)
                together = entries.aborted(where, txn)
                if together is not None and not together.sealed and 0 < together.late_until_ms < now_ms:
                    found.setdefault(where, {})[txn] = _Unsealed(together, tuple(those))
    return found
