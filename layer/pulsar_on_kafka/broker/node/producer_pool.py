"""The librdkafka producers of a node: one for each combination of settings, and more of them above 1,000 topics.

For each request librdkafka looks at every partition that its producer has ever sent to, and a request has the messages
of one partition. So messages to N topics through one producer cost N² looks, and they leave one after the other.
Measured, one message to each topic: 0.5 s CPU for 1,000 topics and 1.5 s for 2,000, and with eight producers 0.4 s for
2,000. A topic has one producer for as long as the node lives, which keeps the order of its messages and librdkafka's
idempotence.
"""

from __future__ import annotations

import threading
from typing import Final
from zlib import crc32

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.kafka.producer import KafkaProducer
from pulsar_on_kafka.kafka.settings import KafkaSettings

DEFAULT_LINGER_MS: Final = 1.0
_STATE_LINGER_MS: Final = 0.0
"""Linger of the state log's own producer: callers wait for its appends, and concurrent callers append in one call."""
STATE: Final = "state"

MAX_TOPICS_OF_FIRST: Final = 1_000
FURTHER_PRODUCERS: Final = 7
"""Producers for the topics after the first 1,000, each opened with its first topic. A producer has four threads on a
cluster of one broker, and one more for each further broker."""


class TopicNumbers:
    """The numbers of the producers that send to topics: 0 for the first topics, 1 to 7 for others by the hash of the
    name. Pure.

    Memory: the names of the first 1,000 topics.
    """

    def __init__(self) -> None:
        self._first: set[str] = set()

    def of(self, topic: str) -> int:
        """The producer's number, which is always the same for a topic."""
        if topic in self._first:
            return 0
        if len(self._first) < MAX_TOPICS_OF_FIRST:
            self._first.add(topic)
            return 0
        return 1 + crc32(topic.encode()) % FURTHER_PRODUCERS


class ProducerPool:
    """Thread-safe. Memory: at most eight producers for each combination of settings. The first one may hold as many
    bytes as `KafkaProducer` states, the seven others an eighth of that each."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._lock = threading.RLock()
        self._numbers: dict[tuple[str, int, str, int | None], TopicNumbers] = {}
        self._producers: dict[tuple[tuple[str, int, str, int | None], int], KafkaProducer] = {}

    def of(
        self, topic: str | None, compression: str, message_timeout_ms: int, use: str, batch_bytes: int | None
    ) -> KafkaProducer:
        """The producer with these settings for a Kafka topic; None is the first one. See `Services.producer`."""
        with self._lock:
            settings = (compression, message_timeout_ms, use, batch_bytes)
            number = 0 if topic is None else self._numbers.setdefault(settings, TopicNumbers()).of(topic)
            key = settings, number
            producer = self._producers.get(key)
            if producer is not None and producer.fatal is not None:
                producer.close(Deadline.after(0))
                producer = None
            if producer is None:
                producer = KafkaProducer(
                    self._settings.producer(
                        compression=compression,
                        message_timeout_ms=message_timeout_ms,
                        linger_ms=_STATE_LINGER_MS if use == STATE else DEFAULT_LINGER_MS,
                        batch_bytes=batch_bytes,
                        queue_share=1 if number == 0 else 1 + FURTHER_PRODUCERS,
                    ),
                    served_by_waiting=use == STATE,
                )
                producer.connect(Deadline.after(self._settings.connect_timeout_ms / 1000))
                self._producers[key] = producer
            return producer

    def give_up(self, use: str, why: errors.LayerError) -> None:
        """See `Services.give_up_producers`."""
        for ((_, _, of, _), _), producer in list(self._producers.items()):
            if of == use:
                producer.give_up(why)

    def close(self, deadline: Deadline) -> int:
        """Waits for records under way, and ends the producers. Returns the number of records without an answer."""
        return sum(producer.close(deadline) for producer in self._producers.values())
