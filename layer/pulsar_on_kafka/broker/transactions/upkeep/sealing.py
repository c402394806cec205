"""Seals aborted transactions: once no record of a transaction can arrive, its entry names all of them.

Until then readers compare headers with the transaction, from its bound on. Only a topic whose brokers reject records
older than two minutes has sealed entries; the operator decides about that configuration. No producer stamps a record
after its transaction's time, by the brokers' clock; so an entry gives the time until which a late record may arrive.
After that the partition is read once more, from the bound to its end: in the present incarnation of the topic, from its
beginning where an entry is of an earlier one.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from pyroaring import BitMap64

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.broker.transactions.buffer.entries import BufferEntries
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition
from pulsar_on_kafka.broker.transactions.records.outcomes import aborted_records
from pulsar_on_kafka.broker.transactions.records.views import TransactionViews
from pulsar_on_kafka.statelog.api import StateLog
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.state_keys import TransactionBufferKey, encode_key
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_BUFFER_SNAPSHOT
from pulsar_on_kafka_mapping.state.transactions.transaction_buffer import AbortedEntry

_log: Final = logging.getLogger(__name__)
_READ_AT_ONCE: Final = 100_000
_PARTITION_S: Final = 20.0


class SealedPartitions(Protocol):
    """The calls of `KafkaDataPartitions` that sealing uses."""

    def incarnation(self, topic: str, deadline: Deadline) -> int | None: ...

    def bounds_lateness(self, topic: str, deadline: Deadline) -> bool:
        """Whether the brokers reject old records of this topic."""

    def end_offset(self, topic: str, partition: int, deadline: Deadline) -> int: ...

    def find(
        self, topic: str, partition: int, start: int, end: int, txns: Set[TxnId], deadline: Deadline
    ) -> Mapping[TxnId, BitMap64]: ...


@dataclass(frozen=True, slots=True)
class _Unsealed:
    """An aborted transaction that is not sealed, and the keys of its entry."""

    entry: AbortedEntry
    keys: tuple[TransactionBufferKey, ...]


@dataclass(slots=True)
class _Reading:
    """Progress of reading a partition for the transactions that are to be sealed there."""

    unsealed: dict[TxnId, _Unsealed]
    position: int
    end: int
    bounded: bool
    found: dict[TxnId, BitMap64] = field(default_factory=dict)


class Sealing:
    """Seals entries, in one thread. Memory: bitmaps of the records found so far in each partition that is being read.

    Two processes that seal the same entry do no harm: each tombstones only entries that it saw unsealed, after its own
    is durable.
    """

    def __init__(
        self, log: StateLog, views: TransactionViews, data: SealedPartitions, clock: Clock, session: str
    ) -> None:
        """`session` belongs to this object alone."""
        self._log = log
        self._views = views
        self._data = data
        self._clock = clock
        self._session = session
        self._readings: dict[DataPartition, _Reading] = {}

    def run(self, partitions: Collection[int], deadline: Deadline) -> int:
        """Seals the due entries of these partitions of the buffer topic; returns their number.

        Nothing begins after the deadline: the next call continues at the same place, also within a data partition. An
        unreadable topic is left for the next call.

        Raises:
            LayerError: the state topic cannot be read or written.
        """
        done = 0
        for partition in sorted(partitions):
            now_ms = self._clock.now_ms()
            due = self._views.buffers.query_partition(partition, partial(_due, now_ms=now_ms), deadline)
            of_partition = TRANSACTION_BUFFER_SNAPSHOT.partition_for
            for where in [each for each in self._readings if of_partition(each.topic) == partition]:
                if (where.topic, where.partition) not in due:
                    del self._readings[where]
            for topic, number in due:
                if deadline.passed():
                    return done
                try:
                    until = deadline.at_most(_PARTITION_S)
                    life = self._data.incarnation(topic, until)
                    if life is None:
                        continue
                    where = DataPartition(topic, number, life)
                    reading = self._read(partition, where, now_ms, until)
                except LayerError as failure:
                    _log.info("%s-%d is sealed later: %s", topic, number, failure)
                    continue
                if reading is not None:
                    done += self._seal(partition, where, reading, deadline)
        return done

    def _read(self, partition: int, where: DataPartition, now_ms: int, deadline: Deadline) -> _Reading | None:
        """All records there are of the transactions to be sealed; None while that takes longer, or there are none."""
        reading = self._readings.get(where)
        if reading is None:
            bounded = self._data.bounds_lateness(where.topic, deadline)
            question = partial(_unsealed, where=where, now_ms=now_ms, bounded=bounded)
            unsealed = self._views.buffers.query_partition(partition, question, deadline)
            if not unsealed:
                return None
            start = min(each.entry.lower_bound for each in unsealed.values())
            end = self._data.end_offset(where.topic, where.partition, deadline)
            reading = self._readings[where] = _Reading(unsealed, start, end, bounded)
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
                txn,
                where,
                offsets,
                entry.lower_bound,
                max(entry.end, reading.end),
                self._session,
                sealed=reading.bounded,
                late_until_ms=0 if reading.bounded else entry.late_until_ms,
            )
            for values in records.values():
                self._log.append_many(TRANSACTION_BUFFER_SNAPSHOT, partition, values, deadline)
            replaced = [(encode_key(key), None) for key in unsealed.keys if key.session != self._session]
            self._log.append_many(TRANSACTION_BUFFER_SNAPSHOT, partition, replaced, deadline)
        return len(reading.unsealed)


def _due(entries: BufferEntries, now_ms: int) -> list[tuple[str, int]]:
    """Topics and partitions with an entry that may be sealed."""
    return [
        (topic, partition)
        for topic, partition in entries.places()
        if any(
            isinstance(entry, AbortedEntry) and not entry.sealed and 0 < entry.late_until_ms < now_ms
            for txn in entries.transactions(DataPartition(topic, partition, 0))  # entries of every incarnation
            for _, entry in entries.entries(DataPartition(topic, partition, 0), txn)
        )
    ]


def _unsealed(entries: BufferEntries, where: DataPartition, now_ms: int, bounded: bool) -> dict[TxnId, _Unsealed]:
    """Entries to seal in the present incarnation. Where old records are not rejected, only those of other incarnations:
    they become an entry of this one."""
    found: dict[TxnId, _Unsealed] = {}
    for txn in entries.transactions(where):
        together = entries.aborted(where, txn)
        if together is None or together.sealed or not 0 < together.late_until_ms < now_ms:
            continue
        those = [(key, e) for key, e in entries.entries(where, txn) if isinstance(e, AbortedEntry) and not e.sealed]
        if bounded or any(entry.incarnation != where.incarnation for _, entry in those):
            found[txn] = _Unsealed(together, tuple(key for key, _ in those))
    return found
