"""Values of `__transaction_log`: a coordinator's decisions, one operation a record. JSON objects.

    {"v":1,"by":3,"op":"NEW","start_ms":1700000000000,"timeout_ms":60000,"max_local_id":17,"request":"9f86..."}
    {"v":1,"by":3,"op":"ADD_PARTITION","partitions":[["persistent://public/default/orders",0]]}
    {"v":1,"by":3,"op":"ADD_SUBSCRIPTION","subscriptions":[["persistent://public/default/orders",0,"audit"]]}
    {"v":1,"by":3,"op":"UPDATE","status":"COMMITTING"}
    {"v":1,"by":3,"op":"ANSWER","refused":"InvalidTxnStatus","reason":"..."}
    {"v":1,"op":"TAKEOVER","max_local_id":17}

`by` is the version of the owner that wrote it; its session is in the key, as are coordinator and transaction
(`TransactionLogKey`), the request (`TransactionAnswerKey`), or the version claimed (`CoordinatorTakeoverKey`). A topic
is the full name of the partitioned topic, a partition the Kafka partition. Source: Pulsar's TransactionMetadataEntry;
ANSWER and TAKEOVER are not in Pulsar (mapping/decisions/0012-transaction-log.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct, field

from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka_mapping.state.codecs.json_records import Count, JsonRecords

MAX_RECORD_BYTES: Final = 1_000_000
"""The limit of the state topic, minus room for the key."""
_SHORT_BYTES: Final = 300
_SHORT_VALUES: Final = 1_000


class TxnStatus(str, Enum):
    """A transaction's status has Pulsar's names."""

    OPEN = "OPEN"
    COMMITTING = "COMMITTING"
    COMMITTED = "COMMITTED"
    ABORTING = "ABORTING"
    ABORTED = "ABORTED"


class TopicPartition(NamedTuple):
    """A transaction writes here."""

    topic: str
    partition: Count


class TopicSubscription(NamedTuple):
    """A transaction acknowledges here."""

    topic: str
    partition: Count
    subscription: str


class NewTransaction(Struct, frozen=True, omit_defaults=True):
    """A transaction is open. `max_local_id` is the highest id given, this one included; `request` is "" for a client in
    the owner's own process; `owner` is the role that began it, "" without authentication (`Begin`). An empty `owner` is
    omitted, an empty `request` is not: 0.2.0 requires one."""

    by: Count
    start_ms: Count
    timeout_ms: Count
    max_local_id: Count
    request: str = field(default_factory=str)
    owner: str = ""


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    """The transaction writes to these partitions as well."""

    by: Count
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class SubscriptionsAdded:
    """The transaction acknowledges on these subscriptions as well."""

    by: Count
    subscriptions: tuple[TopicSubscription, ...]


@dataclass(frozen=True, slots=True)
class StatusUpdated:
    """The new status of a transaction, never OPEN: NEW has that meaning."""

    by: Count
    status: TxnStatus


@dataclass(frozen=True, slots=True)
class Answered:
    """A request was done; or `refused`, with the name of the error, for this `reason`."""

    by: Count
    refused: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TakenOver:
    """A new owner has the coordinator; it read ids up to `max_local_id` before it claimed."""

    max_local_id: Count


LogValue: TypeAlias = NewTransaction | PartitionsAdded | SubscriptionsAdded | StatusUpdated | Answered | TakenOver

_RECORDS: Final[JsonRecords[LogValue]] = JsonRecords(
    "transaction log record",
    {
        "NEW": NewTransaction,
        "ADD_PARTITION": PartitionsAdded,
        "ADD_SUBSCRIPTION": SubscriptionsAdded,
        "UPDATE": StatusUpdated,
        "ANSWER": Answered,
        "TAKEOVER": TakenOver,
    },
    tag="op",
    limit_bytes=MAX_RECORD_BYTES,
)


def encode_log_value(value: LogValue) -> bytes:
    """The inverse of `decode_log_value`.

    Raises:
        MappingError: more than `MAX_RECORD_BYTES`, text that is no Unicode, or UPDATE to OPEN.
    """
    if isinstance(value, StatusUpdated) and value.status is TxnStatus.OPEN:
        raise MappingError("UPDATE of a transaction to OPEN, expected a later status: NEW opens it")
    return _RECORDS.encode(value)


def decode_log_value(data: bytes) -> LogValue:
    """Raises CorruptRecord, naming what was expected. Unknown fields are ignored.

    What was read a moment ago is not read again: all updates of a session to one status are the same bytes, and so are
    all additions of one partition. Memory: up to 1,000 values of records of up to 300 B, for the process.
    """
    return _short_value(data) if len(data) <= _SHORT_BYTES else _decoded(data)


@lru_cache(_SHORT_VALUES)
def _short_value(data: bytes) -> LogValue:
    return _decoded(data)


def _decoded(data: bytes) -> LogValue:
    value = _RECORDS.decode(data)
    if isinstance(value, StatusUpdated) and value.status is TxnStatus.OPEN:
        raise CorruptRecord("UPDATE of a transaction to OPEN, expected a later status: NEW opens it")
    return value
