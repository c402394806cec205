"""What a member holds of partitions that others own: in inboxes, with the application, or still to be read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pyroaring import BitMap64

from layer.cursor.batch_acks import BatchAckSet
from layer.dispatch.delivery import Feed, PartitionSlot
from layer.dispatch.endpoint import Endpoint
from layer.dispatch.in_flight import InFlight
from mapping.state_records.leases import LeasedEntry
from mapping.state_records.pending_acks import TxnAck


class LeasedPartition:
    """Memory: as InFlight, a number for each entry that was delivered before, and ack sets of batch entries."""

    def __init__(self, slot: PartitionSlot) -> None:
        self.slot = slot
        self.in_flight = InFlight()
        self.redeliveries: dict[int, int] = {}
        self.batches: dict[int, BatchAckSet] = {}
        """What is acknowledged of batch entries that are held."""
        self.chunks: dict[int, tuple[int, ...]] = {}
        """By last offset, of messages in chunks that are held."""
        self.version = 0
        """Of the newest TAKE_OVER."""
        self.owner = b""
        self.asked: int | None = None
        """A TAKE_OVER of this version is to be answered."""

    def hold(self, entries: Sequence[LeasedEntry], feed: Feed) -> None:
        plain: list[int] = []
        for entry in entries:
            if entry.redeliveries:
                self.redeliveries[entry.offset] = entry.redeliveries
            if entry.is_plain:
                plain.append(entry.offset)
                continue
            if entry.acked is not None:
                self.batches[entry.offset] = BatchAckSet(*entry.acked)
            if entry.chunks:
                self.chunks[entry.offset] = entry.chunks
            self.in_flight.hold_batch(entry.offset, feed, entry.messages)
        self.in_flight.hold(plain, feed)

    def acknowledge_in_batch(self, offset: int, acks: BatchAckSet) -> None:
        known = self.batches.get(offset) or BatchAckSet(acks.batch_size, 0)
        merged = merged_acks(known, acks)
        self.batches[offset] = merged
        self.in_flight.acknowledged_in_batch(offset, merged.acked.bit_count() - known.acked.bit_count())
        if merged.complete:
            self.let_go([offset])

    def hold_for_transaction(self, ack: TxnAck) -> None:
        """These are a transaction's now, and nobody's: their time does not run out."""
        gone = [offset for offset in ack.whole if offset in self.in_flight.holders]
        for offset, (_, acked) in ack.batches.items():
            if offset in self.in_flight.unacked_in:
                self.in_flight.acknowledged_in_batch(offset, acked.bit_count())
                if self.in_flight.unacked_in[offset] <= 0:
                    gone.append(offset)
        for endpoint in {self.in_flight.holders[offset].endpoint for offset in gone}:
            if endpoint.ack_timeouts is not None:
                endpoint.ack_timeouts.forget(self.slot.number, BitMap64(gone))
        self.let_go(gone)

    def let_go(self, offsets: Sequence[int]) -> None:
        self.in_flight.let_go(offsets)
        if self.redeliveries or self.batches or self.chunks:
            for offset in offsets:
                self.redeliveries.pop(offset, None)
                self.batches.pop(offset, None)
                self.chunks.pop(offset, None)

    def held(self) -> dict[tuple[Endpoint, int], BitMap64]:
        """By consumer and redeliveries; without messages in chunks, which come again under a new owner."""
        found: dict[tuple[Endpoint, int], list[int]] = {}
        for offset, feed in self.in_flight.holders.items():
            if offset not in self.chunks:
                found.setdefault((feed.endpoint, self.redeliveries.get(offset, 0)), []).append(offset)
        return {key: BitMap64(offsets) for key, offsets in found.items()}


def merged_acks(known: BatchAckSet | None, more: BatchAckSet) -> BatchAckSet:
    if known is None or known.batch_size != more.batch_size:
        return more
    return BatchAckSet(known.batch_size, known.acked | more.acked)


class ToRead(NamedTuple):
    """Leased entries whose records are not here yet."""

    partition: LeasedPartition
    endpoint: Endpoint
    entries: tuple[LeasedEntry, ...]
    messages: int


class Holdings:
    """All of it, by partition. Memory: what LeasedPartition says for each; `to_read` refers to entries held there."""

    def __init__(self) -> None:
        self.partitions: dict[int, LeasedPartition] = {}
        self.to_read: deque[ToRead] = deque()

    @property
    def holds_any(self) -> bool:
        return any(leased.in_flight.holders for leased in self.partitions.values())

    def of(self, slot: PartitionSlot) -> LeasedPartition:
        leased = self.partitions.get(slot.number)
        if leased is None:
            leased = self.partitions[slot.number] = LeasedPartition(slot)
        return leased

    def on_the_way(self, endpoint: Endpoint) -> int:
        """Messages that were leased to this consumer and are not in its inbox yet."""
        return sum(each.messages for each in self.to_read if each.endpoint is endpoint)

    def do_not_read(self, which: Callable[[ToRead], bool]) -> list[ToRead]:
        """Take these out of what is to be read; they stay held."""
        taken = [each for each in self.to_read if which(each)]
        self.to_read = deque(each for each in self.to_read if not which(each))
        return taken

    def drop_consumer(self, endpoint: Endpoint) -> None:
        """Hold nothing for it."""
        self.do_not_read(lambda each: each.endpoint is endpoint)
        for leased in self.partitions.values():
            leased.let_go(leased.in_flight.held_by(endpoint.feed(leased.slot)))

    def give_back(self, number: int) -> LeasedPartition | None:
        """The partition became this process's own: what is held of it, without what was not read yet."""
        leased = self.partitions.pop(number, None)
        if leased is not None:
            for each in self.do_not_read(lambda each: each.partition is leased):
                leased.let_go([entry.offset for entry in each.entries])
        return leased
