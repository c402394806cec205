"""Chunked messages of a reader: put together from what it reads, without a cursor."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from pulsar_on_kafka.kafka.records import packed_headers_of
from pulsar_on_kafka.mapping.errors import CorruptRecord
from pulsar_on_kafka.mapping.records.message_record import is_plain
from pulsar_on_kafka.subscriptions.records.chunk_rules import ChunkRules
from pulsar_on_kafka.subscriptions.records.chunks import ChunkAssembly
from pulsar_on_kafka.subscriptions.records.whole_message import WholeMessage, chunk_info

_log = logging.getLogger(__name__)

ReadOnceMore = Callable[[int, Sequence[int]], dict[int, Any]]
"""(partition, offsets) -> records by offset, without those that are gone; raises StoreError."""


class ReaderChunks:
    """Memory: what ChunkAssembly says of incomplete messages, for each partition. `now_s` is the monotonic clock's."""

    def __init__(self, name: str, read_again: ReadOnceMore, now_s: Callable[[], float]) -> None:
        self._name = name
        self._read_again = read_again
        self._now_s = now_s
        self._partitions: dict[int, ChunkAssembly] = {}

    def together(self, partition: int, records: list[Any]) -> list[Any]:
        """A run of records in offset order, with whole messages in the places of their last chunks.

        Raises:
            StoreError: a message whose payload was given up could not be read again.
        """
        odd = [i for i, record in enumerate(records) if not is_plain(packed_headers_of(record))]
        assembly = self._partitions.get(partition)
        if not odd and assembly is None:
            return records
        found = list(records)
        for i in odd:
            try:
                info = chunk_info(records[i])
            except CorruptRecord as reason:
                where = f"{self._name}-{partition} offset={records[i].offset()}"
                _log.error("reader=%s is skipped, it cannot be read: %s", where, reason)
                found[i] = None
                continue
            if info is None:
                continue
            if assembly is None:
                assembly = self._partitions[partition] = ChunkAssembly(ChunkRules, self._now_s)
            found[i] = self._present(partition, assembly.add(records[i].offset(), info, records[i]))
        if assembly is not None:
            assembly.known.clear()
            assembly.expire()
            assembly.take_given_up(f"{self._name}-{partition}")
        return [record for record in found if record is not None]

    def _present(self, partition: int, whole: WholeMessage | None) -> WholeMessage | None:
        if whole is None or whole.present:
            return whole
        records = self._read_again(partition, sorted(whole.offsets))
        if not all(offset in records for offset in whole.offsets):
            _log.warning("reader=%s-%d offset=%d Kafka deleted chunks before they were read", self._name, partition,
                whole.offset())  # fmt: skip
            return None
        return whole.with_chunks([records[offset] for offset in whole.offsets])

    def forget(self, partition: int) -> None:
        """It is read from another place."""
        self._partitions.pop(partition, None)
