"""A consumer that reads partitions of several topics, assigned by hand. Driven by exactly one thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from pulsar_on_kafka.kafka import handles
from pulsar_on_kafka.kafka.events import ErrorEvents
from pulsar_on_kafka.kafka.reading.batches import next_batch


class SeveralTopicsConsumer:
    """Reads (topic, partition) pairs from given offsets on. Commits nothing, joins nothing.

    Memory: librdkafka's fetch queue, bounded by `queued.max.messages.kbytes` of the configuration.
    """

    def __init__(self, config: dict[str, Any], what: str) -> None:
        """`what` it reads, in words, for the log."""
        self._events = ErrorEvents(f"reader of {what}")
        self._handle = Consumer({**config, "error_cb": self._events})
        handles.track(self._handle)

    def add(self, starts: Mapping[tuple[str, int], int]) -> None:
        """Read these partitions, too."""
        self._handle.incremental_assign([TopicPartition(*which, offset) for which, offset in starts.items()])

    def drop(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read these partitions no more."""
        self._handle.incremental_unassign([TopicPartition(*which) for which in partitions])

    def poll_batch(self, limit: int, timeout_s: float) -> list[Any]:
        """Records and error events, up to `limit`; waits for the first one only.

        Raises:
            NoSuchTopic: one of the topics was deleted.
        """
        batch = next_batch(self._handle, limit, timeout_s)
        if not batch and self._events.no_topic is not None:
            raise self._events.no_topic
        return batch

    def close(self) -> None:
        if handles.is_ours(self._handle):
            self._handle.close()
            handles.release(self._handle)
