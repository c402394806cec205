"""Partition terms are what an owned partition is born with, besides its cursor; statistics are what is told of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.store import CursorStore
from pulsar_on_kafka.broker.metadata.producers.fences import Fences
from pulsar_on_kafka.broker.subscriptions.records.chunks import ChunkAssembly
from pulsar_on_kafka.broker.subscriptions.records.compaction import CompactedRange


class RemoteAckSource(Protocol):
    """Messages that consumers in other clusters have done with. Source: `replicated.acknowledged_elsewhere`."""

    def of(
        self, cursor: CursorState, offsets: Sequence[int], records: Sequence[Any]
    ) -> tuple[list[int], Mapping[int, tuple[int, int]]]:
        """Of these records the entries, and (number of messages, bits) of batch entries. Raises StoreError."""


class PartitionLog(Protocol):
    """What a partition asks of its log while it is handed out."""

    def log_end(self, partition: int) -> int:
        """Where the log ends, as Kafka says now. Raises StoreError."""

    def record(self, partition: int, offset: int) -> Any | None:
        """The record of one entry, read again; None when it cannot be had just now."""


@dataclass(frozen=True, slots=True)
class PartitionTerms:
    """What a partition is read and handed out by. The default is that of one that nobody reads: what others say of its
    log's end is believed, and nothing of it is read again."""

    log: PartitionLog | None = None
    store: CursorStore | None = None
    """Its cursors' memory is kept within, and what is out of memory is read back from it."""
    now_ms: Callable[[], int] = lambda: 0
    chunks: ChunkAssembly = field(default_factory=ChunkAssembly)
    fences: Fences = field(default_factory=Fences)
    """What makes records void; empty while no exclusive producer wrote here."""
    delays: bool = False
    """Delayed messages wait; Exclusive and Failover deliver them at once, as Pulsar does."""
    compacted: CompactedRange | None = None
    """For compacted reading: what is delivered."""
    elsewhere: RemoteAckSource | None = None
    """On replicated subscriptions: what consumers in other clusters have done with."""


@dataclass(frozen=True, slots=True)
class WaitingFor:
    """Messages of one partition that wait for one Key_Shared consumer."""

    consumer: str
    member: str
    """Client id of another process's membership; '' for a consumer of this process."""
    messages: int
    for_s: float
    """Since the last moment at which nothing waited for it."""


@dataclass(frozen=True, slots=True)
class PartitionStats:
    """One owned partition at one moment. Offsets are Kafka's; `in_flight` counts messages, the others entries.

    `corrupt_entries`: how many could not be read and were skipped, since this process owns the partition;
    `given_up_chunks`: chunks that will never be a message, and were acknowledged for that. `holes`: unacknowledged
    ranges below the highest acknowledged entry.
    """

    partition: int
    mark_delete: int
    read_position: int
    individually_deleted: int
    in_flight: int
    waiting_for_redelivery: int
    buffered: int
    delayed: int
    stopped: str | None
    corrupt_entries: int = 0
    backlog: int = 0
    """Unacknowledged entries up to the log's end, as Kafka last told it with what it sent."""
    holes: int = 0
    state_bytes: int = 0
    """What the holes take on Kafka, as last saved."""
    ledgers_in_memory: int = 0
    """Ledgers whose holes are in memory; the others are read back when they are needed."""
    given_up_chunks: int = 0
    suspects: int = 0
    """Messages that a consumer which died may have had, and nobody acknowledged or refused since."""
    waiting: tuple[WaitingFor, ...] = ()
