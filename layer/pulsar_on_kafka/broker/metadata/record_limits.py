"""Kafka's configuration of a data topic limits its records: the records under a key, and the number in a batch.

Where `cleanup.policy` has `compact`, Kafka keeps the newest record of each key. So a record must be one whole message
under a partition key of its own: every writer of data topics checks that with `RecordLimits`.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.kafka.admin import KafkaAdmin, is_compacted
from pulsar_on_kafka.kafka.settings import FRAMING_BYTES

_log: Final = logging.getLogger(__name__)

USUAL_BATCH_BYTES: Final = 1_000_000
"""librdkafka's default `batch.size`."""
KNOWN_S: Final = 10.0
"""Producers of a topic that are opened within this time share one look at its configuration."""
MAX_KNOWN: Final = 10_000
"""Topics whose configuration is remembered."""

CHUNKS: Final = "the chunks of a message would replace each other"
IN_TRANSACTION: Final = "a message of an aborted transaction would replace the committed one of its key"
BATCH: Final = "the next record with the key of a batch would replace all of its messages"
NO_KEY: Final = "a message needs a partition key"
EACH_ALONE: Final = (
    "producers send each message in a record of its own and under a partition key, and neither in chunks nor in "
    "transactions"
)
COPIES: Final = "copies may be batches, chunks or messages without a key"


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """The limits of one Kafka topic."""

    kafka_topic: str
    compacted: bool = False
    """Kafka keeps the newest record of each key: a record must be one whole message with a key."""
    batch_bytes: int | None = None
    """Kafka refuses larger record batches; None where librdkafka's usual ones fit."""

    def why(self, reason: str) -> str:
        """The words of a refusal."""
        return f"Kafka topic {self.kafka_topic} has cleanup.policy=compact: {reason}"

    def refuse(self, reason: str) -> None:
        """Raises Refused where the topic is compacted."""
        if self.compacted:
            raise errors.Refused(self.why(reason))

    def check(self, *, has_key: bool, messages: int = 1, chunks: int = 1, in_transaction: bool = False) -> None:
        """Judge a record: whether it has a partition key, how many messages it holds, and of how many chunks it is one.

        Raises:
            Refused: the topic is compacted, and the record is not one whole message with a key.
        """
        if not self.compacted:
            return
        if in_transaction:
            self.refuse(IN_TRANSACTION)
        if chunks > 1:
            self.refuse(CHUNKS)
        if messages > 1:
            self.refuse(BATCH)
        if not has_key:
            self.refuse(NO_KEY)


class _Known(NamedTuple):
    limits: RecordLimits
    until_s: float


class TopicLimits:
    """The limits of all topics that this process writes to. Thread-safe. Memory: those of `MAX_KNOWN` topics."""

    def __init__(self, admin: KafkaAdmin, now_s: Callable[[], float]) -> None:
        """`now_s`: the monotonic clock."""
        self._admin = admin
        self._now_s = now_s
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, topic: Topic, deadline: Deadline) -> RecordLimits:
        """The limits as they were within the last `KNOWN_S`, since an operator may change them at any time. Without the
        right to read them there are none, which is logged.

        Raises:
            LayerError: Kafka does not answer.
        """
        name = topic.kafka_topic
        with self._lock:
            known = self._known.get(name)
        if known is not None and known.until_s > self._now_s():
            return known.limits
        limits = self._read(topic, deadline)
        with self._lock:
            self._known[name] = _Known(limits, self._now_s() + KNOWN_S)
            self._known.move_to_end(name)
            if len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)
        return limits

    def _read(self, topic: Topic, deadline: Deadline) -> RecordLimits:
        name = topic.kafka_topic
        try:
            configs = self._admin.topic_configs(name, deadline)
        except errors.NotAuthorized as forbidden:
            _log.warning(
                "topic=%s is taken for a topic that is not compacted, its configuration cannot be read: %s",
                topic.name,
                forbidden,
            )
            return RecordLimits(name)
        largest = int(configs.get("max.message.bytes", USUAL_BATCH_BYTES))
        small = None if largest >= USUAL_BATCH_BYTES else max(1, largest - FRAMING_BYTES)
        return RecordLimits(name, is_compacted(configs), small)
