"""A streaming source without rows, in Python, has Spark's triggers, offsets, checkpoint and progress for what this
process plans itself.

Spark calls these objects in the driver's JVM; py4j brings the calls here, as it does those of `foreachBatch`. The
source has no rows and no partitions, so nothing of it reaches an executor; what a micro-batch reads is the caller's
business. A Python data source would run in another process, which knows nothing of this one's plans; before Spark 4.2
it has no rate limits either.
"""

from __future__ import annotations

import logging
from typing import Any

from py4j.java_gateway import is_instance_of
from pyspark.sql import DataFrame, SparkSession

from pulsar_on_kafka_spark.base.java_proxies import CONNECTOR, DriverJvm, Proxy, TableProxy, driver_jvm
from pulsar_on_kafka_spark.base.query_errors import reported
from pulsar_on_kafka_spark.streaming.stream_planner import TopicPlanner

_log = logging.getLogger(__name__)

_DDL = "entries BIGINT"


def control_frame(spark: SparkSession, planner: TopicPlanner) -> DataFrame:
    """A streaming DataFrame without rows that has a micro-batch whenever the planner requires one."""
    java = driver_jvm(spark)
    schema = java.sql.types.StructType.fromDDL(_DDL)
    table = _Table(java, planner, schema)
    none = java.jvm.scala.Option.empty()
    columns = java.sql.catalyst.types.DataTypeUtils.toAttributes(schema)
    streaming = java.sql.catalyst.streaming
    made = [none, planner.name, table, java.options({}), columns, none, none, none]
    if java.minor >= (4, 2):
        made.append(java.single(streaming, "Unassigned"))  # no name in the checkpoint
    return java.frame(streaming.StreamingRelationV2(*made))


def count_rows(spark: SparkSession, rows: int) -> None:
    """Sets the row count in the progress of the micro-batch under way. Within `foreachBatch` only."""
    query: Any = spark.streams.get(spark.sparkContext.getLocalProperty("sql.streaming.queryId") or "")
    if query is None:
        return
    execution = query._jsq.streamingQuery().lastExecution()
    leaves = execution.executedPlan().collectLeaves()
    if leaves.size():
        leaves.apply(0).metrics().apply("numOutputRows").add(rows)


class _Table(TableProxy):
    def __init__(self, java: DriverJvm, planner: TopicPlanner, schema: Any) -> None:
        capabilities = java.jvm.java.util.HashSet()
        capabilities.add(java.sql.connector.catalog.TableCapability.MICRO_BATCH_READ)
        super().__init__(java, planner.name, schema, capabilities)
        self._planner = planner

    def newScanBuilder(self, options: object) -> _ScanBuilder:  # noqa: N802
        return _ScanBuilder(self._java, self._planner, self._schema)


class _Planned(Proxy):
    def __init__(self, java: DriverJvm, planner: TopicPlanner, schema: Any) -> None:
        super().__init__(java, planner.name)
        self._planner = planner
        self._schema = schema


class _ScanBuilder(_Planned):
    def build(self) -> _Scan:
        return _Scan(self._java, self._planner, self._schema)

    class Java:
        implements = (f"{CONNECTOR}.read.ScanBuilder",)


class _Scan(_Planned):
    def readSchema(self) -> Any:  # noqa: N802
        return self._schema

    def description(self) -> str:
        return self._name

    def toMicroBatchStream(self, checkpoint: str) -> _Stream:  # noqa: N802
        return _Stream(self._java, self._planner, self._schema)

    def supportedCustomMetrics(self) -> Any:  # noqa: N802
        return self._java.none_of("metric.CustomMetric")

    def reportDriverMetrics(self) -> Any:  # noqa: N802
        return self._java.none_of("metric.CustomTaskMetric")

    def columnarSupportMode(self) -> Any:  # noqa: N802
        return getattr(self._java.sql.connector.read, "Scan$ColumnarSupportMode").UNSUPPORTED

    class Java:
        implements = (f"{CONNECTOR}.read.Scan",)


class _Stream(_Planned):
    def _offset(self, text: str) -> Any:
        return self._java.sql.execution.streaming.SerializedOffset.apply(text)

    @reported
    def initialOffset(self) -> Any:  # noqa: N802
        return self._offset(self._planner.first())

    def deserializeOffset(self, text: str) -> Any:  # noqa: N802
        return self._offset(text)

    @reported
    def latestOffset(self, start: Any, limit: Any) -> Any:  # noqa: N802
        everything = is_instance_of(self._java.gateway, limit, f"{CONNECTOR}.read.streaming.ReadAllAvailable")
        return self._offset(self._planner.next_end(start.json(), limited=not everything))

    def reportLatestOffset(self) -> Any:  # noqa: N802
        newest = self._planner.newest()
        return None if newest is None else self._offset(newest)

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """Any limit except "all", which `Trigger.Once` requests by itself; the planner knows the actual one."""
        return self._java.sql.connector.read.streaming.ReadLimit.maxRows(2**62)

    @reported
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._planner.fix_end()

    @reported
    def planInputPartitions(self, start: Any, end: Any) -> Any:  # noqa: N802
        self._planner.begins(start.json(), end.json())
        return self._java.none_of("read.InputPartition")

    def createReaderFactory(self) -> Any:  # noqa: N802
        """One of Spark's own factories, which is never used: there are no partitions."""
        sources = self._java.sql.execution.streaming.sources
        return self._java.single(sources, "RatePerMicroBatchStreamReaderFactory")

    def metrics(self, newest: Any) -> Any:
        found = self._java.jvm.java.util.HashMap()
        for name, value in self._planner.progress().items():
            found.put(name, value)
        return found

    def commit(self, end: object) -> None:
        """Nothing: what a batch left is cleaned when the next one is on record."""

    @reported
    def stop(self) -> None:
        self._planner.stop()

    class Java:
        implements = (
            f"{CONNECTOR}.read.streaming.MicroBatchStream",
            f"{CONNECTOR}.read.streaming.SupportsTriggerAvailableNow",
            f"{CONNECTOR}.read.streaming.ReportsSourceMetrics",
        )
