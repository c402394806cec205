"""Options and dependencies of the lease protocol."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.identity import new_session
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import CursorLife
from pulsar_on_kafka_mapping.state.cursors.lease_records import Lease, LeaseRecord, Recall, Report, TakeOver
from pulsar_on_kafka_mapping.state.transactions.pending_acks import TxnAck

ReceivedLeaseRecord = tuple[int, int, bytes]
"""(offset in `deliveries`, partition that it is about or ALL_MEMBERS, value)."""


class RereadLeaseRecords(NamedTuple):
    """All records before offset `upto`, read again. Not `is_whole` if retention deleted some."""

    records: list[ReceivedLeaseRecord]
    upto: int
    is_whole: bool = True


class LeaseTraffic(Protocol):
    """One subscription's records in `deliveries`."""

    def listen(self, receive: Callable[[Sequence[ReceivedLeaseRecord]], None], patience: Callable[[], bool]) -> None:
        """From now on another thread calls `receive` with the records, in the order of the log. The thread may pause
        for a moment whenever `patience` returns True."""

    def write(self, records: Sequence[tuple[int, LeaseRecord]]) -> Future[list[int]]:
        """Append records, each with its partition. The future returns their offsets when they are durable. One call at
        a time."""

    def read(self, start: int, most: int) -> Future[RereadLeaseRecords]:
        """Read records from offset `start` on, at least `most` or up to the log's end."""

    def end(self, deadline: Deadline) -> int:
        """Behind the last record. Raises StoreError."""

    def take_over(
        self, partition: int, record: TakeOver, since: int, deadline: Deadline
    ) -> tuple[int, list[Lease | Recall | Report]]:
        """Append the record. Returns its offset, and the reports, leases and recalls of the partition from offset
        `since` up to it. All records from that offset on are received. Raises StoreError."""

    def group(self) -> Future[Collection[str]]:
        """The client ids of the live members of the Kafka group."""

    def saved_version(self, partition: int) -> Future[int]:
        """The version of the cursor that the Kafka group has committed; -1 for none. A take-over commits a higher
        version before its TAKE_OVER. Raises StoreError."""

    def stop(self) -> None:
        """Receive no more records. A second call does nothing."""


class RecordReader(Protocol):
    """The calls on `AscendingReader` that read leased records."""

    def read_at(
        self, topic: str, partition: int, offsets: Sequence[int], deadline: Deadline
    ) -> Iterator[list[Any]]: ...

    def log_start(self, topic: str, partition: int, deadline: Deadline) -> int: ...

    def leave(self, partition: int | None = None) -> None: ...

    def close(self) -> None: ...


RequestFromOwner = Callable[[int, TxnId, TxnAck, "Future[None]", Deadline], None]
"""Requests the owner of this partition to hold an acknowledgement for a transaction; see
`TransactionAcksElsewhere.request`."""


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """`client_id` names the membership in its Kafka group; `reader` reads leased records; at most `max_received`
    received records wait; the topic has `partitions`, or more by now (None: a single one is served); `session` is this
    membership's."""

    client_id: str
    life: CursorLife
    traffic: LeaseTraffic
    reader: RecordReader
    request_from_owner: RequestFromOwner
    max_received: int = 20_000
    partitions: int | None = 1
    session: bytes = field(default_factory=new_session)
