"""A message on its way to a consumer, and where its acknowledgement goes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from pulsar_on_kafka.kafka.records import KafkaRecord
from pulsar_on_kafka.mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka.mapping.records.batch_entry import BatchColumns
from pulsar_on_kafka.mapping.records.message_record import RecordHeaders

if TYPE_CHECKING:
    from pulsar_on_kafka.subscriptions.records.endpoint import Endpoint

BatchAck = tuple[int, int, int]
"""(offset of a batch entry, batch index, number of its messages)."""


class PartitionSlot:
    """One partition as the consumers of this process see it; outlives revocation and a later assignment.

    `acks`, `cumulative`, their counterparts for messages of batch entries (which hold `BatchAck`s) and `nacks` are
    filled by any thread and drained by the member's. They hold offsets; what arrives for a partition that this process
    does not own any more is dropped, and the message is delivered again by its new owner.
    Bounded by what was delivered: one offset per acknowledgement not yet drained (at most some milliseconds' worth).
    """

    __slots__ = (
        "ack",
        "ack_in_batch",
        "acks",
        "acks_in_batch",
        "cumulative",
        "cumulative_in_batch",
        "forgotten",
        "layout",
        "nacks",
        "nacks_in_batch",
        "number",
        "partition_field",
        "topic_name",
    )

    def __init__(self, topic_name: str, number: int, partition_field: int, layout: LedgerLayout) -> None:
        self.topic_name = topic_name
        """Full name, with the partition's suffix on a partitioned topic."""
        self.number = number
        self.partition_field = partition_field
        """What `MessageId.partition()` shows: -1 on a non-partitioned topic."""
        self.layout = layout
        self.acks: deque[int] = deque()
        self.ack = self.acks.append
        self.cumulative: deque[int] = deque()
        self.nacks: deque[tuple[float, float, int, Endpoint]] = deque()
        """(now on the monotonic clock, delay, offset, consumer)."""
        self.nacks_in_batch: deque[tuple[float, float, int, Endpoint, int, int]] = deque()
        """The same of messages of batch entries, then batch index and number of messages (Shared, Key_Shared)."""
        self.acks_in_batch: deque[BatchAck] = deque()
        self.ack_in_batch = self.acks_in_batch.append
        self.cumulative_in_batch: deque[BatchAck] = deque()
        self.forgotten = 0
        """How often all that had been handed out was given up (a seek, a rewinding, another owner) and comes again.
        Written by the member's thread, before the inboxes are emptied."""

    def has_acknowledgements(self) -> bool:
        return bool(self.acks or self.acks_in_batch or self.cumulative or self.cumulative_in_batch)

    def forget_acknowledgements(self) -> bool:
        """Drop what was not drained; True when there was something."""
        lost = self.has_acknowledgements()
        for waiting in (self.acks, self.cumulative, self.acks_in_batch, self.cumulative_in_batch):
            waiting.clear()
        return lost


class Feed:
    """One partition's messages for one consumer; every message of it points here."""

    __slots__ = ("endpoint", "slot")

    def __init__(self, slot: PartitionSlot, endpoint: Endpoint) -> None:
        self.slot = slot
        self.endpoint = endpoint


class Delivery:
    """One message handed to one consumer. `redeliveries` is 0 the first time."""

    __slots__ = ("feed", "offset", "record", "redeliveries")

    in_batch: ClassVar[Callable[[KafkaRecord, Feed, int, int, int, BatchEntry], Delivery]]
    """Makes the delivery of one message of a batch entry: the same, then batch index and entry."""
    in_chunks: ClassVar[Callable[[KafkaRecord, Feed, int, int], Delivery]]
    """Makes the delivery of a message that came in chunks; its record is a `WholeMessage`."""

    def __init__(self, record: KafkaRecord, feed: Feed, offset: int, redeliveries: int) -> None:
        self.record = record
        self.feed = feed
        self.offset = offset
        self.redeliveries = redeliveries


Delivery.in_chunks = Delivery


class BatchEntry:
    """What the deliveries of one batch entry share."""

    __slots__ = ("columns", "headers", "size")

    def __init__(self, columns: BatchColumns, size: int) -> None:
        self.columns = columns
        self.size = size
        self.headers: RecordHeaders | None = None
        """The record's, once somebody has asked."""
