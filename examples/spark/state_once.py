"""State over two topics, by `transformWithState`: the number of each key's orders and payments becomes one row when
both have come, exactly once. Needs pyspark 4.1 or later.

    python examples/spark/state_once.py kafka://localhost:9092 orders payments /lake/settled

The partition key is the order. Spark keeps the state in RocksDB, and its changes in the checkpoint, beside the contents
of each batch. A crash repeats the last batch over the state before it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from pulsar_on_kafka.spark import session

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Settle(StatefulProcessor):
    """Counts the orders and payments of a key until both have come."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._counts = handle.getValueState("counts", "orders int, payments int")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        orders, payments = self._counts.get() or (0, 0)
        for row in rows:
            orders, payments = orders + (not row["paid"]), payments + row["paid"]
        if orders and payments:
            self._counts.clear()
            yield Row(key=key[0], orders=orders, payments=payments)
        else:
            self._counts.update((orders, payments))


def load(spark: SparkSession, service_url: str, orders: str, payments: str, lake: Path, *, most: int = 100_000) -> None:
    """Everything that the subscription `lake` of both topics has not acknowledged."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    topics = {"topics": f"{orders},{payments}", "subscription": "lake", "maxOffsetsPerTrigger": str(most)}
    messages = spark.readStream.format("pulsar_on_kafka").options(**{"service.url": service_url}, **topics).load()
    paid = f"regexp_replace(__topic, '-partition-[0-9]+$', '') LIKE '%/{payments}' AS paid"
    states = messages.selectExpr("string(__key) AS key", paid).groupBy("key")
    settled = states.transformWithState(Settle(), "key string, orders int, payments int", "Append", "None")
    writer = settled.writeStream.format("parquet").option("checkpointLocation", str(lake / "checkpoint"))
    writer.trigger(availableNow=True).start(str(lake / "table")).awaitTermination()


def main(service_url: str, orders: str, payments: str, lake: str) -> None:
    spark = session("state-once")
    load(spark, service_url, orders, payments, Path(lake))
    print(f"{spark.read.parquet(str(Path(lake) / 'table')).count()} keys are settled")


if __name__ == "__main__":
    main(*sys.argv[1:])
