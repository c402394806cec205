"""What an operator sees of topics and subscriptions. Plain values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartitionCursorStats:
    """One subscription on one partition, as last saved (at most the persist interval old).

    `mark_delete` is the last offset below which everything is acknowledged (-1: nothing), `end` the log's end,
    `backlog` counts unacknowledged entries, `individually_deleted` acknowledged ones above mark-delete, `holes` ranges
    that are unacknowledged below the highest acknowledged one.
    """

    partition: int
    mark_delete: int
    start: int
    end: int
    backlog: int
    individually_deleted: int
    holes: int
    saved_in: str
    """Where the state lies: `commit` (all of it in the group commit), `segments`, `checkpoint` or `start`."""
    owner: str
    """Client id and host of the process that owns the partition; '' when nobody does."""


@dataclass(frozen=True, slots=True)
class SubscriptionStats:
    """One subscription. `consumers` names the live processes in its group (a process may hold many consumers)."""

    topic: str
    subscription: str
    type: str
    group: str
    backlog: int
    individually_deleted: int
    consumers: tuple[str, ...]
    partitions: tuple[PartitionCursorStats, ...]


@dataclass(frozen=True, slots=True)
class TopicStats:
    """One topic. `entries` counts what is in Kafka now; `subscriptions` maps names to backlogs."""

    topic: str
    kafka_topic: str
    partitions: int
    partitioned: bool
    bound: bool
    entries: int
    start_offsets: dict[int, int]
    end_offsets: dict[int, int]
    entries_per_ledger: int
    subscriptions: dict[str, int]
