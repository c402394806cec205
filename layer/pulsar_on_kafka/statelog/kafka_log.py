"""The state log on Kafka: one fetcher, and a shared producer and admin client for all state topics."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias, TypeVar

from pulsar_on_kafka.base.clock import ClusterClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import (
    Closed,
    DeadlineExceeded,
    NoSuchTopic,
    NotAuthenticated,
    NotAuthorized,
    OffsetOutOfRange,
    RecordTooLarge,
    StoreError,
)
from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka.kafka.appends import NewRecord, append_all, append_apart
from pulsar_on_kafka.kafka.producer import KafkaProducer
from pulsar_on_kafka.kafka.reading.fetcher import Fetcher
from pulsar_on_kafka.statelog.api import Group, LogRecord, StateTopicMismatch, check_partition, log_record
from pulsar_on_kafka_mapping.state.instances import Instance
from pulsar_on_kafka_mapping.state.state_topics import StateTopic

_T = TypeVar("_T")
_Record: TypeAlias = tuple[bytes, bytes | None]

FETCH_QUEUE_KBYTES: Final = 4096
_RETRY_PAUSE_S: Final = 0.1
_METADATA_PAUSE_S: Final = 0.02
_LEARNS_OF_TOPIC_S: Final = 5.0  # how long a broker that starts may not know a topic that is there
_ASK_S: Final = 5.0
_NOT_WORTH_A_RETRY: Final = (NotAuthenticated, NotAuthorized, OffsetOutOfRange, RecordTooLarge, StateTopicMismatch)


_log: Final = logging.getLogger(__name__)


def keeps(needed: str, value: str) -> bool:
    """Whether a topic's option promises at least the required value: numbers may be higher."""
    if needed.isdigit() and value.isdigit():
        return int(value) >= int(needed)
    return value == needed


class KafkaStateLog:
    """Thread-safe. The producer and the admin client stay their owner's; the fetcher is this log's own.

    `producer` gives the one to use now: its owner may have had to replace it.

    An append whose deadline passed may still reach the log: see `append_all`.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        producer: Callable[[], KafkaProducer],
        admin: KafkaAdmin,
        clock: ClusterClock,
        *,
        instance: Instance,
    ) -> None:
        """`clock` receives the brokers' time with each append, where the topic has it. `instance`: the owner of the
        state."""
        self._instance = instance
        self._producer = producer
        self._clock = clock
        self._admin = admin
        self._fetcher = fetcher
        self._there: set[str] = set()
        self._learned: dict[tuple[str, int], KafkaProducer] = {}
        """The producer that knows of partitions that were added to a topic."""
        self._making: dict[str, threading.Lock] = {}
        """A lock for each topic: the creation of one does not block the use of another."""
        self._closed = threading.Event()

    def append(self, topic: StateTopic, partition: int, key: bytes, value: bytes | None, deadline: Deadline) -> int:
        return self.append_many(topic, partition, [(key, value)], deadline)[0]

    def append_many(
        self, topic: StateTopic, partition: int, records: Sequence[_Record], deadline: Deadline
    ) -> list[int]:
        self._make_ready(topic, partition, deadline)
        new = [NewRecord(key, value) for key, value in records]
        return append_all(self._producer, self.kafka_name(topic), partition, new, deadline, self._clock.observe)

    def append_apart(self, groups: Sequence[Group], deadline: Deadline) -> None:
        for topic, partition, _ in groups:
            self._make_ready(topic, partition, deadline)
        append_apart(
            self._producer,
            [
                (self.kafka_name(topic), partition, [NewRecord(key, value) for key, value in records])
                for topic, partition, records in groups
            ],
            deadline,
            self._clock.observe,
        )

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def end_offset(self, topic: StateTopic, partition: int, deadline: Deadline) -> int:
        return self._request(self._fetcher.log_end, topic, partition, deadline)

    def start_offset(self, topic: StateTopic, partition: int, deadline: Deadline) -> int:
        return self._request(self._fetcher.log_start, topic, partition, deadline)

    def _request(
        self, request: Callable[[str, int, Deadline], _T], topic: StateTopic, partition: int, deadline: Deadline
    ) -> _T:
        self._make_ready(topic, partition, deadline)
        return self._patiently(topic, deadline, lambda: request(self.kafka_name(topic), partition, deadline))

    def read(
        self, topic: StateTopic, partition: int, start: int, end: int, deadline: Deadline
    ) -> Iterator[list[LogRecord]]:
        self._make_ready(topic, partition, deadline)
        patience = self._patience(topic, deadline)
        position = start
        while position < end:
            try:
                for batch in self._fetcher.read(self.kafka_name(topic), partition, position, end, deadline):
                    records = [log_record(record) for record in batch]
                    position = records[-1].offset + 1
                    yield records
                position = end
            except (StoreError, NoSuchTopic) as failure:
                patience.wait_after(failure)

    def read_at(
        self, topic: StateTopic, partition: int, offsets: Sequence[int], deadline: Deadline
    ) -> dict[int, LogRecord]:
        start, end = self._request(self._fetcher.watermarks, topic, partition, deadline)
        requested = sorted({offset for offset in offsets if start <= offset < end})
        return self._patiently(
            topic, deadline, lambda: self._read_exactly(self.kafka_name(topic), partition, requested, deadline)
        )

    def _read_exactly(
        self, kafka_topic: str, partition: int, offsets: list[int], deadline: Deadline
    ) -> dict[int, LogRecord]:
        return {
            record.offset: record
            for batch in self._fetcher.read_at(kafka_topic, partition, offsets, deadline)
            for record in map(log_record, batch)
        }

    def _patiently(self, topic: StateTopic, deadline: Deadline, action: Callable[[], _T]) -> _T:
        patience = self._patience(topic, deadline)
        while True:
            try:
                return action()
            except (StoreError, NoSuchTopic) as failure:
                patience.wait_after(failure)

    def _patience(self, topic: StateTopic, deadline: Deadline) -> _Patience:
        return _Patience(deadline, self._closed, lambda: self._is_gone(topic))

    def _is_gone(self, topic: StateTopic) -> bool:
        """Whether a broker reports that the topic does not exist; False without a reply."""
        try:
            return self._admin.describe_topic(self.kafka_name(topic), Deadline.after(_ASK_S)) is None
        except StoreError:
            return False

    def kafka_name(self, topic: StateTopic) -> str:
        return self._instance.state_topic(topic)

    def _make_ready(self, topic: StateTopic, partition: int, deadline: Deadline) -> None:
        """Makes a topic ready before its first use; costs nothing from the second time on."""
        if self._closed.is_set():
            raise Closed("the state log is closed")
        check_partition(topic, partition)
        name = self.kafka_name(topic)
        if name in self._there:
            if partition >= topic.partitions:
                self._learn_added(topic, partition, deadline)
            return
        making = self._making.setdefault(name, threading.Lock())
        if not making.acquire(timeout=min(deadline.remaining_s(), threading.TIMEOUT_MAX)):
            raise DeadlineExceeded(f"time ran out while waiting for state topic {name} to be made ready")
        try:
            if name not in self._there:
                self._find_or_create(topic, deadline)
                self._there.add(name)
        finally:
            making.release()

    def _learn_added(self, topic: StateTopic, partition: int, deadline: Deadline) -> None:
        """A producer's handle looks only every few minutes whether a topic has grown."""
        producer = self._producer()
        where = self.kafka_name(topic), partition
        if self._learned.get(where) is not producer:
            producer.learn_partitions(where[0], partition + 1, deadline)
            self._learned[where] = producer

    def _find_or_create(self, topic: StateTopic, deadline: Deadline) -> None:
        name, created = self.kafka_name(topic), False
        while (found := self._patiently(topic, deadline, lambda: self._admin.describe_topic(name, deadline))) is None:
            if not created:
                self._patiently(topic, deadline, lambda: self._create(topic, deadline))
                created = True
                continue
            deadline.check(f"state topic {name} to be known to the brokers")
            self._closed.wait(min(_METADATA_PAUSE_S, deadline.remaining_s()))
        if not topic.partitions <= found.partitions <= topic.max_partitions:
            raise StateTopicMismatch(
                f"state topic {name} has {found.partitions} partitions and must have {topic.partitions}:"
                " it was not made by this software, or by another version of it; state can be kept in it only when it"
                " is deleted first (which loses what is in it)"
            )
        if not created:
            self._check_cleanup(topic, deadline)

    def _check_cleanup(self, topic: StateTopic, deadline: Deadline) -> None:
        """Checks the cleanup policy: a state topic that Kafka deletes from would lose state; raises StateTopicMismatch.
        Minor differences are logged."""
        name = self.kafka_name(topic)
        try:
            configs = self._patiently(topic, deadline, lambda: self._admin.topic_configs(name, deadline))
        except NotAuthorized:
            return  # pok doctor names the missing right
        policy = configs.get("cleanup.policy")
        if policy is not None and policy != topic.cleanup.value:
            raise StateTopicMismatch(
                f"state topic {name} has cleanup.policy={policy} and must have {topic.cleanup.value}: "
                "set it with Kafka's tools, or what is in the topic will be lost"
            )

        for option in ("min.compaction.lag.ms", "message.timestamp.type"):
            value, needed = configs.get(option), topic.configs.get(option)
            if value is not None and needed is not None and not keeps(needed, value):
                _log.warning(
                    "state topic %s has %s=%s and should have %s: `pok doctor` shows why, and how to set it",
                    name, option, value, needed,
                )  # fmt: skip

    def _create(self, topic: StateTopic, deadline: Deadline) -> None:
        self._admin.create_topic(self.kafka_name(topic), topic.partitions, topic.configs, deadline)

    def close(self) -> None:
        if not self._closed.is_set():
            self._closed.set()
            self._fetcher.close()


class _Patience:
    """Retry policy of reading: waits out failures that may pass, and raises the others."""

    def __init__(self, deadline: Deadline, closed: threading.Event, topic_is_gone: Callable[[], bool]) -> None:
        self._deadline = deadline
        self._closed = closed
        self._topic_is_gone = topic_is_gone
        self._learning = Deadline.after(_LEARNS_OF_TOPIC_S)

    def wait_after(self, failure: StoreError | NoSuchTopic) -> None:
        """Returns after a short pause when a retry makes sense; otherwise raises the reason."""
        if isinstance(failure, _NOT_WORTH_A_RETRY):
            raise failure
        if isinstance(failure, NoSuchTopic) and self._learning.passed() and self._topic_is_gone():
            raise failure
        if self._deadline.passed():
            # librdkafka does not know the partitions of a broker that is down, which is no news about the topic.
            raise DeadlineExceeded(str(failure)) if isinstance(failure, NoSuchTopic) else failure
        if self._closed.wait(min(_RETRY_PAUSE_S, self._deadline.remaining_s())):
            raise Closed("the state log was closed") from failure
