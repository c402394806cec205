"""A program with a stream, to be killed: `python -m tests.spark.stream_program '{"url": ..., "die": "planned", ...}'`.

It takes everything that there is (`availableNow`), in batches of a few dozen; in even batches it refuses every seventh
number, unless `refuse` is false. `die` names the step at which it kills itself and its JVM, in the batch number
`die_in` of this run.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, cast

from pyspark.sql import DataFrame

import pulsar_on_kafka.spark
from pulsar_on_kafka.spark import BatchContext, stream_pulsar
from pulsar_on_kafka_spark.streaming import stream
from pulsar_on_kafka_spark.streaming.stream import CheckpointFiles
from tests.spark.conftest import MASTER, SETTINGS
from tests.spark.streams import Sink

STEPS = ("planned", "sunk", "decided", "acknowledged")
"""The plan is written; `fn` is done; the outcome is written; the acknowledgements are durable."""


class _Deaths:
    def __init__(self, step: str, batch: int) -> None:
        self._step = step
        self._left = dict.fromkeys(STEPS, batch)

    def at(self, step: str) -> None:
        """Ends the process at its step, the so-many-eth time."""
        self._left[step] -= 1
        if step == self._step and self._left[step] < 0:
            os.killpg(0, signal.SIGKILL)


def main(said: dict[str, Any]) -> None:
    deaths = _Deaths(said.get("die", ""), said.get("die_in", 0))
    sink = Sink(Path(said["directory"]) / "sink")
    files, steps = cast("Any", CheckpointFiles), cast("Any", stream)
    write, acknowledge = files.write, steps.acknowledge_entries

    def written(self: CheckpointFiles, name: str, content: bytes) -> None:
        write(self, name, content)
        deaths.at("planned" if name.endswith("plan") else "decided")

    def acknowledged(*arguments: Any) -> None:
        acknowledge(*arguments)
        deaths.at("acknowledged")

    def batch(df: DataFrame, batch_id: int, context: BatchContext) -> None:
        print(f"batch {batch_id}", flush=True)
        number = "cast(cast(value as string) as int)"
        refused = f"{number} % 7 = 0" if said.get("refuse", True) and batch_id % 2 == 0 else "false"
        context.negative_acknowledge(df.where(refused))
        sink.write(df.where(f"not ({refused})"), batch_id)
        deaths.at("sunk")

    files.write, steps.acknowledge_entries = written, acknowledged
    spark = pulsar_on_kafka.spark.session("stream", master=MASTER, config=SETTINGS)
    spark.sparkContext.setLogLevel("ERROR")
    query = stream_pulsar(
        spark, service_url=said["url"], topic=said["topic"], subscription="s", maxOffsetsPerTrigger=said["most"]
    ).foreach_batch(batch, checkpoint=str(Path(said["directory"]) / "checkpoint"), available_now=True)
    print("started", flush=True)
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
