"""A join of two topics as streams: each paid order becomes one row of a table, exactly once.

    python examples/spark/join_once.py kafka://localhost:9092 orders payments /lake/paid

The topics' schemas have the fields `order` and `at`, a Unix time in seconds. A payment counts within a day of its
order, and watermarks let Spark forget older orders. The rows that wait for their partner are in Spark's checkpoint. So
their messages may be acknowledged, and a crash loses nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pulsar_on_kafka.spark import session


def load(spark: SparkSession, service_url: str, orders: str, payments: str, lake: Path, *, most: int = 100_000) -> None:
    """Everything that the subscription `lake` of both topics has not acknowledged."""

    def events(topic: str, prefix: str) -> DataFrame:
        options = {"service.url": service_url, "topic": topic, "subscription": "lake"}
        limited = {**options, "maxOffsetsPerTrigger": str(most)}
        messages = spark.readStream.format("pulsar_on_kafka").options(**limited).load()
        rows = messages.selectExpr(f"`order` AS {prefix}_id", f"timestamp_seconds(at) AS {prefix}_at")
        return rows.withWatermark(f"{prefix}_at", "1 day")

    within = "payment_id = order_id AND payment_at BETWEEN order_at AND order_at + INTERVAL 1 DAY"
    paid = events(orders, "order").join(events(payments, "payment"), F.expr(within))
    writer = paid.select("order_id", "order_at", "payment_at").writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(lake / "checkpoint")).trigger(availableNow=True)
    writer.start(str(lake / "table")).awaitTermination()


def main(service_url: str, orders: str, payments: str, lake: str) -> None:
    spark = session("join-once")
    load(spark, service_url, orders, payments, Path(lake))
    print(f"{spark.read.parquet(str(Path(lake) / 'table')).count()} orders are paid")


if __name__ == "__main__":
    main(*sys.argv[1:])
