"""The data source that Spark instantiates: schema, batch reader and stream reader.

Spark calls it in Python processes beside its driver, and pickles readers for the executors. So no object here keeps a
connection that is not opened where it is used. Source: `pyspark.sql.datasource`.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pulsar_on_kafka_spark.base.errors import InvalidReadOption
from pulsar_on_kafka_spark.base.pulsar_format import register_pulsar_format
from pulsar_on_kafka_spark.options.read_options import ReadOptions
from pulsar_on_kafka_spark.source.record_batches import record_batches
from pulsar_on_kafka_spark.source.source_plans import batch_plans, columns_now, source_options
from pulsar_on_kafka_spark.source.stream_reader import stream_reader

NAME: Final = "pulsar_on_kafka"
_OF_TABLES: Final = "provider"
"""A property that Spark's catalog adds to the options of tables. Source: `TableCatalog.PROP_PROVIDER`."""


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("pulsar_on_kafka")` and `spark.readStream.format("pulsar_on_kafka")` known to a session,
    classic or of Spark Connect. `session()` does it for its own.

    The Python of driver and executors needs this package.
    """
    spark.dataSource.register(PulsarDataSource)
    register_pulsar_format(spark)


class PulsarDataSource(DataSource):
    """Topics and subscriptions as a source. Options: docs/spark.md."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Raises InvalidReadOption: it is to be a table of a catalog, which keeps no options for Python data
        sources (Spark 4.2)."""
        if _OF_TABLES in options:
            raise InvalidReadOption(
                f"CREATE TABLE ... USING {NAME} would lose its options when it is read: expected CREATE TEMPORARY VIEW "
                f"... USING {NAME} OPTIONS (...)"
            )
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        """The columns that the options name, by default the first seven of `read_options.ALL_COLUMNS`."""
        return columns_now(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _BatchReader(source_options(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return stream_reader(self.options, schema)


class _BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions, columns: StructType) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """A snapshot, each time that Spark plans a query."""
        return batch_plans(self._options, self._columns)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return record_batches(partition)
