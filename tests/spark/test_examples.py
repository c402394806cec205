"""The demo's step that Spark counts; and the example of a stream, on a small sample."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pulsar_on_kafka as pulsar
from tests.integration.sdk_support import receive
from tests.spark.streams import SHARED

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_what_the_demo_leaves_is_counted(
    spark: SparkSession,
    client: pulsar.Client,
    service_url: str,
    unique: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("pandas")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from flights.spark_view import SparkView, remaining

    topic = unique()
    consumer = client.subscribe(topic, "s", consumer_type=SHARED)
    producer = client.create_producer(topic)
    for number in range(30):
        carrier = "UA" if number % 3 else "AA"
        producer.send(json.dumps({"id": number, "carrier": carrier}).encode(), partition_key=carrier)
    for message in receive(consumer, 30):
        if json.loads(message.data())["id"] not in (3, 4, 5):
            consumer.acknowledge(message)
    consumer.close()
    found = remaining(spark, service_url, topic, "s")
    assert found == SparkView([(3, "AA"), (4, "UA"), (5, "UA")], {"AA": 1, "UA": 2})


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_delays_are_summed_up_once_in_spite_of_a_kill(bootstrap: str, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    picture = tmp_path / "delays.png"
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "spark_delays.py"), "--flights", "20000", "--png", str(picture)],
        env={**os.environ, "POK_BOOTSTRAP": bootstrap},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "killed with -9 in batch 2" in done.stdout
    assert "Exactly once" in done.stdout
    assert picture.stat().st_size > 10_000
