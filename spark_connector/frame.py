"""The DataFrame of one topic's snapshot: Spark's Kafka source, what filters it, and the columns of messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from layer.metadata.topics import Topic
from spark_connector import places
from spark_connector.connection import executor_options
from spark_connector.decoding import needs_version
from spark_connector.headers import RecordHeaders
from spark_connector.options import KEPT_COLUMNS, ReadOptions
from spark_connector.ranges import Range, assign_json, offsets_json, scans
from spark_connector.topic_schemas import TopicSchemas
from spark_connector.value_columns import selected
from spark_connector.visibility import TopicView


def of_topic(spark: SparkSession, options: ReadOptions, view: TopicView, schemas: TopicSchemas) -> DataFrame:
    """The messages of a snapshot, with the columns that the options name."""
    needs_headers = not set(options.columns) <= set(KEPT_COLUMNS) or needs_version(schemas)
    ranges = {p: [Range(one.start, one.end)] for p, one in view.partitions.items()}
    records = _scan_all(spark, options, view.topic, ranges, headers=needs_headers)
    made = _columns(view.topic, records, headers=needs_headers)
    return selected(records, made, options.columns, schemas, options.mode)


def _scan_all(
    spark: SparkSession, options: ReadOptions, topic: Topic, ranges: Mapping[int, list[Range]], *, headers: bool
) -> DataFrame:
    """Every record of these ranges, as Spark's Kafka source gives them."""
    first = min(ranges)
    found = scans(ranges) or [{first: Range(0, 0)}]
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


def _columns(topic: Topic, records: DataFrame, *, headers: bool) -> dict[str, Callable[[], Column]]:
    """How to make each column of a record that is one message."""
    key, partition, offset = records["key"], records["partition"], records["offset"]
    made: dict[str, Callable[[], Column]] = {
        "value": lambda: records["value"],
        "__key": lambda: key,
        "__topic": lambda: places.topic_name(topic, partition),
        "__messageId": lambda: places.message_id(topic, partition, offset),
        "__publishTime": lambda: records["timestamp"],
        "__partition": lambda: partition,
        "__offset": lambda: offset,
        "__batchIndex": lambda: F.lit(None).cast("int"),
    }
    if headers:
        said = RecordHeaders(records["headers"])
        made |= {
            "__key": lambda: said.key(key),
            "__orderingKey": lambda: said.ordering_key(key),
            "__eventTime": said.event_time,
            "__messageProperties": said.properties,
            "__producerName": said.producer_name,
            "__sequenceId": said.sequence_id,
            "__schemaVersion": said.schema_version,
        }
    return made
