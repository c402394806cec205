"""Values of `ledgers` list the ledgers of every partition, one ledger a record. JSON objects.

    {"v":1,"by":3,"op":"LEDGER","topic":"persistent://public/default/orders","state":"CLOSED","first":0,"end":50000,
     "bytes":9700000,"bytes_error":120000,"first_publish_ms":1700000000000,"last_publish_ms":1700000360000,
     "properties":{}}
    {"v":1,"by":3,"op":"TAKEOVER"}

`by` is the version of the owner that wrote it (of a TAKEOVER the version claimed). Ledger id and session are in the key
(`LedgerKey`, `MaintenanceTakeoverKey`); the id tells incarnation, partition and place in the list. Source: Pulsar's
`ManagedLedgerInfo.LedgerInfo`; decision: mapping/decisions/0014.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from pulsar_on_kafka.mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka.mapping.state.codecs.tagged_records import Reader, TaggedRecords, read_number, read_text

FORMAT: Final = 1
MAX_RECORD_BYTES: Final = 1_000_000
"""What the state topic takes, less room for the key."""


class LedgerState(str, Enum):
    """A ledger is OPEN, CLOSED, DELETING or REMOVED. OPEN: the partition's end lies in it, or reaches it next.
    DELETING: its data may be deleted, it is still listed. REMOVED: it is not listed any more; the record says so until
    no other record of the ledger is left."""

    OPEN = "OPEN"
    CLOSED = "CLOSED"
    DELETING = "DELETING"
    REMOVED = "REMOVED"


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """A record describes one ledger, as its owner knew it when it wrote this.

    Attributes:
        topic: full name of the partitioned topic.
        first: the first offset of it that Kafka still has; its range's first one until something is deleted.
        end: its entries end here, exclusive; `first` while it has none.
        bytes: of its records (key, value and headers) before Kafka's compression; an estimate within `bytes_error` for
            19 of 20 ledgers. 0 says that the estimate is exact.
        first_publish_ms: Unix time of its first entry, 0 while it has none.
        last_publish_ms: of the newest entry that was looked at; its last one always is.
    """

    topic: str
    state: LedgerState
    first: int
    end: int
    bytes: int = 0
    bytes_error: int = 0
    first_publish_ms: int = 0
    last_publish_ms: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def entries(self) -> int:
        """Offsets, markers and void records among them."""
        return self.end - self.first


@dataclass(frozen=True, slots=True)
class MaintenanceTakenOver:
    """A new owner has taken over the maintenance of a partition of `ledgers`."""


LedgerValue = LedgerRecord | MaintenanceTakenOver


def _read_state(found: object, what: str) -> LedgerState:
    try:
        return LedgerState(found)
    except ValueError as error:
        legal = ", ".join(state.value for state in LedgerState)
        raise CorruptRecord(f"{what} is {found!r:.60}, expected one of {legal}") from error


def _read_properties(found: object, what: str) -> Mapping[str, str]:
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise CorruptRecord(f"{what} is {found!r:.60}, expected an object of text")
    return found


_READERS: Final[Mapping[str, Reader]] = {
    "topic": read_text,
    "state": _read_state,
    "first": read_number,
    "end": read_number,
    "bytes": read_number,
    "bytes_error": read_number,
    "first_publish_ms": read_number,
    "last_publish_ms": read_number,
    "properties": _read_properties,
}
_RECORDS: Final[TaggedRecords[LedgerValue]] = TaggedRecords(
    "ledger record",
    "op",
    {"LEDGER": LedgerRecord, "TAKEOVER": MaintenanceTakenOver},
    _READERS,
    version=FORMAT,
    limit_bytes=MAX_RECORD_BYTES,
)


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
    value, members = _RECORDS.decode(data)
    by = read_number(members.get("by"), "a ledger record's by")
    if isinstance(value, LedgerRecord) and value.end < value.first:
        raise CorruptRecord(f"ledger record {data[:200]!r} ends at {value.end}, before its first offset {value.first}")
    return by, value
