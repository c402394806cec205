"""A stream loads messages that are values of the topic's schema, and writes all others to the dead letter topic.

    python examples/spark/dead_letters.py kafka://localhost:9092 orders /lake/orders

With PERMISSIVE an undecodable message has nulls, and its payload in `__corruptRecord`. A repeated batch replaces its
files. `dead_letter` writes no second letter for a message that it acknowledged. `pok dlq list orders` shows the
letters, and `pok dlq redrive` puts them back.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from pulsar_on_kafka.spark import dead_letter, session


def load(spark: SparkSession, service_url: str, topic: str, lake: Path, *, most: int = 100_000) -> int:
    """Everything that the subscription `lake` has not acknowledged; gives the number of letters."""
    where = {"service.url": service_url, "topic": topic, "subscription": "lake"}
    written = []

    def write(rows: DataFrame, batch_id: int) -> None:
        rows.persist()
        good = rows.where("__corruptRecord IS NULL").drop("__corruptRecord", "__messageId")
        good.write.mode("overwrite").parquet(str(lake / "table" / f"batch={batch_id}"))
        bad = rows.where("__corruptRecord IS NOT NULL")
        written.append(dead_letter(bad, **where, reason="no value of the schema"))
        rows.unpersist()

    read = {"mode": "PERMISSIVE", "columns": "value,__corruptRecord,__messageId", "maxOffsetsPerTrigger": str(most)}
    messages = spark.readStream.format("pulsar_on_kafka").options(**where, **read).load()
    writer = messages.writeStream.foreachBatch(write).option("checkpointLocation", str(lake / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    return sum(written)


def main(service_url: str, topic: str, lake: str) -> None:
    spark = session("dead-letters")
    letters = load(spark, service_url, topic, Path(lake))
    print(f"{spark.read.parquet(str(Path(lake) / 'table')).count()} orders are loaded, {letters} letters are written")


if __name__ == "__main__":
    main(*sys.argv[1:])
