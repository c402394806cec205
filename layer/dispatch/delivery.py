"""A message on its way to a consumer, and where its acknowledgement goes."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from layer.kafka.records import KafkaRecord
from mapping.ledger import LedgerLayout

if TYPE_CHECKING:
    from layer.dispatch.endpoint import Endpoint


class PartitionSlot:
    """One partition as the consumers of this process see it; outlives revocation and a later assignment.

    `acks` and `cumulative` are filled by any thread and drained by the member's. They hold offsets; what arrives for a
    partition that this process does not own any more is dropped, and the message is delivered again by its new owner.
    Bounded by what was delivered: one offset per acknowledgement not yet drained (at most some milliseconds' worth).
    """

    __slots__ = ("ack", "acks", "cumulative", "layout", "number", "partition_field", "topic_name")

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

    def forget_acknowledgements(self) -> bool:
        """Drop what was not drained; True when there was something."""
        lost = bool(self.acks or self.cumulative)
        self.acks.clear()
        self.cumulative.clear()
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

    def __init__(self, record: KafkaRecord, feed: Feed, offset: int, redeliveries: int) -> None:
        self.record = record
        self.feed = feed
        self.offset = offset
        self.redeliveries = redeliveries
