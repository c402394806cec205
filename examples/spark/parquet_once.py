"""A stream loads messages into Parquet files exactly once, with a manifest that says which files count.

    python examples/spark/parquet_once.py kafka://localhost:9092 orders /lake/orders

A batch's files go to a directory of that attempt. Then one file in `manifest/`, named by the batch's number, says
which they are: it is written aside and renamed, so that a reader sees all of a batch or nothing. A batch that runs
again after a crash writes other files, and replaces its manifest by one with the same rows; what no manifest names is
rubbish. The checkpoint lies beside them and goes with them: numbers of batches are its own. This is what Delta and
Iceberg do, without their jars.
"""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from pulsar_on_kafka.spark import session, stream_pulsar


def load(spark: SparkSession, service_url: str, topic: str, lake: Path, *, most: int = 100_000) -> None:
    """Everything that the subscription `lake` has not acknowledged, in batches of at most so many messages."""

    def write(rows: DataFrame, batch_id: int) -> None:
        files = lake / "data" / f"{batch_id}-{uuid.uuid4().hex}"
        rows.write.parquet(str(files))
        commit(lake, batch_id, [str(file.relative_to(lake)) for file in sorted(files.glob("*.parquet"))])

    stream = stream_pulsar(
        spark, service_url=service_url, topic=topic, subscription="lake", maxOffsetsPerTrigger=most,
        columns="value,__key,__messageId,__publishTime",
    )  # fmt: skip
    stream.foreach_batch(write, checkpoint=str(lake / "checkpoint"), available_now=True).awaitTermination()


def commit(lake: Path, batch_id: int, files: list[str]) -> None:
    manifest = lake / "manifest" / f"{batch_id}.json"
    manifest.parent.mkdir(parents=True, exist_ok=True)
    aside = manifest.with_suffix(".partial")
    aside.write_text(json.dumps(files), encoding="utf-8")
    aside.replace(manifest)


def table(spark: SparkSession, lake: Path) -> DataFrame:
    """The rows of all batches that are committed."""
    manifests = sorted((lake / "manifest").glob("*.json"))
    files = [str(lake / file) for each in manifests for file in json.loads(each.read_text(encoding="utf-8"))]
    return spark.read.parquet(*files)


def main(service_url: str, topic: str, lake: str) -> None:
    spark = session("parquet-once")
    load(spark, service_url, topic, Path(lake))
    print(f"{table(spark, Path(lake)).count()} rows are in {lake}")


if __name__ == "__main__":
    main(*sys.argv[1:])
