"""Checks of sessions: their kind, and whether they have the connector's jars."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import from_avro

from pulsar_on_kafka_spark.base.connector_jars import packages
from pulsar_on_kafka_spark.base.errors import SparkNotReady

_NEEDS: Final = {"kafka": "Spark's Kafka source", "avro": "Spark's Avro functions"}


def is_connect(spark: SparkSession) -> bool:
    """Whether the session is one of Spark Connect: the program has a plan's parts by name, and no JVM."""
    return not hasattr(spark, "_jsparkSession")


def require_classic(spark: SparkSession, what: str, instead: str = "a classic SparkSession") -> None:
    """Raises SparkNotReady, which says that `what` needs the session's JVM, if it is one of Spark Connect."""
    if is_connect(spark):
        raise SparkNotReady(f"{what}, and a session of Spark Connect has none: expected {instead}")


def check_session(spark: SparkSession, *needed: str) -> None:
    """Raises SparkNotReady unless the session has Spark's Kafka source, and what else is `needed` (`avro`).

    Changes nothing of the session.
    """
    for name in ("kafka", *needed):
        try:
            (_query_server if is_connect(spark) else _look_up)(spark, name)
        except (Py4JJavaError, PySparkException) as failure:
            kafka, avro = packages()
            raise SparkNotReady(
                f"{_NEEDS[name]} is not on the session's class path: set spark.jars.packages to {kafka},{avro} "
                f"({avro if name == 'avro' else kafka} is missing) before the session is made, by "
                '.config("spark.jars.packages", packages()), or use pulsar_on_kafka.spark.session()'
            ) from failure


@lru_cache(maxsize=4)
def _look_up(spark: SparkSession, name: str) -> None:
    untyped: Any = spark
    lookup = untyped._jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource
    lookup(name, untyped._jsparkSession.sessionState().conf())


def _query_server(spark: SparkSession, name: str) -> None:
    """Lets the server analyse a query that needs the function, without running it."""
    if name == "avro":
        requested = spark.range(0).select(from_avro(F.lit(None).cast("binary"), '"int"'))
    else:
        requested = spark.read.format("kafka").options(**{"kafka.bootstrap.servers": "none:1", "assign": "{}"}).load()
    requested.schema  # noqa: B018 - requests the analysis
