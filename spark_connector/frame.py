"""The DataFrame of one topic's snapshot: Spark's Kafka source, what filters it, and the columns of messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from layer.metadata.topics import Topic
from mapping.headers import CHUNK, ENCRYPTION
from spark_connector import batches, filters, places
from spark_connector.connection import executor_options
from spark_connector.decoding import needs_version
from spark_connector.errors import NotReadable
from spark_connector.excluded import block_rows
from spark_connector.headers import RecordHeaders
from spark_connector.options import KEPT_COLUMNS, PLACE_COLUMNS, ReadOptions
from spark_connector.ranges import WORTH_A_RANGE, Range, assign_json, offsets_json, scans, without_holes
from spark_connector.session import check_session
from spark_connector.topic_schemas import TopicSchemas
from spark_connector.value_columns import selected
from spark_connector.visibility import TopicView

_MAY_BE_WORTH: Final = 1_000_000
"""Offsets; a smaller hole takes less time to read than another scan."""


def of_topic(spark: SparkSession, options: ReadOptions, view: TopicView, schemas: TopicSchemas) -> DataFrame:
    """The messages of a snapshot, with the columns that the options name.

    Raises:
        NotReadable: see `block_rows`; or the options say that no headers are needed, and some are.
        SparkNotReady: batch entries need spark-avro.
    """
    needed = _needs_headers(view, schemas)
    if options.plain and needed is not None:
        raise NotReadable(f"{view.topic.name} {needed}: includeHeaders must not be false")
    plain = options.plain or (view.plain and needed is None and not _wants_headers(options.columns))
    rows = block_rows({p: one.excluded for p, one in view.partitions.items()})
    records = _scan_all(spark, options, view.topic, _ranges(view), headers=not plain)
    records = filters.without_excluded(spark, records, rows)
    if plain:
        made = _plain_columns(view.topic, records)
    else:
        check_session(spark, "avro")
        messages = batches.unpacked(filters.readable(records, view))
        records = filters.inside_bounds(messages, view.begun, view.ended)
        made = _columns(view.topic, records)
    return selected(records, made, options.columns, schemas, options.mode)


def _wants_headers(columns: Sequence[str]) -> bool:
    return not set(columns) <= {*KEPT_COLUMNS, *PLACE_COLUMNS}


def _needs_headers(view: TopicView, schemas: TopicSchemas) -> str | None:
    """Why the snapshot cannot be read without them."""
    if needs_version(schemas):
        return "has schemas by which messages are read according to their headers"
    if any(one.unsealed for one in view.partitions.values()):
        return "has aborted transactions of which a record may still come, which only headers tell"
    if view.begun or view.ended or any(one.excluded.batches for one in view.partitions.values()):
        return "holds batch entries"
    return None


def _ranges(view: TopicView) -> dict[int, list[Range]]:
    """What is fetched of each partition: without the largest holes, which need no blocks then."""
    total = sum(one.whole.length for one in view.partitions.values())
    worth = max(_MAY_BE_WORTH, total // WORTH_A_RANGE)
    found = {}
    for partition, one in view.partitions.items():
        found[partition] = without_holes(one.whole, one.excluded.holes(one.whole), worth)
    return found


def _scan_all(
    spark: SparkSession, options: ReadOptions, topic: Topic, ranges: Mapping[int, list[Range]], *, headers: bool
) -> DataFrame:
    """Every record of these ranges, as Spark's Kafka source gives them."""
    found = scans(ranges) or [{0: Range(0, 0)}]
    frames = [_scan(spark, options, topic, one, headers=headers) for one in found]
    together = frames[0]
    for another in frames[1:]:
        together = together.union(another)
    return together


def _scan(
    spark: SparkSession, options: ReadOptions, topic: Topic, ranges: Mapping[int, Range], *, headers: bool
) -> DataFrame:
    return (
        spark.read.format("kafka")
        .options(**executor_options(options), **options.spark)
        .option("assign", assign_json(topic.kafka_topic, list(ranges)))
        .option("startingOffsets", offsets_json(topic.kafka_topic, {p: one.start for p, one in ranges.items()}))
        .option("endingOffsets", offsets_json(topic.kafka_topic, {p: one.end for p, one in ranges.items()}))
        .option("failOnDataLoss", str(options.fail_on_data_loss).lower())
        .option("includeHeaders", str(headers).lower())
        .load()
    )


def _plain_columns(topic: Topic, records: DataFrame) -> dict[str, Callable[[], Column]]:
    """How to make each column of a record that is one plain message."""
    partition, offset = records["partition"], records["offset"]
    return {
        "value": lambda: records["value"],
        "__key": lambda: records["key"],
        "__topic": lambda: places.topic_name(topic, partition),
        "__messageId": lambda: places.message_id(topic, partition, offset),
        "__publishTime": lambda: records["timestamp"],
        "__partition": lambda: partition,
        "__offset": lambda: offset,
        "__batchIndex": lambda: F.lit(None).cast("int"),
    }


def _columns(topic: Topic, messages: DataFrame) -> dict[str, Callable[[], Column]]:
    """How to make each column of a message."""
    key, partition, offset = messages["key"], messages["partition"], messages["offset"]
    said = RecordHeaders(messages["headers"])
    batch = batches.BatchColumns(messages)

    def either(of_batch: Callable[[], Column], of_record: Callable[[], Column]) -> Callable[[], Column]:
        return lambda: F.when(batch.in_batch, of_batch()).otherwise(of_record())

    return {
        "value": lambda: _readable(said, F.when(batch.in_batch, batch.value()).otherwise(messages["value"])),
        "__key": either(batch.key, lambda: said.key(key)),
        "__topic": lambda: places.topic_name(topic, partition),
        "__messageId": lambda: places.message_id(topic, partition, offset, batch.index, batch.size),
        "__publishTime": lambda: said.publish_time(messages["timestamp"]),
        "__eventTime": either(batch.event_time, said.event_time),
        "__messageProperties": either(batch.properties, said.properties),
        "__orderingKey": either(batch.ordering_key, lambda: said.ordering_key(key)),
        "__partition": lambda: partition,
        "__offset": lambda: offset,
        "__batchIndex": lambda: batch.index,
        "__producerName": said.producer_name,
        "__sequenceId": either(lambda: batch.sequence_id(said.sequence_id()), said.sequence_id),
        "__schemaVersion": said.schema_version,
    }


def _readable(said: RecordHeaders, value: Column) -> Column:
    refused = F.when(
        said.has(ENCRYPTION),
        F.raise_error(F.lit("the topic holds encrypted messages, which Spark has no key for")).cast("binary"),
    ).when(
        said.has(CHUNK),
        F.raise_error(F.lit("the topic holds messages in chunks, which this version does not put together")).cast(
            "binary"
        ),
    )
    return refused.otherwise(value)
