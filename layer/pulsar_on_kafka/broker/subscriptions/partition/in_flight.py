"""Entries in flight: delivered, unacknowledged and held by a consumer of a shared subscription. No I/O, no threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import repeat

from pyroaring import BitMap64

from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Delivery, PartitionConsumer


class DeliveriesInFlight:
    """Knows the holder of each entry, and keeps the consumers' numbers of unacknowledged messages.

    Memory: one small entry for each entry in flight, two for a batch; a bit for each one that is set apart.
    """

    def __init__(self) -> None:
        self.holders: dict[int, PartitionConsumer] = {}
        self.entries: Counter[PartitionConsumer] = Counter()
        """The number of entries of each consumer."""
        self._apart = BitMap64()
        self._entries_apart: Counter[PartitionConsumer] = Counter()
        self.unacked_in: dict[int, int] = {}
        """Batch entries in flight, and how many messages of each are unacknowledged; chunked messages, and how many
        chunks they have; one for every other entry."""

    def hold(self, offsets: Sequence[int], consumer: PartitionConsumer) -> None:
        """Gives these entries, of which none is a batch entry, to this consumer."""
        self.holders.update(zip(offsets, repeat(consumer)))
        self.entries[consumer] += len(offsets)
        consumer.endpoint.unacked += len(offsets)

    def hold_batch(self, offset: int, consumer: PartitionConsumer, messages: int) -> None:
        self.holders[offset] = consumer
        self.entries[consumer] += 1
        self.unacked_in[offset] = messages
        consumer.endpoint.unacked += messages

    def set_apart(self, offsets: Iterable[int]) -> None:
        """No suspect waits for these, as long as their consumers hold them."""
        for offset in offsets:
            consumer = self.holders.get(offset)
            if consumer is not None and offset not in self._apart:
                self._apart.add(offset)
                self._entries_apart[consumer] += 1

    def waited_for(self, consumer: PartitionConsumer) -> int:
        """Returns how many entries this consumer holds that are not set apart."""
        return self.entries[consumer] - self._entries_apart[consumer]

    def acknowledged_in_batch(self, offset: int, messages: int) -> None:
        consumer = self.holders.get(offset)
        if consumer is not None and offset in self.unacked_in:
            self.unacked_in[offset] -= messages
            consumer.endpoint.unacked -= messages

    def let_go(self, offsets: Sequence[int]) -> None:
        if self._apart:
            self._not_apart(self._apart & BitMap64(offsets))
        if self.unacked_in:
            for offset in offsets:
                consumer = self.holders.pop(offset, None)
                if consumer is not None:
                    self._has_less(consumer, 1)
                    consumer.endpoint.unacked -= self.unacked_in.pop(offset, 1)
            return
        for holder, count in Counter(map(self.holders.pop, offsets, repeat(None))).items():
            if holder is not None:
                self._has_less(holder, count)
                holder.endpoint.unacked -= count

    def _not_apart(self, offsets: BitMap64) -> None:
        self._apart -= offsets
        for consumer, count in Counter(self.holders[offset] for offset in offsets).items():
            self._entries_apart[consumer] -= count
            if not self._entries_apart[consumer]:
                del self._entries_apart[consumer]

    def _has_less(self, consumer: PartitionConsumer, entries: int) -> None:
        self.entries[consumer] -= entries
        if self.entries[consumer] <= 0:
            del self.entries[consumer]

    def given_to_transaction(self, number: int, whole: list[int], batches: Mapping[int, tuple[int, int]]) -> list[int]:
        """A transaction acknowledges these entries, which are in flight, and these messages (batch size, bits) of
        others: their ack timeouts end. Returns the entries to let go."""
        gone = list(whole)
        for offset, (_, acked) in batches.items():
            if offset in self.unacked_in:
                self.acknowledged_in_batch(offset, acked.bit_count())
                if self.unacked_in[offset] <= 0:
                    gone.append(offset)
        for endpoint in {self.holders[offset].endpoint for offset in gone}:
            if endpoint.ack_timeouts is not None:
                endpoint.ack_timeouts.forget(number, BitMap64(gone))
        return gone

    def let_go_of_one(self, offset: int) -> None:
        """`let_go` for one entry that a consumer holds."""
        if offset in self._apart:
            self._not_apart(BitMap64((offset,)))
        consumer = self.holders.pop(offset)
        self._has_less(consumer, 1)
        consumer.endpoint.unacked -= self.unacked_in.pop(offset, 1) if self.unacked_in else 1

    def let_go_of_all(self) -> None:
        self.let_go(list(self.holders))

    def not_received(self, taken: Sequence[Delivery], chunked: Container[int]) -> BitMap64:
        """Returns the entries whose unacknowledged messages are all among those `taken` out of an inbox; `chunked`: the
        entries that are chunked messages."""
        waiting = Counter(delivery.offset for delivery in taken)
        unacked = self.unacked_in
        return BitMap64(o for o, messages in waiting.items() if o in chunked or messages >= unacked.get(o, 1))

    def held_by(self, consumer: PartitionConsumer) -> list[int]:
        return [offset for offset, holder in self.holders.items() if holder is consumer]

    def messages(self) -> int:
        return len(self.holders) + sum(self.unacked_in.values()) - len(self.unacked_in)
