"""What a subscription still holds, counted by Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

import pulsar_on_kafka.spark
from flights.data import FlightId

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
}


@dataclass(frozen=True, slots=True)
class SparkView:
    """The messages that `read_pulsar` gives."""

    flights: list[tuple[FlightId, str]]
    """(flight, carrier) of each row."""
    by_carrier: dict[str, int]
    """Counted by Spark."""


@contextmanager
def started(log: Path) -> Iterator[SparkSession]:
    """A small Spark in this program. What its JVM has to say goes to `log`.

    Raises:
        SparkNotReady: no Java of 17 or later, or the connector's jars cannot be fetched.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with _standard_error_to(log):
        spark = pulsar_on_kafka.spark.session("flights", master="local[2]", config=_SETTINGS)
    try:
        yield spark
    finally:
        spark.stop()


def remaining(spark: SparkSession, service_url: str, topic: str, subscription: str) -> SparkView:
    """What the subscription's next consumer would get. It disturbs nobody, and acknowledges nothing."""
    messages = pulsar_on_kafka.spark.read_pulsar(
        spark, service_url=service_url, topic=topic, subscription=subscription, columns="value,__key"
    )
    rows = messages.selectExpr(
        "cast(get_json_object(cast(value as string), '$.id') as bigint) as flight", "cast(__key as string) as carrier"
    )
    flights = [(row["flight"], row["carrier"]) for row in rows.collect()]
    counts = rows.groupBy("carrier").count().collect()
    return SparkView(flights, {row["carrier"]: row["count"] for row in counts})


@contextmanager
def _standard_error_to(file: Path) -> Iterator[None]:
    """The JVM that is started meanwhile keeps it."""
    sys.stderr.flush()
    kept = os.dup(2)
    with file.open("wb") as log:
        os.dup2(log.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
