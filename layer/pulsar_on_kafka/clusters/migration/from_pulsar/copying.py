"""Copies one partition of a Pulsar topic into its partition here, each entry once, even if workers are killed.

Progress is recorded in a replicator's format (`node.cross_cluster.target_topic`, decision 0018): the entry's place
stands for the original's offset, and the number of the run for the epoch.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline, wait_until
from pulsar_on_kafka.broker.node.cross_cluster.copies_in_flight import CopiesUnderWay, raise_ours
from pulsar_on_kafka.broker.node.cross_cluster.target_topic import CopiedMessages, Target
from pulsar_on_kafka.clusters.migration.from_pulsar.entries import Entry, OriginOfCopies, copies
from pulsar_on_kafka.clusters.migration.from_pulsar.entry_positions import place_of
from pulsar_on_kafka.clusters.migration.from_pulsar.schemas import SchemasHere
from pulsar_on_kafka.kafka.errors import translate
from pulsar_on_kafka.kafka.producer import KafkaProducer
from pulsar_on_kafka_mapping.errors import MappingError

_log: Final = logging.getLogger(__name__)

MAX_RECORDS: Final = 20_000
MAX_BYTES: Final = 32 * 1024 * 1024
_SAVE_EVERY_S: Final = 5.0
_ANSWER_S: Final = 120.0
_ROOM_S: Final = 0.02


@dataclass(slots=True)
class CopiedCounts:
    """Counts of one partition, by this run; `records` are more than `entries` where messages are cut."""

    entries: int = 0
    messages: int = 0
    records: int = 0
    bytes: int = 0


class PartitionCopy:
    """Copies one partition, in one thread. Memory: `MAX_BYTES` of records under way, and `CopiedMessages.present`."""

    def __init__(
        self, target: Target, partition: int, origin: OriginOfCopies, schemas: SchemasHere, max_bytes: int
    ) -> None:
        self._target = target
        self._partition = partition
        self._origin = origin
        self._schemas = schemas
        self._max_bytes = max_bytes
        self._copied = CopiedMessages(-1, 0)
        self._highest = -1
        self._under_way = CopiesUnderWay(target.topic.kafka_topic, partition, _ANSWER_S)
        self._save_due = Deadline.after(_SAVE_EVERY_S)
        self.counts = CopiedCounts()

    def take_over(self, still_mine: Callable[[], None], deadline: Deadline) -> int:
        """Reads the present copies; returns the highest place below which all entries are copied, -1 for none.

        `still_mine` raises once a later run has begun. It is called after this run was recorded as a writer: so a later
        run knows of it.
        """
        self._copied = self._target.take_over(self._partition, self._origin.epoch, deadline)
        still_mine()
        self._highest = self._copied.highest
        self._under_way.next_offset = self._copied.upto
        return self._highest

    def copy(self, entries: Iterable[Entry]) -> None:
        """Appends the missing entries, in order, and records the progress.

        Raises:
            Corrupt: an entry cannot be a record here; names it.
            StoreError: the cluster rejects an append. A later run continues behind the stored entries.
        """
        producer = self._target.producer()
        for entry in entries:
            place = place_of(entry.position)
            if place <= self._highest:
                continue
            if place not in self._copied.present:
                self._send(producer, entry)
            self._highest = place
            self._keep_bounds(producer)
            if self._save_due.passed():
                self._drain(producer)
                self._save(final=False)
        self._drain(producer)
        self._save(final=True)

    def _send(self, producer: KafkaProducer, entry: Entry) -> None:
        topic = self._target.topic
        header, base64_keys = self._schemas.of(entry.schema_version)
        uuid = f"import-{entry.position.ledger_id}-{entry.position.entry_id}-{secrets.token_hex(4)}"
        try:
            records = copies(entry, self._origin, header, base64_keys, self._max_bytes, uuid)
        except MappingError as failure:
            raise errors.Corrupt(f"{topic.name} message at {entry.position} of Pulsar: {failure}") from failure
        if len(records) > 1:
            self._target.node.producers.more_than_plain(topic, Deadline.after(_ANSWER_S), chunks=True)
        size = sum(record.size for record in records)
        step = [(record.value, record.key, record.headers) for record in records]
        refused = self._under_way.send(producer, place_of(entry.position), step, size)
        if refused is not None:
            raise_ours(refused.why, f"appending to {self._under_way}")
        self.counts.records += len(records)
        self.counts.bytes += size
        self.counts.entries += 1
        self.counts.messages += len(entry.messages)

    def _keep_bounds(self, producer: KafkaProducer) -> None:
        if producer.asleep:
            producer.wake()
        producer.poll_inline()
        if self._under_way.records >= MAX_RECORDS or self._under_way.bytes >= MAX_BYTES:
            self._drain(producer)

    def _drain(self, producer: KafkaProducer) -> None:
        """Waits until all records are answered. Raises StoreError."""

        def answered() -> bool:
            producer.wake()
            producer.wait_for_reports(_ROOM_S)
            return self._under_way.records == 0 or self._under_way.failure is not None

        what = f"copying to {self._under_way}"
        if not wait_until(answered, Deadline.after(_ANSWER_S)):
            raise errors.AppendOutcomeUnknown(f"{what} was not answered in {_ANSWER_S:.0f} s")
        if self._under_way.failure is not None:
            raise translate(self._under_way.failure, what)

    def _save(self, *, final: bool) -> None:
        self._save_due = Deadline.after(_SAVE_EVERY_S)
        snapshot = self._copied.passed(self._highest, self._under_way.next_offset)
        self._target.save(self._partition, self._origin.epoch, snapshot, Deadline.after(_ANSWER_S), final=final)
