"""A stream refuses what it cannot load: these messages stay on the subscription, and come again.

    python examples/spark/refusals.py kafka://localhost:9092 orders /lake/orders

Orders of customers that the list does not know (yet) are refused, the others are loaded, in the same batch. When the
list has grown, the next run loads the rest, and nothing twice. Until then `pok subscriptions show orders -s loader`
shows them as holes, and any consumer of the subscription would get them.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pulsar_on_kafka.spark import BatchContext, session, stream_pulsar


def load(spark: SparkSession, service_url: str, topic: str, lake: Path, customers: Collection[str]) -> None:
    """What has come since the last run, and what was refused then."""

    def write(rows: DataFrame, batch_id: int, context: BatchContext) -> None:
        known = F.coalesce(F.col("__key").cast("string").isin(*customers), F.lit(False))
        rows.where(known).write.mode("overwrite").parquet(str(lake / f"batch={batch_id}"))
        context.negative_acknowledge(rows.where(~known))

    stream = stream_pulsar(
        spark, service_url=service_url, topic=topic, subscription="loader", columns="value,__key,__messageId"
    )
    checkpoint = str(lake.with_suffix(".checkpoint"))
    stream.foreach_batch(write, checkpoint=checkpoint, available_now=True).awaitTermination()


def main(service_url: str, topic: str, lake: str, *customers: str) -> None:
    spark = session("refusals")
    load(spark, service_url, topic, Path(lake), customers)
    print(f"{spark.read.parquet(lake).count()} orders are loaded")


if __name__ == "__main__":
    main(*sys.argv[1:])
