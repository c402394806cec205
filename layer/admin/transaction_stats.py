"""Statistics describe one transaction, and the comparison of a transaction buffer with its log, to an operator. Plain
values."""

from __future__ import annotations

from dataclasses import dataclass

from pulsar_on_kafka.mapping.state.transactions.transaction_log import TopicPartition, TopicSubscription
from pulsar_on_kafka.transactions.buffer.model import DataPartition
from pulsar_on_kafka.transactions.buffer.verify import Difference
from pulsar_on_kafka.transactions.records.inspection import TransactionInfo
from pulsar_on_kafka.transactions.records.place_inspection import TransactionInBuffer, TransactionInPendingAck


@dataclass(frozen=True, slots=True)
class TransactionDetails:
    """One transaction, and what is on record of it where it takes part.

    Attributes:
        left_ms: until it is aborted, of an open one; below 0: it should be by now (nobody serves its coordinator, or
            clocks differ).
        gone: partitions and subscriptions that were deleted since.
    """

    info: TransactionInfo
    left_ms: int | None
    buffers: tuple[TransactionInBuffer, ...]
    pending_acks: tuple[TransactionInPendingAck, ...]
    gone: tuple[TopicPartition | TopicSubscription, ...]


@dataclass(frozen=True, slots=True)
class VerifiedBuffer:
    """One partition whose log, from `start` to `end`, was compared with its transaction buffer.

    `records` are the transactional ones that were read, of `transactions`.
    """

    where: DataPartition
    start: int
    end: int
    transactions: int
    records: int
    differences: tuple[Difference, ...]

    @property
    def harmful(self) -> tuple[Difference, ...]:
        """Those that are not explained by a transaction that is just being ended."""
        return tuple(difference for difference in self.differences if not difference.finding.is_harmless)
