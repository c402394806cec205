"""The state log holds partitions of records in an order that all readers agree on; every piece of state rests on it.

The rules: layer/pulsar_on_kafka/statelog/README.md. `KafkaStateLog`, and the log in memory that tests have
(`tests/memory_log.py`), pass one contract suite (`tests/contract`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import StoreError
from pulsar_on_kafka.kafka.records import KafkaRecord
from pulsar_on_kafka_mapping.state.state_topics import Cleanup, StateTopic

K = TypeVar("K")
V = TypeVar("V")

_KAFKAS_DELETE_RETENTION_MS: Final = 86_400_000
_TOMBSTONES_AT_ONCE: Final = 500


class LogRecord(NamedTuple):
    """One record as it lies in the log; `value` None is a tombstone. A record without key (foreign) has key b''."""

    offset: int
    key: bytes
    value: bytes | None
    timestamp_ms: int


def log_record(record: KafkaRecord) -> LogRecord:
    return LogRecord(record.offset(), record.key() or b"", record.value(), record.timestamp()[1])


Group: TypeAlias = tuple[StateTopic, int, Sequence[tuple[bytes, bytes | None]]]
"""Records for one partition of a state topic."""


class StateTopicMismatch(StoreError):
    """A state topic exists and differs from the catalogue's; the message names the difference."""


class StateLog(Protocol):
    """The log of state records. Thread-safe. A state topic is created at its first use.

    Every call may raise `DeadlineExceeded`, `ConnectFailed`, `NotAuthorized`, `Closed`, and `StateTopicMismatch` when
    the existing topic has another number of partitions than in the catalogue. Temporary errors (a broker restarting)
    are retried within the deadline.
    """

    def append(self, topic: StateTopic, partition: int, key: bytes, value: bytes | None, deadline: Deadline) -> int:
        """Append one record, wait until it is durable, and give its offset. `value` None is a tombstone.

        Raises:
            AppendFailed, NotAuthorized, RecordTooLarge: certainly not written.
            AppendOutcomeUnknown: perhaps written, perhaps still on its way. Find out by reading.
        """
        ...

    def append_many(
        self, topic: StateTopic, partition: int, records: Sequence[tuple[bytes, bytes | None]], deadline: Deadline
    ) -> list[int]:
        """Append pipelined, in this order (others' records may stand between), and give the offsets.

        Raises:
            AppendFailed, NotAuthorized, RecordTooLarge: certainly none was written.
            AppendOutcomeUnknown: some were, or may have been, or may still be, written.
        """
        ...

    def append_apart(self, groups: Sequence[Group], deadline: Deadline) -> None:
        """Append to several partitions at once, to each in its order; the partitions do not wait for one another.

        Raises as `append_many`; then also groups of other partitions may have been written.
        """
        ...

    def end_offset(self, topic: StateTopic, partition: int, deadline: Deadline) -> int:
        """The high watermark: the offset of the next record, as the leader reports now."""
        ...

    def start_offset(self, topic: StateTopic, partition: int, deadline: Deadline) -> int:
        """The first offset that is still there. Compaction does not move it, retention and deleting records do."""
        ...

    def read(
        self, topic: StateTopic, partition: int, start: int, end: int, deadline: Deadline
    ) -> Iterator[list[LogRecord]]:
        """The records in [start, end) in offset order, in batches that are never empty.

        Compacted offsets are simply missing; that the iterator ends means that the position reached `end`. Other calls
        on this log are allowed between two batches, and the iterator may be left unfinished.

        Raises:
            OffsetOutOfRange: `start` lies below the log start.
            DeadlineExceeded: the position did not reach `end` in time.
        """
        ...

    def read_at(
        self, topic: StateTopic, partition: int, offsets: Sequence[int], deadline: Deadline
    ) -> Mapping[int, LogRecord]:
        """The records at exactly these offsets (any order); what compaction or retention took is missing."""
        ...

    def now_ms(self) -> int:
        """The timestamp of records stored now, Unix milliseconds: the brokers' time, from their replies to appends."""
        ...

    def kafka_name(self, topic: StateTopic) -> str:
        """The Kafka topic that holds a state topic here."""
        ...

    def close(self) -> None:
        """End reading; a second call does nothing, others raise `Closed`. What was lent to the log stays open."""
        ...


def tombstone(log: StateLog, topic: StateTopic, partition: int, keys: Sequence[bytes], deadline: Deadline) -> int:
    """Append a tombstone for each key, in this order, 500 at a time; gives how many. Raises as `StateLog.append_many`:
    then the first of them may be there."""
    for first in range(0, len(keys), _TOMBSTONES_AT_ONCE):
        together = [(key, None) for key in keys[first : first + _TOMBSTONES_AT_ONCE]]
        log.append_many(topic, partition, together, deadline)
    return len(keys)


def put(kept: dict[K, V], key: K, value: V | None) -> None:
    """Stores a record's value under its key; None, a tombstone's, removes it."""
    if value is None:
        kept.pop(key, None)
    else:
        kept[key] = value


def tombstones_last_s(topic: StateTopic) -> float:
    """The time during which a tombstone can certainly be read, in seconds; infinite without tombstones."""
    if topic.cleanup is not Cleanup.COMPACT:
        return inf
    return int(topic.configs.get("delete.retention.ms", _KAFKAS_DELETE_RETENTION_MS)) / 1000


def records_stay_s(topic: StateTopic) -> float:
    """The time after its append during which a record certainly makes compaction drop nothing, in seconds; 0 for no
    promise.

    Kafka goes by the records' timestamps, so this holds only where the broker sets them.
    """
    if topic.cleanup is not Cleanup.COMPACT:
        return inf
    if topic.configs.get("message.timestamp.type") != "LogAppendTime":
        return 0.0
    return int(topic.configs.get("min.compaction.lag.ms", 0)) / 1000


def check_partition(topic: StateTopic, partition: int) -> None:
    """Raises ValueError for a partition that the topic does not have: a fault of the caller."""
    if not 0 <= partition < topic.max_partitions:
        raise ValueError(f"state topic {topic.name} has partitions 0 to {topic.max_partitions - 1}, not {partition}")
