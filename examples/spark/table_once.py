"""A stream loads messages into a table exactly once: Parquet files, or Delta.

    python examples/spark/table_once.py kafka://localhost:9092 orders /lake/orders [delta]

Spark's file sink and Delta's sink record each batch with the table's commit, and skip a batch that is repeated after a
crash. Spark's checkpoint has the contents of each batch, so a repeated one has the same rows. The subscription's
messages are acknowledged after the table's commit. So the backlog is never less than what the table lacks.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from pulsar_on_kafka.spark import session

DELTA = {
    "spark.jars.packages": "io.delta:delta-spark_2.13:4.2.0",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def load(
    spark: SparkSession, service_url: str, topic: str, lake: Path, form: str = "parquet", *, most: int = 100_000
) -> None:
    """Everything that the subscription `lake` has not acknowledged, in batches of at most so many messages."""
    options = {"service.url": service_url, "topic": topic, "subscription": "lake"}
    limited = {**options, "columns": "value,__key,__publishTime", "maxOffsetsPerTrigger": str(most)}
    messages = spark.readStream.format("pulsar_on_kafka").options(**limited).load()
    writer = messages.writeStream.format(form).option("checkpointLocation", str(lake / "checkpoint"))
    writer.trigger(availableNow=True).start(str(lake / "table")).awaitTermination()


def main(service_url: str, topic: str, lake: str, form: str = "parquet") -> None:
    spark = session("table-once", config=DELTA if form == "delta" else None)
    load(spark, service_url, topic, Path(lake), form)
    print(f"{spark.read.format(form).load(str(Path(lake) / 'table')).count()} rows are in {lake}/table")


if __name__ == "__main__":
    main(*sys.argv[1:])
