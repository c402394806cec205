"""`read_pulsar` and `PulsarReader` read topics as a batch, as a DataFrame that runs wholly in the JVM."""

from __future__ import annotations

from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pulsar_on_kafka_spark.base.errors import SparkNotReady
from pulsar_on_kafka_spark.base.spark_session import check_session, is_connect
from pulsar_on_kafka_spark.options.read_options import parse_options
from pulsar_on_kafka_spark.reading import message_frame as frame
from pulsar_on_kafka_spark.reading.chunk_frames import looked_for
from pulsar_on_kafka_spark.reading.connection import node_of
from pulsar_on_kafka_spark.reading.named_topics import schemas_of, take_views
from pulsar_on_kafka_spark.reading.poll_limit import with_poll_limit
from pulsar_on_kafka_spark.reading.tenant_cluster import on_cluster
from pulsar_on_kafka_spark.source.data_source import NAME, register


def read_pulsar(spark: SparkSession, **options: Any) -> DataFrame:
    """The messages that a subscription's next consumer would get, or (without a subscription) all readable ones.

    The DataFrame shows the moment of this call. It acknowledges nothing, affects no consumer, and may be used any
    number of times, while Kafka keeps the records. Options: docs/spark.md.

    On a server of Spark Connect without Spark's Kafka source, the data source reads (see `register`): each query then
    takes a snapshot of its own.

    Raises:
        InvalidReadOption, SparkNotReady, NotReadable, DataLoss: see `spark.base.errors`.
    """
    checked = on_cluster(parse_options(options))
    try:
        check_session(spark)
    except SparkNotReady:
        if not is_connect(spark) or not all(isinstance(value, str | int | None) for value in options.values()):
            raise
        register(spark)
        return spark.read.format(NAME).options(**options).load()
    with node_of(checked) as node:
        views = take_views(node, checked)
        schemas = schemas_of(node, checked, [view.topic.name for view in views])
        checked = with_poll_limit(node, checked, views)
    views = [looked_for(spark, checked, view) for view in views]
    frames = [frame.of_topic(spark, checked, view, own) for view, own in zip(views, schemas, strict=True)]
    return reduce(DataFrame.unionByName, frames)


class PulsarReader:
    """The reader is the fluent form: `PulsarReader(spark).option("service.url", url).option("topic", name).load()`."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._options: dict[str, Any] = {}

    def option(self, name: str, value: object) -> PulsarReader:
        """Set one option; the last value counts."""
        self._options[name] = value
        return self

    def options(self, **options: Any) -> PulsarReader:
        """Set several."""
        self._options.update(options)
        return self

    def load(self) -> DataFrame:
        """Read as `read_pulsar` does; it raises the same errors."""
        return read_pulsar(self._spark, **self._options)
