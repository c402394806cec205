"""Spark's own Kafka source gives the records of a topic.

`spark.read.format("kafka")` is the first version of that source: it makes a Row of every record and takes it apart
again, which costs most where there are headers. Its second version, which `spark.sql.sources.useV1SourceList` keeps
batch reads from, writes Spark's own form at once. It is asked for by itself here, so that no setting of the session is
changed: measured, it reads headers for less than the first version takes without them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from hashlib import blake2b
from secrets import token_bytes
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from pulsar_on_kafka.metadata.topics import Topic
from pulsar_on_kafka.spark.options.read_options import ReadOptions
from pulsar_on_kafka.spark.planning.offset_ranges import Range, assign_json, offsets_json, scans
from pulsar_on_kafka.spark.reading.connection import executor_options

_GROUP: Final = "spark-pulsar"
_KEY: Final = token_bytes(16)
_log = logging.getLogger(__name__)


def scan_all(
    spark: SparkSession, options: ReadOptions, topic: Topic, ranges: Mapping[int, list[Range]], *, headers: bool
) -> DataFrame:
    """Every record of these ranges."""
    found = scans(ranges) or [{0: Range(0, 0)}]
    frames = [_scan(spark, options, topic, one, headers=headers) for one in found]
    together = frames[0]
    for another in frames[1:]:
        together = together.union(another)
    return together


def _scan(
    spark: SparkSession, options: ReadOptions, topic: Topic, ranges: Mapping[int, Range], *, headers: bool
) -> DataFrame:
    kafka = executor_options(options)
    given = {
        "kafka.group.id": _group_id(topic, kafka),
        **kafka,
        **options.spark,
        "assign": assign_json(topic.kafka_topic, list(ranges)),
        "startingOffsets": offsets_json(topic.kafka_topic, {p: one.start for p, one in ranges.items()}),
        "endingOffsets": offsets_json(topic.kafka_topic, {p: one.end for p, one in ranges.items()}),
        "failOnDataLoss": str(options.fail_on_data_loss).lower(),
        "includeHeaders": str(headers).lower(),
    }
    try:
        return _second_version(spark, given)
    except (Py4JError, TypeError) as failure:  # what is called there is no public interface of Spark's
        _log.warning("Spark's Kafka source is not to be had in its second version, reading with the first: %s", failure)
        return spark.read.format("kafka").options(**given).load()


def _group_id(topic: Topic, kafka: Mapping[str, str]) -> str:
    """The same for every scan of this driver, this life of the topic and these options, so that executors take the
    consumers of the last one, which Spark keeps by group id and partition (`InternalKafkaConsumerPool`). No executor
    joins the group."""
    said = repr((topic.kafka_topic_id, sorted(kafka.items())))  # there may be passwords among them
    return f"{_GROUP}-{blake2b(said.encode(), key=_KEY, digest_size=16).hexdigest()}"


def _second_version(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    java: Any = spark._jvm
    sql = java.org.apache.spark.sql
    given = java.java.util.HashMap()
    for name, value in options.items():
        given.put(name, value)
    text = sql.util.CaseInsensitiveStringMap(given)
    table = sql.kafka010.KafkaSourceProvider().getTable(text)
    nothing = java.scala.Option.empty()
    relation = sql.execution.datasources.v2.DataSourceV2Relation.create(table, nothing, nothing, text)
    session: Any = spark._jsparkSession
    return DataFrame(sql.classic.Dataset.ofRows(session, relation), spark)
