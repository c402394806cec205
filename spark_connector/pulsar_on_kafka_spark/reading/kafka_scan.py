"""Spark's own Kafka source reads the records of a topic.

`spark.read.format("kafka")` is the first version of that source: it makes a Row of every record and takes it apart
again, which costs most where there are headers. Its second version, which `spark.sql.sources.useV1SourceList` excludes
from batch reads, writes Spark's own form at once. It is instantiated directly here, so that no setting of the session
is changed: measured, it reads headers for less than the first version takes without them.

Neither version omits unneeded columns. So the table that Spark gets is a proxy, which learns from Spark's optimizer
whether a query needs headers; then it returns the source with them, otherwise the one without. The proxy also names the
executors' consumer group: given as the option `kafka.group.id`, each scan would log eight lines of warning. A session
of Spark Connect can only use the first version.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from hashlib import blake2b
from secrets import token_bytes
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka_spark.base.java_proxies import CONNECTOR, DriverJvm, Proxy, TableProxy, driver_jvm
from pulsar_on_kafka_spark.base.spark_session import is_connect
from pulsar_on_kafka_spark.options.read_options import ReadOptions
from pulsar_on_kafka_spark.planning.offset_ranges import Range, assign_json, offsets_json, scans
from pulsar_on_kafka_spark.reading.connection import executor_options

_GROUP: Final = "spark-pulsar"
_KEY: Final = token_bytes(16)
_WITH_HEADERS: Final = "includeHeaders"
_HEADERS: Final = "headers"
_GROUP_ID: Final = "group.id"
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
        **kafka,
        **options.spark,
        "assign": assign_json(topic.kafka_topic, list(ranges)),
        "startingOffsets": offsets_json(topic.kafka_topic, {p: one.start for p, one in ranges.items()}),
        "endingOffsets": offsets_json(topic.kafka_topic, {p: one.end for p, one in ranges.items()}),
        "failOnDataLoss": str(options.fail_on_data_loss).lower(),
        _WITH_HEADERS: str(headers).lower(),
    }
    group = None if _GROUP_ID in options.kafka else _group_id(topic, kafka)
    if is_connect(spark):
        return _first_version(spark, given, group)
    try:
        return second_version(spark, given, group)
    except (Py4JError, TypeError) as failure:  # what is called there is no public interface of Spark's
        _log.warning("Spark's Kafka source is not to be had in its second version, reading with the first: %s", failure)
        return _first_version(spark, given, group)


def _group_id(topic: Topic, kafka: Mapping[str, str]) -> str:
    """The same for every scan of this driver, this life of the topic and these options, so that executors take the
    consumers of the last one, which Spark keeps by group id and partition (`InternalKafkaConsumerPool`). No executor
    joins the group."""
    reported = repr((topic.kafka_topic_id, sorted(kafka.items())))  # there may be passwords among them
    return f"{_GROUP}-{blake2b(reported.encode(), key=_KEY, digest_size=16).hexdigest()}"


def _first_version(spark: SparkSession, options: Mapping[str, str], group: str | None) -> DataFrame:
    given = options if group is None else {**options, f"kafka.{_GROUP_ID}": group}
    return spark.read.format("kafka").options(**given).load()


def second_version(spark: SparkSession, options: Mapping[str, str], group: str | None = None) -> DataFrame:
    """The source by its options, `includeHeaders` among them. `group`: the executors' consumer group; None: that of the
    options, or another one for each scan."""
    java = driver_jvm(spark)
    text = java.options(options)
    table = java.sql.kafka010.KafkaSourceProvider().getTable(text)
    if options[_WITH_HEADERS] == "true" or group is not None:
        table = _Records(java, table, options, group)
    nothing = java.jvm.scala.Option.empty()
    made = [table, nothing, nothing, text]
    if java.minor >= (4, 1):
        made.append(nothing)  # no time travel
    return java.frame(java.sql.execution.datasources.v2.DataSourceV2Relation.create(*made))


class _Records(TableProxy):
    """Records of the source, with headers for those who look at them."""

    def __init__(self, java: DriverJvm, table: Any, options: Mapping[str, str], group: str | None) -> None:
        super().__init__(java, table.name(), table.schema(), table.capabilities())
        self._table = table
        self._options = options
        self._group = group

    def columns(self) -> Any:
        return self._table.columns()

    def newScanBuilder(self, options: Any) -> _Scans:  # noqa: N802
        without = {**self._options, _WITH_HEADERS: "false"}
        return _Scans(self._java, self._name, self._table, options, without, self._group)


class _Scans(Proxy):
    def __init__(
        self, java: DriverJvm, name: str, table: Any, options: Any, without: Mapping[str, str], group: str | None
    ) -> None:
        super().__init__(java, name)
        self._table = table
        self._options = options
        self._without = without
        self._group = group

    def pruneColumns(self, needed: Any) -> None:  # noqa: N802
        if _HEADERS not in needed.fieldNames():
            self._options = self._java.options(self._without)

    def build(self) -> Any:
        made = self._table.newScanBuilder(self._options).build()
        return made if self._group is None else _Scan(self._java, self._name, made, self._group)

    class Java:
        implements = (f"{CONNECTOR}.read.SupportsPushDownRequiredColumns",)


class _Scan(Proxy):
    """One of the source's scans, whose batch has the consumer group."""

    def __init__(self, java: DriverJvm, name: str, scan: Any, group: str) -> None:
        super().__init__(java, name)
        self._scan = scan
        self._group = group

    def readSchema(self) -> Any:  # noqa: N802
        return self._scan.readSchema()

    def description(self) -> Any:
        return self._scan.description()

    def toBatch(self) -> _Batch:  # noqa: N802
        return _Batch(self._java, self._name, self._scan.toBatch(), self._group)

    def supportedCustomMetrics(self) -> Any:  # noqa: N802
        return self._scan.supportedCustomMetrics()

    def reportDriverMetrics(self) -> Any:  # noqa: N802
        return self._scan.reportDriverMetrics()

    def columnarSupportMode(self) -> Any:  # noqa: N802
        return self._scan.columnarSupportMode()

    class Java:
        implements = (f"{CONNECTOR}.read.Scan",)


class _Batch(Proxy):
    def __init__(self, java: DriverJvm, name: str, batch: Any, group: str) -> None:
        super().__init__(java, name)
        self._batch = batch
        self._group = group

    def planInputPartitions(self) -> Any:  # noqa: N802
        """All partitions of a batch share one map of the consumer's options."""
        planned = self._batch.planInputPartitions()
        if len(planned):
            planned[0].executorKafkaParams().put(_GROUP_ID, self._group)
        return planned

    def createReaderFactory(self) -> Any:  # noqa: N802
        return self._batch.createReaderFactory()

    class Java:
        implements = (f"{CONNECTOR}.read.Batch",)
