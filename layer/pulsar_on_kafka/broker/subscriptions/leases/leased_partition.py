"""A leased partition belongs to another owner. A member's entries of it are in inboxes, with the application, or
unread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from pyroaring import BitMap64

from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.subscriptions.dispatching.batch_nacks import HeldHere
from pulsar_on_kafka.broker.subscriptions.partition.in_flight import DeliveriesInFlight
from pulsar_on_kafka.broker.subscriptions.records.chunks import Known
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import (
    Delivery,
    Endpoint,
    PartitionAcks,
    PartitionConsumer,
)
from pulsar_on_kafka_mapping.state.cursors.lease_records import LeasedEntry, Nack
from pulsar_on_kafka_mapping.state.transactions.pending_acks import TxnAck

_END: Final = 2**64 - 1


class HeldBefore:
    """Messages that consumers received, and no longer hold, without an acknowledgement. A cumulative acknowledgement of
    a later message counts for them as well.

    Memory: a compressed bitmap, and the chunks' offsets of messages in chunks.
    """

    def __init__(self) -> None:
        self._offsets = BitMap64()
        self._chunks: dict[int, Sequence[int]] = {}

    def add(self, offsets: BitMap64, chunks: Mapping[int, Sequence[int]]) -> None:
        """`chunks`: the offsets of each message in chunks, by its last chunk's offset."""
        self._offsets |= offsets
        self._chunks.update(chunks)

    def take(self, upto: int) -> BitMap64:
        """Everything at or before `upto`, with the chunks of messages that end there."""
        taken = self._offsets.copy()
        taken.remove_range(upto + 1, _END)
        self._offsets.remove_range(0, upto + 1)
        for last in [last for last in self._chunks if last <= upto]:
            taken |= BitMap64(self._chunks.pop(last))
        return taken

    def acknowledged(self, offsets: Sequence[int]) -> None:
        """Consumers acknowledged these individually."""
        if self._offsets:
            self._offsets -= BitMap64(offsets)
        for offset in offsets if self._chunks else ():
            self._chunks.pop(offset, None)


class _Refusal(NamedTuple):
    """A refused entry, its hash slot, and the offset of the report that contains the refusal (None: not written)."""

    offset: int
    slot: int
    reported_at: int | None


class LeasedKeys:
    """Hash slots of the entries that consumers hold, with ordered redelivery, and refusals that the owner may not have
    applied when it leased further entries.

    Memory: a number for each held entry, and an entry for each refusal until the owner has read it.
    """

    def __init__(self) -> None:
        self.slots: dict[int, int] = {}
        """Changed by the member's thread, read by any thread."""
        self._refusals: list[_Refusal] = []

    def refuse(self, offsets: Sequence[int]) -> None:
        """A consumer refused these entries, which it holds."""
        for offset in offsets:
            slot = self.slots.get(offset)
            if slot is not None:
                self._refusals.append(_Refusal(offset, slot, None))

    def written(self, nacks: Collection[int], reported_at: int) -> None:
        """A report with these negative acknowledgements is in the log."""
        self._refusals = [
            each._replace(reported_at=reported_at) if each.reported_at is None and each.offset in nacks else each
            for each in self._refusals
        ]

    def forget_read_by_owner(self, heard: int) -> None:
        """All leases that wait here were written after the owner had read the reports below this offset."""
        if self._refusals:
            self._refusals = [each for each in self._refusals if each.reported_at is None or each.reported_at >= heard]

    def wait(self, offset: int, slot: int, heard: int = 0) -> bool:
        """Whether an entry waits behind a refused one of its slot. `heard`: that of its lease."""
        return any(
            each.slot == slot and each.offset < offset and (each.reported_at is None or each.reported_at >= heard)
            for each in self._refusals
        )

    def is_waiting(self, offset: int) -> bool:
        """The same for an entry that a consumer holds."""
        slot = self.slots.get(offset)
        return slot is not None and self.wait(offset, slot)

    def let_go(self, offsets: Sequence[int]) -> None:
        if self.slots:
            for offset in offsets:
                self.slots.pop(offset, None)

    def clear(self) -> None:
        """All entries are given up."""
        self._refusals.clear()


class LeasedPartition:
    """The entries of one partition that this process's consumers hold. Memory: that of InFlight, HeldBefore and
    LeasedKeys, a number for each entry that was delivered before, and ack sets of batch entries."""

    def __init__(self, slot: PartitionAcks) -> None:
        self.slot = slot
        self.in_flight = DeliveriesInFlight()
        self.keys = LeasedKeys()
        self.redeliveries: dict[int, int] = {}
        self.batches: dict[int, BatchAckSet] = {}
        """Acknowledged messages of batch entries that are held."""
        self.chunks: dict[int, Known] = {}
        """Held messages in chunks, by their last chunk's offset."""
        self.version = 0
        """The version in the newest TAKE_OVER."""
        self.owner = b""
        self.requested: int | None = None
        """The version of a TAKE_OVER that waits for this member's reply."""
        self.held_before = HeldBefore()
        """Used where messages go to one consumer at a time."""
        self.given_back = False
        """A consumer gave everything back, and receives nothing before the owner's recall."""
        self.refused = BitMap64()
        """The entries that a consumer negatively acknowledged since the last recall, and holds (Failover)."""

    def as_held(self) -> HeldHere:
        """The entries in the form that does not depend on the partition's owner."""
        return HeldHere(self.slot, self.in_flight, self.batches.get, self.redeliveries)

    def hold(self, entries: Sequence[LeasedEntry], feed: PartitionConsumer) -> None:
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
                self.chunks[entry.offset] = Known(entry.chunks, entry.total_bytes)
            self.in_flight.hold_batch(entry.offset, feed, entry.messages)
        self.in_flight.hold(plain, feed)

    def acknowledge_in_batch(self, offset: int, acks: BatchAckSet) -> None:
        known = self.batches.get(offset) or BatchAckSet(acks.batch_size, 0)
        merged = acks.and_also(known)
        self.batches[offset] = merged
        self.in_flight.acknowledged_in_batch(offset, merged.acked.bit_count() - known.acked.bit_count())
        if merged.complete:
            self.let_go([offset])

    def hold_for_transaction(self, ack: TxnAck) -> None:
        """A transaction holds these entries now, and no consumer does."""
        gone = [offset for offset in ack.whole if offset in self.in_flight.holders]
        if ack.cumulative is not None:
            last = ack.cumulative.offset - (ack.cumulative.batch_size > 0)
            gone += [offset for offset in self.in_flight.holders if offset <= last and offset not in ack.whole]
        self.let_go(self.in_flight.given_to_transaction(self.slot.number, gone, ack.batches))

    def acknowledge_up_to(self, upto: int) -> BitMap64:
        """Take all records that consumers hold or held at or before `upto`, with all chunks of messages that end there,
        and no chunk of messages that end later."""
        acked = self.held_before.take(upto)
        held = [offset for offset in self.in_flight.holders if offset <= upto]
        acked |= BitMap64(held)
        for offset in held if self.chunks else ():
            if offset in self.chunks:
                acked |= BitMap64(self.chunks[offset].offsets)
        self.let_go(held)
        return acked

    def forget(self) -> None:
        """Drop all entries; cumulative acknowledgements still count for them."""
        plain = BitMap64(offset for offset in self.in_flight.holders if offset not in self.chunks)
        self.held_before.add(plain, {last: known.offsets for last, known in self.chunks.items()})
        self.given_back = False
        self.refused.clear()
        self.let_go(list(self.in_flight.holders))

    def let_go(self, offsets: Sequence[int]) -> None:
        self.in_flight.let_go(offsets)
        self.keys.let_go(offsets)
        if self.redeliveries or self.batches or self.chunks:
            for offset in offsets:
                self.redeliveries.pop(offset, None)
                self.batches.pop(offset, None)
                self.chunks.pop(offset, None)

    def held(self) -> dict[tuple[Endpoint, int], BitMap64]:
        """The held offsets, by consumer and number of redeliveries."""
        found: dict[tuple[Endpoint, int], list[int]] = {}
        for offset, feed in self.in_flight.holders.items():
            found.setdefault((feed.endpoint, self.redeliveries.get(offset, 0)), []).append(offset)
        return {key: BitMap64(offsets) for key, offsets in found.items()}


class ToRead(NamedTuple):
    """Leased entries whose records are unread."""

    partition: LeasedPartition
    endpoint: Endpoint
    entries: tuple[LeasedEntry, ...]
    heard: int = 0
    """That of their lease (`Lease.heard`)."""

    @property
    def messages(self) -> int:
        return sum(entry.messages for entry in self.entries)


class LeasedPartitions:
    """All leased partitions. Memory: that of LeasedPartition for each; `to_read` refers to entries held there."""

    def __init__(self) -> None:
        self.partitions: dict[int, LeasedPartition] = {}
        self.to_read: deque[ToRead] = deque()

    @property
    def holds_any(self) -> bool:
        return any(leased.in_flight.holders for leased in self.partitions.values())

    def of(self, slot: PartitionAcks) -> LeasedPartition:
        leased = self.partitions.get(slot.number)
        if leased is None:
            leased = self.partitions[slot.number] = LeasedPartition(slot)
        return leased

    def on_the_way(self, endpoint: Endpoint) -> int:
        """The number of messages that were leased to this consumer and are unread."""
        return sum(each.messages for each in self.to_read if each.endpoint is endpoint)

    def do_not_read(self, which: Callable[[ToRead], bool]) -> list[ToRead]:
        """Take these out of `to_read`; they stay held."""
        taken = [each for each in self.to_read if which(each)]
        self.to_read = deque(each for each in self.to_read if not which(each))
        return taken

    def drop_consumer(self, endpoint: Endpoint) -> None:
        self.do_not_read(lambda each: each.endpoint is endpoint)
        for leased in self.partitions.values():
            leased.let_go(leased.in_flight.held_by(endpoint.feed(leased.slot)))

    def take_back(self, endpoint: Endpoint, taken: Mapping[int, Sequence[Delivery]]) -> None:
        """A draining consumer holds only what it received: not `taken`, by partition, and no unread entry."""
        for each in self.do_not_read(lambda each: each.endpoint is endpoint):
            each.partition.let_go([entry.offset for entry in each.entries])
        for number in taken.keys() & self.partitions.keys():
            leased = self.partitions[number]
            feed, in_flight = endpoint.feed(leased.slot), leased.in_flight
            back = in_flight.not_received(taken[number], leased.chunks)
            leased.let_go([offset for offset in back if in_flight.holders.get(offset) is feed])

    def reasons_of(self, nacks: Mapping[int, Sequence[Nack]]) -> dict[int, dict[str, BitMap64]]:
        """The reasons that consumers gave for these negative acknowledgements, by partition."""
        found: dict[int, dict[str, BitMap64]] = {}
        for number, each in nacks.items():
            leased = self.partitions.get(number)
            if leased is not None and leased.slot.reasons:
                found[number] = leased.slot.reasons.of(nack.offset for nack in each)
        return {number: reasons for number, reasons in found.items() if reasons}

    def give_back(self, number: int) -> LeasedPartition | None:
        """Remove a partition that this process owns now. Returns its held entries, without unread ones."""
        leased = self.partitions.pop(number, None)
        if leased is not None:
            for each in self.do_not_read(lambda each: each.partition is leased):
                leased.let_go([entry.offset for entry in each.entries])
        return leased
