"""Taking what a librdkafka consumer has, a batch at a time."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer


def next_batch(consumer: Consumer, limit: int, timeout_s: float) -> list[Any]:
    """Up to `limit` records, waiting for the first one only.

    `consume(limit, timeout)` alone would wait until it has all of them or the time is over.
    """
    first = consumer.poll(timeout_s)
    if first is None:
        return []
    return [first, *consumer.consume(limit - 1, 0)] if limit > 1 else [first]
