"""Redelivery reads fetch records from Kafka a second time: redeliveries, delayed messages, dropped look-ahead."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from pyroaring import BitMap64

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.incarnation_checks import IncarnationCheck
from pulsar_on_kafka.broker.subscriptions.partition.delayed import WINDOW_MS
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.records.chunks import MAX_REREAD_BYTES
from pulsar_on_kafka.broker.subscriptions.records.open_transactions import TransactionWaits
from pulsar_on_kafka.broker.subscriptions.records.read_committed import look_over_any
from pulsar_on_kafka.kafka.reading.fetcher import READ_THROUGH, Fetcher, near_ones

_log = logging.getLogger(__name__)

_TIMEOUT_S: Final = 2.0
_MAX_AHEAD: Final = 128
_MAX_AHEAD_BYTES: Final = 1024 * 1024
"""The limit for one partition; its last record may exceed the limit."""


class RecordsFound(NamedTuple):
    """`gone`: entries that Kafka deleted, or of aborted transactions, which count as acknowledged. Entries in neither
    cannot be read yet, or their transaction is open."""

    records: dict[int, Any]
    gone: list[int]


class RedeliveryReads:
    """Reads entries at given offsets. Memory: for each partition with suspects, 1 MiB of records that are needed
    soon; with ordered redelivery 1 MiB of refused records, which may be refused again."""

    def __init__(
        self, kafka_topic: str, fetcher: Fetcher, looking: TransactionWaits, incarnation: IncarnationCheck
    ) -> None:
        self._kafka_topic = kafka_topic
        self._incarnation = incarnation
        self._fetcher = fetcher
        self._looking = looking
        self._ahead: dict[int, dict[int, Any]] = {}
        """By partition and offset."""
        self._refused: dict[int, dict[int, Any]] = {}
        """The same for refused records, the newest last."""
        self._usual_bytes = _MAX_AHEAD_BYTES
        """The average record size in the last reading; a large one is assumed before the first."""
        self.failed = False
        """The last reading returned none of the requested records."""

    def forget(self, owned: OwnedPartition) -> None:
        """Drop the partition's prefetched records."""
        self._ahead.pop(owned.number, None)
        self._refused.pop(owned.number, None)

    def read(self, owned: OwnedPartition, offsets: Sequence[int], soon: Sequence[int] = ()) -> RecordsFound:
        """Read the records at these offsets, up to 32 MiB, with chunked messages whole; a later call reads the others.
        Takes 2 s at most; never raises StoreError. Raises NoSuchTopic: the topic was deleted and created again.

        `soon`: ascending offsets that are needed next. Near ones are read together with `offsets`, up to 1 MiB by the
        average record size, because each reading begins with a seek.
        """
        chunks = owned.chunks
        if chunks.known:
            offsets, soon = chunks.affordable(offsets), ()
        records = owned.intake.delayed_soon.take(offsets)
        ahead = self._ahead.get(owned.number, {})
        records.update((offset, ahead.pop(offset)) for offset in offsets if offset in ahead)
        refused = self._refused.get(owned.number, {})
        records.update((offset, refused[offset]) for offset in offsets if offset in refused)
        at_hand = len(records)
        requested = sorted(offset for offset in chunks.spread(offsets) if offset not in records)
        read_to = self._read(owned, requested, soon, records) if requested else -1
        self._incarnation.before_delivery()
        if owned.refused and not chunks.known:
            self._keep_refused(owned, records)
        gone = [offset for offset in requested if offset <= read_to and offset not in records]
        if chunks.known:
            records, gone = chunks.put_together(offsets, records, gone)
        gone += self._not_committed(owned, records)
        if gone:  # compacted or deleted by Kafka since, or never to be delivered
            everything = chunks.acknowledged(gone)
            owned.cursor.acknowledge(everything)
            owned.settle(everything)
            deleted = [offset for offset in records if owned.is_acknowledged(offset)]  # of those at hand
            for offset in deleted:
                del records[offset]
            gone += deleted
        self.failed = bool(requested) and len(records) <= at_hand and not gone
        return RecordsFound(records, gone)

    def _keep_refused(self, owned: OwnedPartition, records: Mapping[int, Any]) -> None:
        kept = self._refused.setdefault(owned.number, {})
        for offset in [offset for offset in kept if offset not in owned.refused or offset in records]:
            del kept[offset]
        kept.update((offset, record) for offset, record in records.items() if offset in owned.refused)
        size = sum(len(record.value() or b"") for record in kept.values())
        while size > _MAX_AHEAD_BYTES:
            size -= len(kept.pop(next(iter(kept))).value() or b"")

    def _read(
        self, owned: OwnedPartition, requested: Sequence[int], soon: Sequence[int], records: dict[int, Any]
    ) -> int:
        """Add the `requested` records to `records`; returns the offset up to which missing ones are gone."""
        at_hand, later = self._ahead.get(owned.number, {}), BitMap64(soon) - BitMap64(requested) - BitMap64(records)
        ahead = {offset: at_hand[offset] for offset in later & BitMap64(at_hand)}
        kept_bytes = sum(len(record.value() or b"") for record in ahead.values())
        apart = BitMap64() if kept_bytes >= _MAX_AHEAD_BYTES else self._near(requested, later - BitMap64(ahead))
        self._ahead[owned.number] = ahead
        size = size_ahead = count = 0
        try:
            offsets = sorted(apart.union(BitMap64(requested)))
            for batch in self._fetcher.read_at(self._kafka_topic, owned.number, offsets, Deadline.after(_TIMEOUT_S)):
                for record in batch:
                    offset, size_bytes = record.offset(), len(record.value() or b"")
                    if offset not in apart:
                        records[offset] = record
                        size += size_bytes
                    else:
                        if kept_bytes + size_ahead < _MAX_AHEAD_BYTES:
                            ahead[offset] = record
                        size_ahead += size_bytes
                count += len(batch)
                self._usual_bytes = (size + size_ahead) // count
                if size >= MAX_REREAD_BYTES and not owned.chunks.known:
                    return int(batch[-1].offset())
                if kept_bytes + size_ahead >= _MAX_AHEAD_BYTES and batch[-1].offset() >= requested[-1]:
                    break
        except errors.OffsetOutOfRange:
            return self._below_log_start(owned, requested)
        except errors.StoreError as failure:
            _log.warning("cursor=%s cannot read messages again yet: %s", owned.identity, failure)
            return max((offset for offset in requested if offset in records), default=-1)
        return requested[-1]

    def _near(self, requested: Sequence[int], later: BitMap64) -> BitMap64:
        """The later offsets between the wanted ones, and those after them within 1 MiB."""
        near = BitMap64()
        for run in near_ones(requested):
            near.add_range(run[0], run[-1] + 1)
        reach = min(READ_THROUGH - 1, _MAX_AHEAD_BYTES // max(1, self._usual_bytes))
        near.add_range(requested[-1], requested[-1] + reach + 1)
        return BitMap64(islice(later & near, _MAX_AHEAD))

    def _not_committed(self, owned: OwnedPartition, records: dict[int, Any]) -> list[int]:
        """Remove records that may not be delivered from `records`; returns those that never will be.

        After a crash, entries to redeliver may be unchecked: the former owner's deliveries are unknown.
        """
        looked = look_over_any(records)
        if not looked.met:
            return []
        committed = owned.intake.committed
        unknown = committed.unknown_in(looked)
        if unknown:
            self._looking.learn_of(committed, unknown)
        waiting, excluded = committed.sort_out(looked)
        for offset in waiting | excluded:
            del records[offset]
        return list(excluded)

    def _below_log_start(self, owned: OwnedPartition, requested: Sequence[int]) -> int:
        """The highest wanted offset that Kafka deleted."""
        try:
            low = self._fetcher.log_start(self._kafka_topic, owned.number, Deadline.after(_TIMEOUT_S))
        except errors.StoreError as failure:
            _log.warning("cursor=%s cannot find out where its log begins: %s", owned.identity, failure)
            return -1
        owned.deleted_below(low)
        return max((offset for offset in requested if offset < low), default=-1)


_STEP_S: Final = 0.02
_PATIENCE_S: Final = 20.0
_DELAYED_READ_INTERVAL_S: Final = 1.0


class DelayedPrefetch:
    """Reads delayed messages before they are due, a few milliseconds in each turn. One partition is read at a time.
    Messages that could not be read ahead are read when they are due."""

    def __init__(self, kafka_topic: str, fetcher: Fetcher, clock: Clock) -> None:
        self._kafka_topic = kafka_topic
        self._fetcher = fetcher
        self._clock = clock
        self._owned: OwnedPartition | None = None
        self._batches: Iterator[list[Any]] = iter(())
        self._not_before_s: dict[int, float] = {}

    @property
    def under_way(self) -> bool:
        return self._owned is not None

    def next_due(self, owned: OwnedPartition) -> float:
        """The latest time, on the monotonic clock, for the next choice of messages to read ahead."""
        return self._not_before_s.get(owned.number, 0.0) + WINDOW_MS / 2000

    def step(self, owned: OwnedPartition) -> None:
        """Read for about 20 ms, if any message is to be read ahead."""
        if self._owned is None:
            self._begin(owned)
        if self._owned is owned:
            self._read(owned)

    def forget(self, owned: OwnedPartition) -> None:
        if self._owned is owned:
            self._end(owned)
        owned.intake.delayed_soon.clear()

    def _begin(self, owned: OwnedPartition) -> None:
        number = owned.number
        now_s = self._clock.monotonic()
        delayed = owned.intake.delayed
        if delayed is None or now_s < self._not_before_s.get(number, 0.0):
            return
        self._not_before_s[number] = now_s + _DELAYED_READ_INTERVAL_S
        offsets = owned.intake.delayed_soon.choose(delayed, self._clock.now_ms(), owned.chunks.known)
        if offsets:
            self._owned = owned
            self._batches = self._fetcher.read_at(self._kafka_topic, number, offsets, Deadline.after(_PATIENCE_S))

    def _read(self, owned: OwnedPartition) -> None:
        enough_s, soon = self._clock.monotonic() + _STEP_S, owned.intake.delayed_soon
        try:
            while self._clock.monotonic() < enough_s:
                batch = next(self._batches, None)
                if batch is None or not soon.arrived(batch):
                    self._end(owned)
                    return
        except errors.StoreError as failure:  # also what Kafka deleted meanwhile
            _log.info("cursor=%s cannot read delayed messages ahead: %s", owned.identity, failure)
            self._end(owned)

    def _end(self, owned: OwnedPartition) -> None:
        owned.intake.delayed_soon.require_nothing()
        self._owned = None
        self._batches = iter(())
