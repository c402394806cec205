"""Checks that the Kafka topics which a process reads are still the same ones: librdkafka reads on in a topic that was
deleted and made anew, as if nothing had happened."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeAlias

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.kafka.records import TopicDescription

_log: Final = logging.getLogger(__name__)

Describe: TypeAlias = Callable[[str, Deadline], TopicDescription | None]
"""Describes a Kafka topic; None for a missing one. Those of several threads at a time share a request."""

CHECK_READ_S: Final = 0.1
"""The interval between two checks while records arrive. After a topic's deletion a broker rejects the next fetch, and
librdkafka waits for as long before it fetches again (`fetch.error.backoff.ms`). So records within this time after a
check are of the checked topic."""
CHECK_CONSUMER_S: Final = 1.0
"""The same for consumers: what they acknowledge of another incarnation changes nothing."""
_CHECK_IDLE_S: Final = 10.0
_TIMEOUT_S: Final = 2.0


class IncarnationChecks:
    """The checks of one process. Thread-safe."""

    def __init__(self, describe: Describe, monotonic: Callable[[], float]) -> None:
        self._describe = describe
        self.monotonic = monotonic

    def check(self, topic: Topic, deadline: Deadline) -> None:
        """Raises NoSuchTopic when another Kafka topic has its name; librdkafka reports a missing one. Other
        LayerErrors: it is not known."""
        described = self._describe(topic.kafka_topic, deadline)
        if described is not None and described.topic_id != topic.kafka_topic_id:
            raise errors.NoSuchTopic(f"topic {topic.name} was deleted and made anew")


class IncarnationCheck:
    """The checks of one topic, for one thread that reads it."""

    def __init__(self, checks: IncarnationChecks, topic: Topic, every_s: float = CHECK_READ_S) -> None:
        """`every_s`: between two checks while records come."""
        self._checks = checks
        self._topic = topic
        self._every_s = every_s
        self._begun_s = checks.monotonic()

    def before_delivery(self) -> None:
        """Return when records that came up to now are of this incarnation. Raises NoSuchTopic."""
        self._check_after(self._every_s)

    @property
    def due_s(self) -> float:
        """The time of the next look by `while_idle`, on the monotonic clock."""
        return self._begun_s + _CHECK_IDLE_S

    def while_idle(self) -> None:
        """Look now and then whether the topic is still there. Raises NoSuchTopic."""
        self._check_after(_CHECK_IDLE_S)

    def now(self, deadline: Deadline) -> None:
        """Raises NoSuchTopic, and other LayerErrors where it is not known."""
        self._checks.check(self._topic, deadline)

    def _check_after(self, seconds: float) -> None:
        begun_s = self._checks.monotonic()
        if begun_s - self._begun_s < seconds:
            return
        self._begun_s = begun_s
        try:
            self.now(Deadline.after(_TIMEOUT_S))
        except errors.StoreError as failure:  # what is at hand was read before the brokers stopped answering
            self._begun_s = begun_s + _CHECK_IDLE_S
            _log.info("topic=%s it is not known whether it is still the same: %s", self._topic.name, failure)
