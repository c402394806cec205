"""The job of examples/spark_delays.py: a topic's flights, summed up by carrier into Parquet, exactly once.

    python -m flights.delays SERVICE_URL TOPIC LAKE CHECKPOINT BATCH_SIZE [BATCH_TO_DIE_IN]

With a last argument it kills itself and its JVM with SIGKILL in that micro-batch, when the batch's file is written and
neither Spark nor the subscription knows of it yet: the worst moment.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import pulsar_on_kafka.spark
from flights.spark_view import started
from pulsar_on_kafka.schema import AvroSchema, Integer, Record, String

SUBSCRIPTION = "delays"


class Flight(Record):
    """A message. `delay`: of the departure, in minutes; None for a flight that never left."""

    id = Integer(required=True)
    carrier = String(required=True)
    month = Integer(required=True)
    delay = Integer()


SCHEMA = AvroSchema(Flight)


def sums(rows: DataFrame) -> DataFrame:
    return rows.groupBy("carrier").agg(
        F.count("*").alias("flights"), F.count("delay").alias("departed"), F.sum("delay").alias("minutes")
    )


def run(
    spark: SparkSession, service_url: str, topic: str, lake: str, checkpoint: str, most: int,
    and_then: Callable[[int], None] = lambda batch_id: None,
) -> None:  # fmt: skip
    """Everything that the subscription has not acknowledged, `most` messages at a time."""

    def batch(rows: DataFrame, batch_id: int) -> None:
        # A directory for each batch id, replaced when the batch comes again: that makes the sink idempotent.
        sums(rows).coalesce(1).write.mode("overwrite").parquet(f"{lake}/batch={batch_id}")
        print(f"batch {batch_id} is written", flush=True)
        and_then(batch_id)

    stream = pulsar_on_kafka.spark.stream_pulsar(
        spark, service_url=service_url, topic=topic, subscription=SUBSCRIPTION, maxOffsetsPerTrigger=most
    )
    stream.foreach_batch(batch, checkpoint=checkpoint, available_now=True).awaitTermination()


def main(service_url: str, topic: str, lake: str, checkpoint: str, most: str, die_in: str = "-1") -> None:
    def die(batch_id: int) -> None:
        if batch_id == int(die_in):
            os.killpg(0, signal.SIGKILL)

    with started(Path(checkpoint).with_name("job.log")) as spark:
        run(spark, service_url, topic, lake, checkpoint, int(most), die)


if __name__ == "__main__":
    main(*sys.argv[1:])
