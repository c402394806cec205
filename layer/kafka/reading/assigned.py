"""A consumer that is assigned by hand, outside of any group. Driven by exactly one thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.kafka import handles
from pulsar_on_kafka.kafka.errors import is_no_such_topic, translate
from pulsar_on_kafka.kafka.events import ErrorEvents
from pulsar_on_kafka.kafka.reading.batches import next_batch

_OUT_OF_RANGE = (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)


class AssignedConsumer:
    """Reads partitions of one topic from given offsets on. Commits nothing, joins nothing.

    Memory: librdkafka's fetch queue, bounded by `queued.max.messages.kbytes` of the configuration.
    """

    def __init__(self, config: dict[str, Any], topic: str) -> None:
        self._topic = topic
        self._events = ErrorEvents(f"reader of {topic}")
        self._handle = Consumer({**config, "error_cb": self._events})
        handles.track(self._handle)

    def add(self, starts: Mapping[int, int]) -> None:
        """Read these partitions, too."""
        self._handle.incremental_assign([TopicPartition(self._topic, p, offset) for p, offset in starts.items()])

    def drop(self, partitions: Iterable[int]) -> None:
        """Read these partitions no more."""
        self._handle.incremental_unassign([TopicPartition(self._topic, partition) for partition in partitions])

    def seek(self, offsets: Mapping[int, int]) -> None:
        """Go on at other offsets of partitions that are being read; what was fetched ahead is dropped."""
        self.drop(offsets)
        self.add(offsets)

    def pause(self, partition: int) -> None:
        """Stop fetching; what was fetched ahead is dropped."""
        self._handle.pause([TopicPartition(self._topic, partition)])

    def resume(self, partition: int) -> None:
        self._handle.resume([TopicPartition(self._topic, partition)])

    def poll_batch(self, limit: int, timeout_s: float) -> list[Any]:
        """Records and error events, up to `limit`; waits for the first one only.

        Raises:
            NoSuchTopic: the topic was deleted, and nothing of it is left here.
        """
        batch = next_batch(self._handle, limit, timeout_s)
        if not batch and self._events.no_topic is not None:
            raise self._events.no_topic
        return batch

    def watermarks(self, partition: int, timeout_s: float) -> tuple[int, int]:
        """(log start, high watermark) as the leader says now."""
        try:
            low, high = self._handle.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=timeout_s)
        except KafkaException as failure:
            raise translate(failure, f"asking for the end of {self._topic}-{partition}") from failure
        return low, high

    def known_end(self, partition: int) -> int:
        """The high watermark as it came with the last fetch; -1 before the first. Costs no request."""
        _, high = self._handle.get_watermark_offsets(TopicPartition(self._topic, partition), cached=True)
        return int(high) if high >= 0 else -1

    def close(self) -> None:
        if handles.is_ours(self._handle):
            self._handle.close()
            handles.release(self._handle)


def end_reached(error: KafkaError) -> bool:
    """The event that says: the position is the partition's end now."""
    return error.code() == KafkaError._PARTITION_EOF


def is_offset_out_of_range(error: KafkaError) -> bool:
    return error.code() in _OUT_OF_RANGE


def is_final(error: KafkaError) -> bool:
    """Reading on is of no use."""
    return is_no_such_topic(error) or error.fatal() or error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def failure_of(error: KafkaError, what: str) -> errors.LayerError:
    return translate(error, what)
