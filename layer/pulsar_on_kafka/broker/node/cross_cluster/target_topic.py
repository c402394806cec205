"""The topic on the other cluster, and its present copies of the source topic.

Two kinds of records in `producers` of the target describe the copies. One is deduplication's snapshot of sequence ids,
under the name `pulsar.repl.<origin>/<life of the topic there>`, with source offsets as ids. The other is the fence,
where a replicator took over from one that may still write. A snapshot (highest, upto) means: the copies of offsets up
to `highest` are present, and later copies lie at `upto` or behind. So an owner that reads from `upto` knows exactly
which records it need not copy again. Decision: mapping/decisions/0018.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any, Final

from pyroaring import BitMap64

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.deduplication.journal import RecoveredSequence
from pulsar_on_kafka.broker.metadata.producers.fences import Fences
from pulsar_on_kafka.broker.metadata.record_limits import COPIES
from pulsar_on_kafka.broker.metadata.topics import Topic, check_not_terminated
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.kafka.producer import KafkaProducer
from pulsar_on_kafka.kafka.records import headers_of
from pulsar_on_kafka_mapping.names.subscription_group import copied_name
from pulsar_on_kafka_mapping.records.epoch_fences import begun_by, take_over_marker
from pulsar_on_kafka_mapping.records.original_position import CopyHeaders, original_of
from pulsar_on_kafka_mapping.records.record_headers import ORIGINAL_ID, REPLICATED_FROM

_log: Final = logging.getLogger(__name__)
_USE: Final = "replication"


@dataclass(slots=True)
class CopiedMessages:
    """The copies that the target has: everything up to the source offset `highest`, and beyond it the offsets in
    `present`. Copies of what is above `highest` lie at target offset `upto` or behind."""

    highest: int
    upto: int
    present: BitMap64 = field(default_factory=BitMap64)

    def passed(self, highest: int, own_upto: int) -> CopiedMessages:
        """The copies once everything up to `highest` is copied or was present, where this owner's later copies lie at
        `own_upto` or behind. While a former owner's lie beyond `highest`, these are at `upto` or behind."""
        if self.present and self.present.max() > highest:
            return CopiedMessages(highest, self.upto, self.present)
        return CopiedMessages(highest, own_upto)


class Target:
    """The target topic, for one thread at a time. Memory: `CopiedMessages.present`, for the copies since the last
    snapshot."""

    def __init__(self, node: Node, topic: Topic, origin: str, incarnation: int, compression: str) -> None:
        """`incarnation`: the life of the topic that is copied."""
        self.node = node
        self.topic = topic
        self._origin = origin
        self._incarnation = incarnation
        self._name = copied_name(origin, incarnation)
        self._compression = compression

    def producer(self) -> KafkaProducer:
        """Shared by all that is copied to the cluster. It gives nothing up by itself, so a partition's order holds."""
        return self.node.producer(self._compression, 0, _USE)

    def take_over(self, partition: int, epoch: int, deadline: Deadline) -> CopiedMessages:
        """The present copies of the partition; the fence of this epoch is written when it returns. Later appends by
        owners of lower epochs do not count.

        Raises:
            LayerError: the cluster does not reply in time. Refused: Kafka compacts the topic, or it is terminated.
        """
        journal, topic = self.node.sequences, self.topic
        check_not_terminated(topic)
        self.node.limits.of(topic, deadline).refuse(COPIES)
        known = {at[0]: each for at, each in journal.known(topic, self._name, deadline).items() if at[1] == partition}
        before = known[max(known)] if known else None
        if before is None:
            copied = CopiedMessages(-1, journal.ends(topic, [partition], deadline)[partition])
        else:
            copied = CopiedMessages(before.highest, before.upto)
        # Before the marker: later snapshots of a former owner count copies that the marker makes void. From here on
        # no process reads them.
        self.save(partition, epoch, copied, deadline, final=False)
        if before is not None and not before.final:
            end = self.node.producers.take_overs.begin(
                topic,
                self._origin,
                epoch,
                [partition],
                lambda _: {partition: self._append_marker(partition, epoch, deadline)},
                deadline,
            )[partition]
            self._read(partition, copied, end, deadline)
        journal.supersede(topic, self._name, partition, epoch, deadline)
        _log.info(
            "topic=%s-%d origin=%s epoch=%d has everything up to %d and %d more",
            topic.name, partition, self._origin, epoch, copied.highest, len(copied.present),
        )  # fmt: skip
        return copied

    def check_open(self, deadline: Deadline) -> None:
        """Raises TopicIsTerminated: copies behind the end are void, so they must not count as copied."""
        name = self.topic.name
        record = self.node.topics.records.of([name], deadline)[name]
        if record is not None and record.terminated:
            raise errors.TopicIsTerminated(f"topic {name} was terminated in the other cluster")

    def save(self, partition: int, epoch: int, copied: CopiedMessages, deadline: Deadline, *, final: bool) -> None:
        """Put a snapshot on record. `final`: nothing of this owner is under way, nor will be.

        A snapshot does not name the copies in `present`. While there are some, it is not final, whatever `final` says:
        the next owner has to read them.
        """
        snapshot, final = RecoveredSequence(copied.highest, copied.upto), final and not copied.present
        self.node.sequences.save(self.topic, self._name, epoch, {partition: snapshot}, deadline, final=final)

    def _append_marker(self, partition: int, epoch: int, deadline: Deadline) -> int:
        topic, headers = self.topic.kafka_topic, take_over_marker(self._origin, epoch)
        return self.producer().append(topic, partition, None, None, deadline, headers)

    def _read(self, partition: int, copied: CopiedMessages, end: int, deadline: Deadline) -> None:
        """Find the copies in [copied.upto, end) that count."""
        topic = self.topic
        log_start = self.node.fetcher.log_start(topic.kafka_topic, partition, deadline)
        fences = Fences(self.node.producers.take_overs.of_partitions(topic, [partition], deadline)[partition])
        origin = self._origin.encode("utf-8")
        for batch in self.node.fetcher.read(topic.kafka_topic, partition, max(copied.upto, log_start), end, deadline):
            records: list[Any] = list(batch)
            odd = [i for i, record in enumerate(records) if begun_by(headers_of(record)) is not None]
            for record in fences.valid(records, odd):
                headers = dict(headers_of(record) or ())
                position = headers.get(ORIGINAL_ID)
                if headers.get(REPLICATED_FROM) != origin or position is None:
                    continue
                read = original_of(CopyHeaders(origin, position))
                if read is None:
                    continue
                original = read[1]
                if original.incarnation == self._incarnation and original.kafka_offset > copied.highest:
                    copied.present.add(original.kafka_offset)
