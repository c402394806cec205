"""A streaming source without rows, in Python, has Spark's triggers, offsets, checkpoint and progress for what this
process plans itself.

Spark calls these objects in the driver's JVM; py4j brings the calls here, as it does those of `foreachBatch`. The
source has no rows and no partitions, so nothing of it reaches an executor; what a micro-batch reads is the caller's
business. A Python data source would run in another process, would not hear where the last batch ended, and has no rate
limits (its `availableNow` is one batch). Written against the interfaces of Spark 4.0, `org.apache.spark.sql.connector`.

py4j asks Python also for what Java has defaults of; so every method of an interface is here.
"""

from __future__ import annotations

import logging
from typing import Any

from py4j.java_gateway import is_instance_of
from pyspark import java_gateway
from pyspark.sql import DataFrame, SparkSession

from pulsar_on_kafka.spark.streaming.stream_planner import TopicPlanner

_log = logging.getLogger(__name__)

_CONNECTOR = "org.apache.spark.sql.connector"
_DDL = "entries BIGINT"
_callbacks: Any = java_gateway.ensure_callback_server_started


def control_frame(spark: SparkSession, planner: TopicPlanner) -> DataFrame:
    """A streaming DataFrame without rows that has a micro-batch whenever the planner says so."""
    context: Any = spark.sparkContext
    gateway = context._gateway
    _callbacks(gateway)
    jvm: Any = spark._jvm
    java = _Java(gateway, jvm)
    table = _Table(java, planner)
    none = getattr(jvm.scala, "None$").__getattr__("MODULE$")
    options = jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap(jvm.java.util.HashMap())
    columns = jvm.org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes(java.schema)
    relation = jvm.org.apache.spark.sql.catalyst.streaming.StreamingRelationV2(
        none, planner.name, table, options, columns, none, none, none
    )
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, relation), spark)


def count_rows(spark: SparkSession, rows: int) -> None:
    """Have the progress of the micro-batch under way say that it read so many rows. Within `foreachBatch` only."""
    query: Any = spark.streams.get(spark.sparkContext.getLocalProperty("sql.streaming.queryId") or "")
    if query is None:
        return
    execution = query._jsq.streamingQuery().lastExecution()
    leaves = execution.executedPlan().collectLeaves()
    if leaves.size():
        leaves.apply(0).metrics().apply("numOutputRows").add(rows)


class _Java:
    def __init__(self, gateway: Any, jvm: Any) -> None:
        self.gateway = gateway
        self.jvm = jvm
        self.schema = jvm.org.apache.spark.sql.types.StructType.fromDDL(_DDL)

    def none_of(self, name: str) -> Any:
        """An empty array."""
        kind = self.jvm
        for part in f"{_CONNECTOR}.{name}".split("."):
            kind = getattr(kind, part)
        return self.gateway.new_array(kind, 0)

    def offset(self, text: str) -> Any:
        return self.jvm.org.apache.spark.sql.execution.streaming.SerializedOffset(text)


class _Proxy:
    def __init__(self, java: _Java, planner: TopicPlanner) -> None:
        self._java = java
        self._planner = planner

    def hashCode(self) -> int:  # noqa: N802 - Java's names
        return hash(self._planner.name) & 0x7FFF_FFFF

    def equals(self, other: object) -> bool:
        return other is self

    def toString(self) -> str:  # noqa: N802
        return self._planner.name


class _Table(_Proxy):
    def name(self) -> str:
        return self._planner.name

    def schema(self) -> Any:
        return self._java.schema

    def columns(self) -> Any:
        return self._java.jvm.org.apache.spark.sql.connector.catalog.CatalogV2Util.structTypeToV2Columns(
            self._java.schema
        )

    def partitioning(self) -> Any:
        return self._java.none_of("expressions.Transform")

    def properties(self) -> Any:
        return self._java.jvm.java.util.HashMap()

    def capabilities(self) -> Any:
        found = self._java.jvm.java.util.HashSet()
        found.add(self._java.jvm.org.apache.spark.sql.connector.catalog.TableCapability.MICRO_BATCH_READ)
        return found

    def newScanBuilder(self, options: object) -> _ScanBuilder:  # noqa: N802
        return _ScanBuilder(self._java, self._planner)

    class Java:
        implements = (f"{_CONNECTOR}.catalog.SupportsRead",)


class _ScanBuilder(_Proxy):
    def build(self) -> _Scan:
        return _Scan(self._java, self._planner)

    class Java:
        implements = (f"{_CONNECTOR}.read.ScanBuilder",)


class _Scan(_Proxy):
    def readSchema(self) -> Any:  # noqa: N802
        return self._java.schema

    def description(self) -> str:
        return self._planner.name

    def toMicroBatchStream(self, checkpoint: str) -> _Stream:  # noqa: N802
        return _Stream(self._java, self._planner)

    def supportedCustomMetrics(self) -> Any:  # noqa: N802
        return self._java.none_of("metric.CustomMetric")

    def reportDriverMetrics(self) -> Any:  # noqa: N802
        return self._java.none_of("metric.CustomTaskMetric")

    def columnarSupportMode(self) -> Any:  # noqa: N802
        return getattr(self._java.jvm.org.apache.spark.sql.connector.read, "Scan$ColumnarSupportMode").UNSUPPORTED

    class Java:
        implements = (f"{_CONNECTOR}.read.Scan",)


class _Stream(_Proxy):
    def initialOffset(self) -> Any:  # noqa: N802
        return self._java.offset(self._planner.first())

    def deserializeOffset(self, text: str) -> Any:  # noqa: N802
        return self._java.offset(text)

    def latestOffset(self, start: Any, limit: Any) -> Any:  # noqa: N802
        everything = is_instance_of(self._java.gateway, limit, f"{_CONNECTOR}.read.streaming.ReadAllAvailable")
        return self._java.offset(self._planner.next_end(start.json(), limited=not everything))

    def reportLatestOffset(self) -> Any:  # noqa: N802
        newest = self._planner.newest()
        return None if newest is None else self._java.offset(newest)

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """Any limit but "all", which `Trigger.Once` asks for by itself; which one it is the planner knows."""
        return self._java.jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit.maxRows(2**62)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._planner.fix_end()

    def planInputPartitions(self, start: Any, end: Any) -> Any:  # noqa: N802
        self._planner.begins(start.json(), end.json())
        return self._java.none_of("read.InputPartition")

    def createReaderFactory(self) -> Any:  # noqa: N802
        """One of Spark's own, which nobody uses: there are no partitions."""
        sources = self._java.jvm.org.apache.spark.sql.execution.streaming.sources
        return getattr(sources, "RatePerMicroBatchStreamReaderFactory$").__getattr__("MODULE$")

    def metrics(self, newest: Any) -> Any:
        found = self._java.jvm.java.util.HashMap()
        for name, value in self._planner.progress().items():
            found.put(name, value)
        return found

    def commit(self, end: object) -> None:
        """Nothing: what a batch left is cleaned when the next one is on record."""

    def stop(self) -> None:
        self._planner.stop()

    class Java:
        implements = (
            f"{_CONNECTOR}.read.streaming.MicroBatchStream",
            f"{_CONNECTOR}.read.streaming.SupportsTriggerAvailableNow",
            f"{_CONNECTOR}.read.streaming.ReportsSourceMetrics",
        )
