"""The catalogue of state topics names everything that the system remembers, and where.

Each is the topic `persistent://pulsar/system/<name>`, of every instance its own
(mapping/pulsar_on_kafka_mapping/state/instances.py). The number of partitions never changes: incarnations and
coordinator ids are made from it. The table: mapping/pulsar_on_kafka_mapping/README.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final
from zlib import crc32

from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.names.topic_name import TopicName

SYSTEM_NAMESPACE: Final = "pulsar/system"

_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS


class Cleanup(str, Enum):
    """Kafka cleans a topic in this way (`cleanup.policy`)."""

    COMPACT = "compact"
    DELETE = "delete"


class PartitionedBy(str, Enum):
    """A record's partition is decided by this."""

    TOPIC = "name of the partitioned topic"
    NAMESPACE = "tenant/namespace"
    COORDINATOR = "coordinator id"
    TENANT = "tenant"


MAX_COORDINATORS: Final = 1024
"""The limit of transaction coordinators. A cluster begins with as many as the topics' `partitions`."""


@dataclass(frozen=True, slots=True)
class StateTopic:
    """A state topic has these properties; `configs` is its whole Kafka configuration beyond the cluster's defaults."""

    name: str
    partitions: int
    cleanup: Cleanup
    partitioned_by: PartitionedBy
    written_by: str
    tombstone_means: str
    configs: Mapping[str, str] = field(hash=False, repr=False)

    @property
    def max_partitions(self) -> int:
        """The topic may have as many: where a partition is a coordinator there may be more than at first."""
        return MAX_COORDINATORS if self.partitioned_by is PartitionedBy.COORDINATOR else self.partitions

    @property
    def topic_name(self) -> TopicName:
        return TopicName.parse(f"persistent://{SYSTEM_NAMESPACE}/{self.name}")

    def partition_for(self, topic: str) -> int:
        """The partition that holds everything about `topic`, the full name of a partitioned topic without suffix (or a
        `tenant/namespace`, for `namespaces`): CRC-32 of its UTF-8 modulo the number of partitions.

        Raises:
            MappingError: the topic is partitioned by coordinator (see `partition_of_coordinator`).
        """
        if self.partitioned_by is PartitionedBy.COORDINATOR:
            raise MappingError(f"partition of {self.name} for {topic!r}, expected a coordinator id")
        return crc32(topic.encode("utf-8")) % self.partitions

    def partition_of_coordinator(self, coordinator: int) -> int:
        """Coordinator i has partition i.

        Raises:
            MappingError: there is no such coordinator, or the topic is not partitioned by coordinator.
        """
        if self.partitioned_by is not PartitionedBy.COORDINATOR:
            raise MappingError(f"partition of {self.name} for coordinator {coordinator}, expected a topic's name")
        if not 0 <= coordinator < self.max_partitions:
            raise MappingError(f"coordinator is {coordinator}, expected 0 to {self.max_partitions - 1}")
        return coordinator


_COMPACTED: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    # The active segment is never compacted: an hour bounds what a reader replays for nothing.
    "segment.ms": str(_HOUR_MS),
    "segment.bytes": str(64 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
    # A reader that was away for half of this starts over (layer/pulsar_on_kafka/statelog/README.md).
    "delete.retention.ms": str(_DAY_MS),
    # Between taking the end and reading to it, records must not be compacted away because of others beyond that end: a
    # reader could take the rest for a winner. Half of this is the limit of a reading's duration; the broker's own clock
    # decides how old a record is.
    "min.compaction.lag.ms": "60000",
    "message.timestamp.type": "LogAppendTime",
}


def _deleted_after(days: int) -> Mapping[str, str]:
    return {
        "cleanup.policy": "delete",
        "retention.ms": str(days * _DAY_MS),
        "segment.ms": str(6 * _HOUR_MS),
        "max.message.bytes": "1048588",
    }


def _compacted(
    name: str,
    partitions: int,
    written_by: str,
    tombstone_means: str,
    partitioned_by: PartitionedBy = PartitionedBy.TOPIC,
    max_message_bytes: int = 1_048_588,
) -> StateTopic:
    configs = {**_COMPACTED, "max.message.bytes": str(max_message_bytes)}
    return StateTopic(name, partitions, Cleanup.COMPACT, partitioned_by, written_by, tombstone_means, configs)


TOPICS: Final = _compacted(
    "topics", 8, "anyone, by compare-and-set", "this attempt lost, a higher version won since, or it is long gone"
)
NAMESPACES: Final = _compacted("namespaces", 8, "anyone, by compare-and-set", "as in topics", PartitionedBy.NAMESPACE)
SUBSCRIPTIONS: Final = _compacted("subscriptions", 8, "anyone, by compare-and-set", "as in topics")
SCHEMAS: Final = _compacted(
    "schemas",
    8,
    "anyone, by compare-and-set",
    "this attempt lost, or the schemas were removed (winners stay: each is a schema version)",
    max_message_bytes=5 * 1024 * 1024 + 512 * 1024,  # a definition of 5 MiB, as Pulsar takes
)
CURSORS: Final = _compacted(
    "cursors", 16, "the cursor's owner", "a newer save made it obsolete, or the subscription is gone"
)
CURSOR_CHECKPOINTS: Final = _compacted(
    "cursor_checkpoints",
    16,
    "the cursor's owner; the maintenance owner",
    "another session has a checkpoint, or the subscription is gone",
)
LEDGERS: Final = _compacted(
    "ledgers", 16, "the maintenance owner", "the ledger is deleted, or the session that wrote it is over"
)
DELIVERIES: Final = StateTopic(
    "deliveries",
    64,
    Cleanup.DELETE,
    PartitionedBy.TOPIC,
    "the cursor's owner and the subscription's members",
    "nothing: never written",
    _deleted_after(3),
)
PRODUCERS: Final = _compacted(
    "producers", 16, "that producer; the maintenance owner", "the records that it folds are gone from the log"
)
TRANSACTION_COORDINATOR_ASSIGN: Final = _compacted(
    "transaction_coordinator_assign", 16, "none: only its assignment counts", "nothing", PartitionedBy.COORDINATOR
)
TRANSACTION_REQUESTS: Final = StateTopic(
    "transaction_requests",
    16,
    Cleanup.DELETE,
    PartitionedBy.COORDINATOR,
    "any client",
    "nothing: never written",
    _deleted_after(1),
)
TRANSACTION_LOG: Final = _compacted(
    "__transaction_log", 16, "the coordinator", "the transaction is over everywhere", PartitionedBy.COORDINATOR
)
TRANSACTION_BUFFER_SNAPSHOT: Final = _compacted(
    "__transaction_buffer_snapshot",
    16,
    "the coordinator; anyone what is void",
    "the transaction was committed, or its records are gone from the log",
)
TRANSACTION_PENDING_ACK: Final = _compacted(
    "__transaction_pending_ack",
    16,
    "the cursor's owner; its END by the coordinator",
    "the cursor has taken the transaction's outcome in",
)
SUBSCRIPTION_PROGRESS: Final = _compacted(
    "subscription_progress",
    16,
    "the member with the partition of the same number, in the reporting cluster",
    "a newer save made it obsolete, another session took over, or the subscription is gone",
)

TENANTS: Final = _compacted("tenants", 1, "anyone, by compare-and-set", "as in topics", PartitionedBy.TENANT)
"""One partition, because a server of all tenants follows all of it."""

ALL: Final = tuple(each for each in [*globals().values()] if isinstance(each, StateTopic))
