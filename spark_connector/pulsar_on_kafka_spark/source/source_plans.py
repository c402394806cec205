"""Plans of the data source, made by the driver: snapshots of topics become the plans of tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final

from pyroaring import BitMap64
from pyspark.sql.types import StructType

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.subscriptions.records.chunks import chunk_info
from pulsar_on_kafka.kafka.records import headers_of
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.records.message_record import ChunkInfo
from pulsar_on_kafka_mapping.records.record_headers import CHUNK, TXN
from pulsar_on_kafka_spark.base.errors import InvalidReadOption
from pulsar_on_kafka_spark.options.read_options import STREAM_NAMES, ReadOptions, parse_options, plain_name
from pulsar_on_kafka_spark.planning.chunked_messages import KnownChunks
from pulsar_on_kafka_spark.planning.planned_views import visible, with_chunks
from pulsar_on_kafka_spark.planning.visibility import SNAPSHOT_S, PartitionView, TopicView, find_topic
from pulsar_on_kafka_spark.reading.connection import driver_settings, node_of
from pulsar_on_kafka_spark.reading.named_topics import named_topics, schemas_of, take_views
from pulsar_on_kafka_spark.reading.tenant_cluster import on_cluster
from pulsar_on_kafka_spark.source.partition_plan import PartitionPlan, partition_plans, planned_topic
from pulsar_on_kafka_spark.source.record_batches import Columns
from pulsar_on_kafka_spark.values.topic_schemas import TopicSchemas

_AT_ONCE: Final = 100_000
_MIN_PARTITIONS: Final = "minPartitions"


def source_options(given: Mapping[str, str]) -> ReadOptions:
    """The options of a read by the data source, which are texts.

    Raises:
        InvalidReadOption: see `parse_options`; or one configures Spark's Kafka source, which is not used.
    """
    return check_source(parse_options(given))


def check_source(options: ReadOptions) -> ReadOptions:
    """Raises InvalidReadOption: an option is of Spark's Kafka source."""
    if options.kafka:
        raise InvalidReadOption(
            f"option kafka.{next(iter(options.kafka))} configures Kafka's Java client, which this source does not use: "
            "expected driver.* (librdkafka's names), which the executors use as well"
        )
    others = sorted(options.spark.keys() - {_MIN_PARTITIONS})
    if others:
        raise InvalidReadOption(f"option {others[0]} is of Spark's Kafka source, which this source does not use")
    return options


def columns_now(given: Mapping[str, str]) -> StructType:
    """The columns of a read or a stream with these options, by the schemas that its topics have now.

    Raises:
        InvalidReadOption, NotReadable: see `spark.base.errors`.
    """
    of_read = {name: value for name, value in given.items() if plain_name(name) not in STREAM_NAMES}
    options = on_cluster(source_options(of_read))
    with node_of(options) as node:
        topics = [find_topic(node, name, Deadline.after(SNAPSHOT_S)) for name in named_topics(node, options)]
        schemas = schemas_of(node, options, [topic.name for topic in topics])
    return Columns(schemas[0], options).schema


def batch_plans(options: ReadOptions, columns: StructType) -> Sequence[PartitionPlan]:
    """The plans of a read: a snapshot of its topics.

    Raises:
        InvalidReadOption, NotReadable, DataLoss: see `spark.base.errors`.
    """
    options = on_cluster(options)
    with node_of(options) as node:
        views = [looked_for(node, view) for view in take_views(node, options)]
        return plans_of(options, views, schemas_of(node, options, [view.topic.name for view in views]), columns)


def plans_of(
    options: ReadOptions, views: Sequence[TopicView], schemas: Sequence[TopicSchemas], columns: StructType
) -> list[PartitionPlan]:
    """The plans of these snapshots. Raises InvalidReadOption: the topics do not have these columns."""
    settings = driver_settings(options, InvalidReadOption)
    tasks = int(options.spark.get(_MIN_PARTITIONS, 0))
    total = sum(one.excluded.count_left(one.whole) for view in views for one in view.partitions.values())
    most = max(1, total // tasks) if tasks else None
    found: list[PartitionPlan] = []
    for view, of_topic in zip(views, schemas, strict=True):
        Columns(of_topic, options, columns)
        topic = planned_topic(settings, view, of_topic, options, columns)
        found += partition_plans(topic, view, most)
    return found


def looked_for(node: Node, view: TopicView) -> TopicView:
    """The snapshot with its chunked messages, where there may be any: reads the headers of its records then, one after
    the other.

    Raises:
        NotReadable: see `check_count`.
    """
    if not view.may_have_chunks:
        return view
    known = {partition: KnownChunks() for partition in view.partitions}
    offsets = {p: visible(one, one.whole.start, one.whole.end) for p, one in view.partitions.items()}
    look(node, view, known, offsets)
    return with_chunks(view, {partition: each.together() for partition, each in known.items()})


def look(node: Node, view: TopicView, known: Mapping[int, KnownChunks], offsets: Mapping[int, BitMap64]) -> None:
    """Finds the chunks among these offsets that were not examined yet. As `chunk_frames.look`, without Spark.

    Raises:
        NotReadable: see `check_count`.
    """
    for partition, required in offsets.items():
        fresh = known[partition].unknown(required)
        if fresh:
            known[partition].learn(fresh, _chunks(node, view.topic, partition, fresh, view.partitions[partition]))


def _chunks(
    node: Node, topic: Topic, partition: int, offsets: BitMap64, view: PartitionView
) -> dict[int, ChunkInfo | None]:
    unsealed = frozenset(txn.to_bytes() for txn in view.unsealed)
    found: dict[int, ChunkInfo | None] = {}
    for start in range(0, len(offsets), _AT_ONCE):
        some = list(offsets[start : start + _AT_ONCE])
        for record in chain.from_iterable(
            node.fetcher.read_at(topic.kafka_topic, partition, some, Deadline.after(SNAPSHOT_S))
        ):
            headers = headers_of(record) or ()
            if not any(name == CHUNK for name, _ in headers):
                continue
            if any(name == TXN and value in unsealed for name, value in headers):
                continue
            try:
                found[record.offset()] = chunk_info(record)
            except CorruptRecord:
                found[record.offset()] = None
    return found
