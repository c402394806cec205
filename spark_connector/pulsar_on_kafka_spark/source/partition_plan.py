"""A plan says which messages of a partition one task reads. It travels from the driver to an executor, pickled.

A partition's snapshot (`PartitionView`) becomes one plan, or several with `minPartitions`: each reads a part of the
offsets, and the chunked messages whose last chunk lies there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

from pyroaring import BitMap64
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.readers import slot_of
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import PartitionAcks
from pulsar_on_kafka.kafka.settings import KafkaSettings
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.codecs.layouts import compressed
from pulsar_on_kafka_spark.options.read_options import ReadOptions
from pulsar_on_kafka_spark.planning.chunked_messages import WholeChunkedMessage
from pulsar_on_kafka_spark.planning.planned_views import known_batches, visible
from pulsar_on_kafka_spark.planning.visibility import TopicView
from pulsar_on_kafka_spark.values.topic_schemas import TopicSchemas


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """All plans of one topic's snapshot have this in common.

    Attributes:
        kafka: the cluster, and the logins of the executors' Kafka client; may hold passwords.
        plain, marked, may_have_chunks: as `TopicView` has them.
    """

    kafka: KafkaSettings = field(repr=False)
    opened: Topic
    plain: bool
    marked: bool
    may_have_chunks: bool
    delayed_until_ms: int | None
    schemas: TopicSchemas
    options: ReadOptions = field(repr=False)
    columns: StructType
    """The rows' columns."""


@dataclass(frozen=True)
class PartitionPlan(InputPartition):
    """One task reads these messages of a partition.

    Attributes:
        offsets: those of the records to read, chunks excepted, as a roaring bitmap's portable form.
        batches: batch entries of which some messages are acknowledged: how many it has, and which, as bits.
        unsealed: aborted transactions whose records only headers identify, from offset `unsealed_from` on.
        chunked: messages in chunks by their last chunk's offset.
        begun, ended: see `TopicView`.
    """

    topic: PlannedTopic
    partition: int
    offsets: bytes
    batches: Mapping[int, tuple[int, int]]
    unsealed: frozenset[TxnId]
    unsealed_from: int
    chunked: Mapping[int, WholeChunkedMessage]
    begun: tuple[int, int] | None
    ended: tuple[int, int] | None

    def slot(self) -> PartitionAcks:
        """The partition as its messages know it."""
        return slot_of(self.topic.opened, self.partition, {})

    def bitmap(self) -> BitMap64:
        return BitMap64.deserialize(self.offsets) if self.offsets else BitMap64()


def planned_topic(
    settings: KafkaSettings, view: TopicView, schemas: TopicSchemas, options: ReadOptions, columns: StructType
) -> PlannedTopic:
    return PlannedTopic(
        settings,
        view.topic,
        plain=options.plain or (view.plain and not _is_more_than_plain(view)),
        marked=view.marked,
        may_have_chunks=view.may_have_chunks,
        delayed_until_ms=view.delayed_until_ms,
        schemas=schemas,
        options=options,
        columns=columns,
    )


def _is_more_than_plain(view: TopicView) -> bool:
    """The snapshot has what no topic of plain messages has, whatever is on record of it."""
    if view.begun or view.ended:
        return True
    return any(one.chunked or one.excluded.batches for one in view.partitions.values())


def partition_plans(topic: PlannedTopic, view: TopicView, most: int | None) -> Iterator[PartitionPlan]:
    """The plans of a snapshot, each with at most `most` records besides chunks (None: one plan for each partition). A
    partition without messages has none."""
    for partition, one in view.partitions.items():
        offsets, batches = visible(one, one.whole.start, one.whole.end), known_batches(one)
        for low, high, piece in _pieces(offsets, 1 if most is None else -(-len(offsets) // most)):
            chunked = {last: message for last, message in one.chunked.items() if low <= last < high}
            if piece or chunked:
                yield PartitionPlan(
                    topic,
                    partition,
                    compressed(piece),
                    {offset: acks for offset, acks in batches.items() if offset in piece},
                    one.unsealed,
                    one.whole.start if one.unsealed_from is None else one.unsealed_from,
                    chunked,
                    view.begun.get(partition),
                    view.ended.get(partition),
                )


def _pieces(offsets: BitMap64, count: int) -> Iterator[tuple[float, float, BitMap64]]:
    """At most `count` bitmaps of about as many offsets each, with the bounds within which a message belongs to it."""
    if count <= 1:
        yield -inf, inf, offsets
        return
    firsts = [offsets[len(offsets) * number // count] for number in range(1, count)]
    for low, high in pairwise([offsets[0], *firsts, offsets[-1] + 1]):
        inside = BitMap64()
        inside.add_range(low, high)
        yield -inf if low == offsets[0] else low, inf if high > offsets[-1] else high, offsets & inside
