"""Outcomes are what a coordinator does outside of its own log, as it sees it: the places where a transaction takes
effect.

Every call is idempotent, because whoever takes the coordinator over does it again. A coordinator that was paused may
make a call long after another one did: then it says what was decided, since it was durable and valid before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import StoreError
from pulsar_on_kafka.mapping.ids.txn_id import TxnId
from pulsar_on_kafka.mapping.state.transactions.transaction_log import TopicPartition, TopicSubscription


@dataclass(frozen=True, slots=True)
class Opened:
    """An OPEN in a partition's buffer: the topic's life then, and below which offset none of its records lies."""

    incarnation: int
    lower_bound: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A transaction that is COMMITTING or ABORTING in the log, durable and valid, and what takes part in it, as far as
    something is left to be done there.

    `deadline_ms` is the Unix time at which it would have timed out: no record of it carries a later time. `opened`: its
    OPENs, when the session that ends it wrote all there are; otherwise the buffers tell. `again`: some of this may have
    been done before, by another session or by an attempt that failed.
    """

    txn: TxnId
    committed: bool
    partitions: tuple[TopicPartition, ...]
    subscriptions: tuple[TopicSubscription, ...]
    deadline_ms: int = 0
    opened: Mapping[TopicPartition, Opened] = field(default_factory=dict)
    again: bool = False


Announcement: TypeAlias = tuple[TxnId, Sequence[TopicPartition]]
"""A transaction, and where it is about to write."""


class PartitionsFailed(StoreError):
    """A call failed in these data partitions, or nobody knows. In `announce` nothing was done then; in `write_markers`
    and `settle_buffers` everything in the others."""

    def __init__(
        self, partitions: Iterable[TopicPartition], reason: str, unreached: Iterable[TopicPartition] = ()
    ) -> None:
        """`unreached`: more of them, which there was only no time for: the next call goes on with these."""
        super().__init__(reason)
        self.unreached = frozenset(unreached)
        self.partitions = self.unreached.union(partitions)

    @property
    def troubled(self) -> frozenset[TopicPartition]:
        """Those in which something failed."""
        return self.partitions - self.unreached


class Outcomes(Protocol):
    """Each call returns when everything it was given is durable, and raises a LayerError otherwise; then the
    coordinator does it again, later. What cannot take part any more (its topic or subscription was deleted) is done.

    `session` is the coordinator's, for keys of its records.
    """

    def announce(
        self, participants: Sequence[Announcement], session: str, deadline: Deadline
    ) -> Mapping[tuple[TxnId, TopicPartition], Opened]:
        """OPEN entries in the buffers: these transactions are about to write there. A transaction may be over by the
        time it is written, or announced a second time by another session with a later lower bound.

        Raises PartitionsFailed where it knows which ones."""
        ...

    def write_markers(self, ended: Sequence[Ended], deadline: Deadline) -> None:
        """Commit and abort markers into the data partitions. Raises PartitionsFailed where it knows which ones, also
        when it is longer under way than others should have to wait for."""
        ...

    def end_acks(self, ended: Sequence[Ended], deadline: Deadline) -> None:
        """ENDs to the pending acks of the subscriptions."""
        ...

    def settle_buffers(
        self, ended: Sequence[Ended], session: str, deadline: Deadline, along: Sequence[Announcement] = ()
    ) -> Mapping[tuple[TxnId, TopicPartition], Opened]:
        """Buffer entries: OPEN goes, of an aborted one ABORTED stands before that. `along` is announced together with
        that, and with the errors, of `announce`; after NoSuchTopic and PartitionsFailed none of that was.

        Raises PartitionsFailed where it knows which ones."""
        ...

    def publish_low_water(self, coordinator: int, low_water: int, session: str, deadline: Deadline) -> None:
        """Every transaction of this coordinator at or below this id is finished for good. The highest ever said
        counts."""
        ...
