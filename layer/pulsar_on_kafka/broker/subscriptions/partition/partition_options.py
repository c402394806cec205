"""Constructor options of an owned partition, and its statistics."""

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
    """Messages that consumers in other clusters have acknowledged. Source: `replicated.acknowledged_elsewhere`."""

    def of(
        self, cursor: CursorState, offsets: Sequence[int], records: Sequence[Any]
    ) -> tuple[list[int], Mapping[int, tuple[int, int]]]:
        """Returns the entries of these records, and (number of messages, bits) of batch entries. Raises StoreError."""


class PartitionLog(Protocol):
    """The log of a partition, as the partition reads it during dispatch."""

    def log_end(self, partition: int) -> int:
        """Returns the log's end, as Kafka reports it now. Raises StoreError."""

    def record(self, partition: int, offset: int) -> Any | None:
        """Reads the record of one entry again; None if it cannot be read now."""


class DispatchLimit(Protocol):
    """The dispatch rates of a partition's subscription and topic."""

    allowed: int
    """The number of messages that may be delivered now."""

    def delivered(self, entries: int, messages: int, size_bytes: int) -> None:
        """Counts what was delivered, and so lowers `allowed`."""

    def due_s(self, now_s: float) -> float:
        """Returns the time at which the next messages may be delivered, on the monotonic clock."""


@dataclass(frozen=True, slots=True)
class PartitionTerms:
    """Options of an owned partition. The default is for one that no process reads: the log's end that other processes
    report is believed, and no record is read again."""

    log: PartitionLog | None = None
    store: CursorStore | None = None
    """Bounds the memory of cursors, and reads back what is out of memory."""
    now_ms: Callable[[], int] = lambda: 0
    chunks: ChunkAssembly = field(default_factory=ChunkAssembly)
    fences: Fences = field(default_factory=Fences)
    """The fences that make records void; empty while no exclusive producer wrote here."""
    delays: bool = False
    """Delayed messages wait; Exclusive and Failover deliver them at once, as Pulsar does."""
    compacted: CompactedRange | None = None
    """For compacted reading: the messages that are delivered."""
    elsewhere: RemoteAckSource | None = None
    """For replicated subscriptions: what consumers in other clusters have acknowledged."""


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
class WaitingKeys:
    """Keys of one partition that wait for a refused message (`ordered_redelivery`). On Exclusive and Failover
    the whole partition counts as one key."""

    keys: int
    """Hash slots; keys of one slot wait together."""
    messages: int
    """Messages that were read and wait."""
    oldest: int
    """The offset of the refused message of the key that has waited longest."""
    for_s: float
    """The time since that key's first refusal."""


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
    """Unacknowledged entries up to the log's end, as Kafka reported it with the last fetch."""
    holes: int = 0
    state_bytes: int = 0
    """The size of the holes on Kafka, as last saved."""
    ledgers_in_memory: int = 0
    """Ledgers whose holes are in memory; the others are read back when they are needed."""
    given_up_chunks: int = 0
    suspects: int = 0
    """Messages that a dead consumer may have had, and that were not acknowledged or refused since."""
    waiting: tuple[WaitingFor, ...] = ()
    waiting_keys: WaitingKeys | None = None
    """With ordered redelivery, the keys that wait for a refused message."""
