"""The format `pulsar`, under which programs written for pulsar-spark read and write, raises an error that names the
replacement. With pulsar-spark itself on the class path, the format is pulsar-spark's."""

from __future__ import annotations

from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from pulsar_on_kafka_spark.base.errors import SparkConnectorError

FORMAT: Final = "pulsar"
_EXISTS: Final = "DATA_SOURCE_ALREADY_EXISTS"


class PulsarFormat(DataSource):
    """The data source raises the error in whatever process Spark creates it."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def __init__(self, options: dict[str, str]) -> None:
        raise SparkConnectorError(
            "the format pulsar is pulsar-spark's, which needs a Pulsar cluster: read and stream topics on Kafka with "
            "format('pulsar_on_kafka'), or with pulsar_on_kafka.spark.read_pulsar(spark, ...) and stream_pulsar(spark, "
            "...), and write with write_pulsar(df, ...); the options have the names of pulsar-spark's"
        )


def register_pulsar_format(spark: SparkSession) -> None:
    """Registers the format in this session, unless it has a source of that name. Sources of Java's win over Python's,
    also those that are added later."""
    java: Any = getattr(spark, "_jsparkSession", None)  # a session of Spark Connect has none
    if java is not None and java.sessionState().dataSourceManager().dataSourceExists(FORMAT):
        return
    try:
        spark.dataSource.register(PulsarFormat)
    except AnalysisException as refused:
        if refused.getCondition() != _EXISTS:
            raise
