"""Lease terms are what a membership needs for leases to and from other processes: its name there, and the way records
take."""

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
"""(offset in `deliveries`, partition that it is about or EVERYBODY, value)."""


class RereadLeaseRecords(NamedTuple):
    """Records that were read again: all there are before offset `upto`. Not `is_whole` when retention took some."""

    records: list[ReceivedLeaseRecord]
    upto: int
    is_whole: bool = True


class LeaseTraffic(Protocol):
    """One subscription's records in `deliveries`."""

    def listen(self, hear: Callable[[Sequence[ReceivedLeaseRecord]], None], patience: Callable[[], bool]) -> None:
        """From now on `hear` is told of them, in the order of the log, by another thread; it returns at once. That one
        may leave off for a moment whenever `patience` says so."""

    def write(self, records: Sequence[tuple[int, LeaseRecord]]) -> Future[list[int]]:
        """Append records and the partitions that they are about; gives their offsets once they are durable. One call at
        a time."""

    def read(self, start: int, most: int) -> Future[RereadLeaseRecords]:
        """What was said from offset `start` on, at least `most` records of it or up to the log's end."""

    def end(self, deadline: Deadline) -> int:
        """Behind the last record. Raises StoreError."""

    def take_over(
        self, partition: int, record: TakeOver, since: int, deadline: Deadline
    ) -> tuple[int, list[Lease | Recall | Report]]:
        """Append this; gives its offset, and the reports, and what owners leased and recalled of the partition, that
        stand before it from offset `since` on. From that offset on everything is heard. Raises StoreError."""

    def group(self) -> Future[Collection[str]]:
        """The client ids of the live members of the Kafka group."""

    def saved_version(self, partition: int) -> Future[int]:
        """The version of the cursor that the Kafka group has committed: whoever took over has made it higher before
        saying so. -1 for none. Raises StoreError."""

    def stop(self) -> None:
        """Hear no more. A second call does nothing."""


class RecordReader(Protocol):
    """The calls on `AscendingReader` that read leased records."""

    def read_at(
        self, topic: str, partition: int, offsets: Sequence[int], deadline: Deadline
    ) -> Iterator[list[Any]]: ...

    def log_start(self, topic: str, partition: int, deadline: Deadline) -> int: ...

    def leave(self, partition: int | None = None) -> None: ...

    def close(self) -> None: ...


AskOwner = Callable[[int, TxnId, TxnAck, "Future[None]", Deadline], None]
"""Have the owner of this partition let a transaction hold this; see `TransactionAcksElsewhere.ask`."""


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """`client_id` names the membership in its Kafka group; `reader` reads what is leased to it; `most_heard` records
    wait to be taken in; the topic has `partitions`, or has more by now (None: what is served is a single one of them);
    `session` is this membership's."""

    client_id: str
    life: CursorLife
    traffic: LeaseTraffic
    reader: RecordReader
    ask_owner: AskOwner
    most_heard: int = 20_000
    partitions: int | None = 1
    session: bytes = field(default_factory=new_session)
