"""Publish every flight, without waiting for each answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import pulsar_on_kafka as pulsar
from flights.data import FlightId


@dataclass(slots=True)
class Published:
    """What Kafka has answered."""

    partitions: list[list[FlightId]]
    """The flights of each partition in the order they lie there."""
    failures: list[tuple[FlightId, pulsar.Result]] = field(default_factory=list)
    seconds: float = 0.0

    def count(self) -> int:
        return sum(map(len, self.partitions))

    def stored(self, flight_id: FlightId, result: pulsar.Result, message_id: pulsar.MessageId | None) -> None:
        """The callback of `send_async`. Answers come in the order of each partition."""
        if result != pulsar.Result.Ok or message_id is None:
            self.failures.append((flight_id, result))
        else:
            self.partitions[message_id.partition()].append(flight_id)


def publish(
    client: pulsar.Client,
    topic: str,
    messages: Iterable[tuple[FlightId, str, bytes]],
    progress: Callable[[int], None],
) -> Published:
    """Send all messages and wait until each is stored. `progress` is told now and then how many are."""
    published = Published([[] for _ in client.get_topic_partitions(topic)])
    started = time.monotonic()
    producer = client.create_producer(
        topic,
        block_if_queue_full=True,
        max_pending_messages=10_000,
        compression_type=pulsar.CompressionType.LZ4,
    )
    for number, (flight_id, carrier, line) in enumerate(messages):
        # The key decides the partition: the flights of one carrier stay in order.
        producer.send_async(line, partial(published.stored, flight_id), partition_key=carrier)
        if number % 2_000 == 0:
            progress(published.count())
    producer.flush()
    published.seconds = time.monotonic() - started
    progress(published.count())
    producer.close()
    return published
