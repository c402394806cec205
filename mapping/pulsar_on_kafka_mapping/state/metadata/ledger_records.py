"""Values of `ledgers` list the ledgers of every partition, one ledger a record. JSON objects.

    {"v":1,"by":3,"op":"LEDGER","topic":"persistent://public/default/orders","state":"CLOSED","first":0,"end":50000,
     "bytes":9700000,"bytes_error":120000,"first_publish_ms":1700000000000,"last_publish_ms":1700000360000,
     "properties":{}}
    {"v":1,"by":3,"op":"TAKEOVER"}

`by` is the version of the owner that wrote it (of a TAKEOVER the version claimed). Ledger id and session are in the key
(`LedgerKey`, `MaintenanceTakeoverKey`); the id contains incarnation, partition and place in the list. Source: Pulsar's
`ManagedLedgerInfo.LedgerInfo`; decision: mapping/decisions/0014.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka_mapping.state.codecs.json_records import Count, JsonRecords, json_record

MAX_RECORD_BYTES: Final = 1_000_000
"""The limit of the state topic, minus room for the key."""


class LedgerState(str, Enum):
    """A ledger is OPEN, CLOSED, DELETING or REMOVED. OPEN: the partition's end lies in it, or reaches it next.
    DELETING: its data may be deleted, it is still listed. REMOVED: it is no longer listed; the record stays until no
    other record of the ledger is left."""

    OPEN = "OPEN"
    CLOSED = "CLOSED"
    DELETING = "DELETING"
    REMOVED = "REMOVED"


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """The record of one ledger, by its owner's knowledge at the time of writing.

    Attributes:
        topic: full name of the partitioned topic.
        first: the first offset of it that Kafka still has; its range's first one until something is deleted.
        end: its entries end here, exclusive; `first` while it has none.
        bytes: the size of its records (key, value and headers) before Kafka's compression; an estimate within
            `bytes_error` for 19 of 20 ledgers. An error of 0 means an exact size.
        first_publish_ms: Unix time of its first entry, 0 while it has none.
        last_publish_ms: that of the newest measured entry; the last one of a ledger always is measured.
    """

    topic: str
    state: LedgerState
    first: Count
    end: Count
    bytes: Count = 0
    bytes_error: Count = 0
    first_publish_ms: Count = 0
    last_publish_ms: Count = 0
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def entries(self) -> int:
        """Offsets, markers and void records among them."""
        return self.end - self.first


@dataclass(frozen=True, slots=True)
class MaintenanceTakenOver:
    """A new owner has taken over the maintenance of a partition of `ledgers`."""


LedgerValue: TypeAlias = LedgerRecord | MaintenanceTakenOver


@dataclass(frozen=True, slots=True)
class _Written:
    by: Count


_RECORDS: Final[JsonRecords[LedgerValue]] = JsonRecords(
    "ledger record",
    {"LEDGER": LedgerRecord, "TAKEOVER": MaintenanceTakenOver},
    tag="op",
    limit_bytes=MAX_RECORD_BYTES,
)
_WRITTEN: Final = json_record("ledger record", _Written)


def encode_ledger_value(by: int, value: LedgerValue) -> bytes:
    """The inverse of `decode_ledger_value`; `by` is the writer's version, 1 or more.

    Raises:
        MappingError: above `MAX_RECORD_BYTES`, text that is no Unicode, a version below 1, or an end before `first`.
    """
    if by < 1:
        raise MappingError(f"ledger record by version {by}, expected 1 or more")
    if isinstance(value, LedgerRecord) and not 0 <= value.first <= value.end:
        raise MappingError(
            f"ledger of {value.topic} from offset {value.first} to {value.end}, expected 0 <= first <= end"
        )
    return _RECORDS.encode(value, by=by)


def decode_ledger_value(data: bytes) -> tuple[int, LedgerValue]:
    """The writer's version, and what it wrote. Raises CorruptRecord, naming what was expected."""
    value = _RECORDS.decode(data)
    if isinstance(value, LedgerRecord) and value.end < value.first:
        raise CorruptRecord(f"ledger record {data[:200]!r} ends at {value.end}, before its first offset {value.first}")
    return _WRITTEN.decode(data).by, value
