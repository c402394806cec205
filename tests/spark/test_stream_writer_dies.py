"""A stream whose driver is killed again and again writes every row once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pulsar_on_kafka as pulsar
from tests.spark.test_transactional_writing import texts
from tests.steps import Unique
from tests.waiting import until

_ROOT = Path(__file__).resolve().parents[2]
_KILLS = int(os.environ.get("POK_SPARK_KILLS", "3"))
_BATCHES = 12
_ROWS = 200

_STREAM = """
import sys
import pulsar_on_kafka.spark

url, topic, inputs, checkpoint = sys.argv[1:]
settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2", "spark.log.level": "ERROR"}
spark = pulsar_on_kafka.spark.session("killed", master="local[2]", config=settings)
write = spark_connector.pulsar_batches(
    service_url=url, topic=topic, schema="bytes", transaction=True, transactionTimeout=60_000, queryName=topic[-40:]
)

def batch(rows, number):
    print(number, flush=True)
    write(rows.repartition(2), number)

stream = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(inputs)
started = stream.writeStream.foreachBatch(batch).option("checkpointLocation", checkpoint)
started.trigger(availableNow=True).start().awaitTermination()
"""


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_every_row_once(
    spark: SparkSession, client: pulsar.Client, service_url: str, unique: Unique, tmp_path: Path
) -> None:
    """`spark` is asked for only because the test needs what it needs."""
    seed = random.randrange(2**32)
    print(f"seed={seed}")
    chance = random.Random(seed)
    topic, inputs = unique(), tmp_path / "in"
    inputs.mkdir()
    for number in range(_BATCHES):
        lines = (f"{number * _ROWS + row}\n" for row in range(_ROWS))
        (inputs / f"{number:03}.txt").write_text("".join(lines))
    command = [sys.executable, "-c", _STREAM, service_url, topic, str(inputs), str(tmp_path / "checkpoint")]
    for _ in range(_KILLS):
        _run_and_kill(command, chance.randrange(1, 4), chance.uniform(0, 1.2))
    last = subprocess.run(command, env=_environment(), capture_output=True, text=True, timeout=300, check=False)
    assert last.returncode == 0, last.stderr[-2000:]
    expected = list(range(_BATCHES * _ROWS))
    until(lambda: len(texts(client, topic)) >= len(expected), "all rows to be visible")
    assert texts(client, topic) == expected


def _run_and_kill(command: list[str], batches: int, seconds: float) -> None:
    """SIGKILL to the driver and its JVM, so long after it began its so-manieth batch; one that ends before may."""
    running = subprocess.Popen(
        command,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert running.stdout is not None
    for _ in range(batches):
        if not running.stdout.readline():
            break
    threading.Event().wait(seconds)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    running.stdout.close()


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(_ROOT)}
