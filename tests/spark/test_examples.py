"""The demo's step that Spark counts; and the example of a stream, on a small sample."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pulsar_on_kafka as pulsar
from tests.programs import run_example
from tests.steps import SHARED, Unique, receive

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_what_the_demo_leaves_is_counted(
    spark: SparkSession,
    client: pulsar.Client,
    service_url: str,
    unique: Unique,
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
    said = run_example(
        "spark_delays.py", "--flights", "20000", "--png", str(picture), timeout_s=500, bootstrap=bootstrap
    )
    assert "killed with -9 in batch 2" in said
    assert "Exactly once" in said
    assert picture.stat().st_size > 10_000
