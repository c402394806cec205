"""Redelivery reads fetch records from Kafka a second time: redeliveries, delayed messages, dropped look-ahead."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.kafka.reading.fetcher import Fetcher
from pulsar_on_kafka.subscriptions.partition.partition import OwnedPartition
from pulsar_on_kafka.subscriptions.records.open_transactions import OpenTransactions
from pulsar_on_kafka.subscriptions.records.read_committed import look_over_any

_TIMEOUT_S: Final = 2.0

_log = logging.getLogger(__name__)


class RecordsFound(NamedTuple):
    """`gone` is not in Kafka any more, or of an aborted transaction, and counts as acknowledged; what is in neither
    could not be read just now, or its transaction is open."""

    records: dict[int, Any]
    gone: list[int]


class RedeliveryReads:
    def __init__(self, kafka_topic: str, fetcher: Fetcher, looking: OpenTransactions) -> None:
        self._kafka_topic = kafka_topic
        self._fetcher = fetcher
        self._looking = looking
        self.failed = False
        """The last reading gave nothing of what was wanted."""

    def read(self, owned: OwnedPartition, offsets: Sequence[int]) -> RecordsFound:
        """The records at these offsets, in any order given; chunked messages whole, as many as 32 MiB hold. Takes 2 s
        at most; never raises StoreError."""
        chunks = owned.chunks
        if chunks.known:
            offsets = chunks.affordable(offsets)
        records = owned.delayed_soon.take(offsets)
        wanted = sorted(offset for offset in chunks.spread(offsets) if offset not in records)
        if not wanted:
            self.failed = False
            return RecordsFound(records, [])
        at_hand = len(records)
        read_to = wanted[-1]
        try:
            for batch in self._fetcher.read_at(self._kafka_topic, owned.number, wanted, Deadline.after(_TIMEOUT_S)):
                records.update((record.offset(), record) for record in batch)
        except errors.OffsetOutOfRange:
            read_to = self._below_log_start(owned, wanted)
        except errors.StoreError as failure:
            _log.warning("cursor=%s cannot read messages again yet: %s", owned.identity, failure)
            read_to = max((offset for offset in wanted if offset in records), default=-1)
        gone = [offset for offset in wanted if offset <= read_to and offset not in records]
        if chunks.known:
            records, gone = chunks.put_together(offsets, records, gone)
        gone += self._not_committed(owned, records)
        if gone:  # compacted or deleted by Kafka since, or never to be delivered
            everything = chunks.acknowledged(gone)
            owned.cursor.acknowledge(everything)
            owned.settle(everything)
        self.failed = len(records) <= at_hand and not gone
        return RecordsFound(records, gone)

    def _not_committed(self, owned: OwnedPartition, records: dict[int, Any]) -> list[int]:
        """Take out of `records` what may not be delivered; gives what of it never will be.

        What comes again after a crash was perhaps never looked at: nobody knows what the former owner handed out.
        """
        looked = look_over_any(records)
        if not looked.met:
            return []
        committed = owned.committed
        unknown = committed.unknown_in(looked)
        if unknown:
            self._looking.learn_of(committed, unknown)
        waiting, excluded = committed.sort_out(looked)
        for offset in waiting | excluded:
            del records[offset]
        return list(excluded)

    def _below_log_start(self, owned: OwnedPartition, wanted: list[int]) -> int:
        """The highest wanted offset that Kafka deleted."""
        try:
            low, _ = self._fetcher.watermarks(self._kafka_topic, owned.number, Deadline.after(_TIMEOUT_S))
        except errors.StoreError as failure:
            _log.warning("cursor=%s cannot find out where its log begins: %s", owned.identity, failure)
            return -1
        owned.deleted_below(low)
        return max((offset for offset in wanted if offset < low), default=-1)
