"""A partition's statistics are what its member tells of it."""

from __future__ import annotations

from dataclasses import dataclass


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
