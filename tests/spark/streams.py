"""Tests of streams share a sink that is idempotent by batch id, and one run of a stream."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.spark import stream_pulsar
from tests.steps import SHARED

SILENCE_MS = 1_500
PATIENCE_MS = 30_000
BRIEFLY_MS = 600


class Sink:
    """A directory with one file for each batch id; a batch that comes again replaces its file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def write(self, df: DataFrame, batch_id: int) -> None:
        rows = [bytes(row["value"]).decode() for row in df.select("value").collect()]
        part = self.directory / f".{batch_id}"
        part.write_text(json.dumps(rows))
        part.rename(self.directory / f"{batch_id}.json")

    def batches(self) -> dict[int, list[int]]:
        """Values, which are numbers, by batch."""
        found = {
            int(path.stem): sorted(map(int, json.loads(path.read_text()))) for path in self.directory.glob("*.json")
        }
        return dict(sorted(found.items()))

    def values(self) -> Counter[int]:
        return Counter(value for values in self.batches().values() for value in values)


class Stream:
    """One stream with its checkpoint and its sink, run again and again."""

    def __init__(self, spark: SparkSession, url: str, topic: str, directory: Path, **options: Any) -> None:
        self.spark = spark
        self.sink = Sink(directory / "sink")
        self.checkpoint = str(directory / "checkpoint")
        self.options = {"service_url": url, "topic": topic, "subscription": "s", **options}

    def start(self, fn: Callable[..., object] | None = None, **trigger: Any) -> StreamingQuery:
        stream = stream_pulsar(self.spark, **self.options)
        return stream.foreach_batch(fn or self.sink.write, checkpoint=self.checkpoint, **trigger)

    def run(self, fn: Callable[..., object] | None = None, **options: Any) -> StreamingQuery:
        """Everything that there is now (`availableNow`)."""
        self.options.update(options)
        query = self.start(fn, available_now=True)
        query.awaitTermination()
        return query


def produce(client: pulsar.Client, topic: str, numbers: range, **options: Any) -> None:
    producer = client.create_producer(topic, block_if_queue_full=True, **options)
    for number in numbers:
        producer.send_async(str(number).encode(), None)
    producer.flush()
    producer.close()


def rest(client: pulsar.Client, topic: str, count: int | None = None) -> list[int]:
    """What a fresh consumer receives; it acknowledges nothing. `count`: how many are expected, which saves waiting for
    an end of what comes."""
    consumer = client.subscribe(topic, "s", consumer_type=SHARED)
    found = receive_all(consumer, count)
    consumer.close()
    return sorted(int(message.data()) for message in found)


def receive_all(consumer: pulsar.Consumer, count: int | None = None) -> list[pulsar.Message]:
    """What comes until nothing more does. `count`: how many are expected, for which a slow machine has its time."""
    found: list[pulsar.Message] = []
    while True:
        patience_ms = SILENCE_MS if count is None else PATIENCE_MS if len(found) < count else BRIEFLY_MS
        try:
            found.append(consumer.receive(patience_ms))
        except pulsar.Timeout:
            return found
