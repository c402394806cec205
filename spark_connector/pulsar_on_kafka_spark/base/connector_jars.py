"""The installed pyspark determines the version of Spark's Kafka source and Avro functions.

Spark's modules call each other's insides, so a source fits only the minor version of Spark that it was built for.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pyspark

from pulsar_on_kafka.embedded.jar_cache import JarSet
from pulsar_on_kafka_spark.base.errors import SparkNotReady


class Connector(NamedTuple):
    """Spark's Kafka source has this version; its POM names these versions of what Spark itself has not."""

    version: str
    kafka_clients: str
    commons_pool: str


CONNECTORS: Final = {
    "4.0": Connector("4.0.0", "3.9.0", "2.12.0"),
    "4.1": Connector("4.1.1", "3.9.1", "2.12.1"),
    "4.2": Connector("4.2.0", "3.9.2", "2.13.1"),
}
"""Connectors by minor version of pyspark: those of which source, Avro functions and token provider are all published
where this project is tested."""


def connector_of(spark: str = pyspark.__version__) -> Connector:
    """The connector for this version of pyspark.

    Raises:
        SparkNotReady: no connector is available.
    """
    found = CONNECTORS.get(".".join(spark.split(".")[:2]))
    if found is None:
        raise SparkNotReady(
            f"pyspark {spark} is installed, for which Spark's Kafka source cannot be had: expected pyspark "
            f"{', '.join(list(CONNECTORS)[:-1])} or {list(CONNECTORS)[-1]}"
        )
    return found


def package(module: str) -> str:
    """Maven coordinates of one of Spark's modules, as `spark.jars.packages` takes them. Raises as `connector_of`."""
    return f"org.apache.spark:{module}_2.13:{connector_of().version}"


class Packages(tuple[str, ...]):
    """Maven coordinates. The text of these is what a session takes: pyspark makes the value of a setting a text."""

    __slots__ = ()

    def __str__(self) -> str:
        return ",".join(self)


def packages() -> Packages:
    """The entries for `spark.jars.packages` of a session, before it is created:
    `SparkSession.builder.config("spark.jars.packages", packages())`. With further ones:
    `",".join([*packages(), "org.example:other:1.0"])`. Raises the errors of `connector_of`.
    """
    return Packages((package("spark-sql-kafka-0-10"), package("spark-avro")))


def connector_jars() -> JarSet:
    """The same as jars, with what of their dependencies Spark itself has not. Raises as `connector_of`."""
    connector = connector_of()
    return JarSet(
        name=f"spark-{connector.version}-sources",
        title=f"Spark's Kafka source and Avro functions {connector.version}",
        size_mb=10,
        alone=(
            *packages(),
            package("spark-token-provider-kafka-0-10"),
            f"org.apache.kafka:kafka-clients:{connector.kafka_clients}",
            f"org.apache.commons:commons-pool2:{connector.commons_pool}",
        ),
        fewest=5,
        otherwise="bring a session of your own that has them",
    )
