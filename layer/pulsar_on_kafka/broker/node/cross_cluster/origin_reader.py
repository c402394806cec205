"""Reads logs for the copies in them: keeps an `OriginIndex` for each partition in use."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import OffsetOutOfRange
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.replication_state.origin_index import CopiedOriginal, OriginIndex, copied, is_marker
from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka.kafka.reading.range_reader import OffsetRange, RangeReader
from pulsar_on_kafka.kafka.records import KafkaRecord, headers_of
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.records.epoch_fences import begun_by

_log: Final = logging.getLogger(__name__)

AT_ONCE: Final = 200_000
"""Records of one partition that are read in one go."""

Seen = Callable[[Topic, int, Any, list[tuple[str, bytes | None]], CopiedOriginal | None], None]
"""A function called with each message when it is first read: its topic and partition, the record, its headers, and the
original of the copy. It is not called with markers, nor with copies that do not count."""


class OriginReading:
    """The reader of origins, for one thread. It reads each record once; a new process reads each log from its start.

    Memory: an `OriginIndex` for each partition, until `forget`.
    """

    def __init__(self, admin: KafkaAdmin, reader: RangeReader, seen: Seen | None = None) -> None:
        self._admin = admin
        self._reader = reader
        self._seen = seen
        self._indexes: dict[tuple[str, int], OriginIndex] = {}
        """The indexes by Kafka's id of the topic, and partition."""

    def forget(self, kept: Mapping[str, object]) -> None:
        """Everything but these topics, by Kafka's id."""
        self._indexes = {place: index for place, index in self._indexes.items() if place[0] in kept}

    def read_on(
        self, topic: Topic, ends: Mapping[int, int], deadline: Deadline, at_once: int = AT_ONCE
    ) -> dict[int, OriginIndex]:
        """The indexes of these partitions, read on by `at_once` records each at most, and not beyond their `ends`.

        Raises:
            StoreError: one of them cannot be read now.
        """
        new = [partition for partition in ends if (topic.kafka_topic_id, partition) not in self._indexes]
        starts = self._admin.start_offsets(topic.kafka_topic, new, deadline) if new else {}
        for partition in new:
            self._indexes[topic.kafka_topic_id, partition] = OriginIndex(starts[partition])
        found = {partition: self._indexes[topic.kafka_topic_id, partition] for partition in ends}
        ranges = [
            OffsetRange(topic.kafka_topic, partition, index.end, min(ends[partition], index.end + at_once))
            for partition, index in found.items()
            if index.end < ends[partition]
        ]

        def take(number: int, records: list[KafkaRecord]) -> None:
            partition = ranges[number].partition
            for record in records:
                self._apply(topic, found[partition], record, partition)

        for number, failure in self._reader.read(ranges, take, deadline).items():
            if isinstance(failure, OffsetOutOfRange):  # the log begins later by now
                del self._indexes[topic.kafka_topic_id, ranges[number].partition]
            raise failure
        for each in ranges:
            found[each.partition].reached(each.end)
        return found

    def _apply(self, topic: Topic, index: OriginIndex, record: Any, partition: int) -> None:
        headers = headers_of(record) or []
        if is_marker(headers):
            index.no_message(record.offset())
            begun = begun_by(headers)
            if begun is not None and begun.origin:
                index.begun(begun.origin, begun.epoch)
            return
        try:
            found = copied(headers, partition)
        except CorruptRecord as reason:  # not written by a replicator of this product
            _log.error(
                "%s-%d offset=%d counts as published here: %s", topic.kafka_topic, partition, record.offset(), reason
            )
            found = None
        counts = True
        if found is None:
            index.published_here(record.offset())
        else:
            counts = index.copied(record.offset(), found.origin, found.there, found.epoch)
        if counts and self._seen is not None:
            self._seen(topic, partition, record, headers, found)
