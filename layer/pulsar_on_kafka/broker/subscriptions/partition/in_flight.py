"""Entries in flight are handed out, unacknowledged and held by a consumer (shared subscriptions), or by a transaction.
No I/O, no threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

from pyroaring import BitMap64

from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import PartitionConsumer
from pulsar_on_kafka.broker.transactions.pending_acks.holdings import Holdings


class DeliveriesInFlight:
    """Keeps the endpoints' numbers of unacknowledged messages, too.

    Memory: one small entry for each entry in flight, two for a batch; a bit for each one that is set apart.
    """

    def __init__(self) -> None:
        self.holders: dict[int, PartitionConsumer] = {}
        self.entries: Counter[PartitionConsumer] = Counter()
        """How many each holds."""
        self._apart = BitMap64()
        self._entries_apart: Counter[PartitionConsumer] = Counter()
        self.unacked_in: dict[int, int] = {}
        """Batch entries in flight, and how many messages of each are unacknowledged; chunked messages, and how many
        chunks they have; one for every other entry."""

    def hold(self, offsets: Sequence[int], feed: PartitionConsumer) -> None:
        """This consumer has these; none of them is a batch entry."""
        self.holders.update(zip(offsets, repeat(feed)))
        self.entries[feed] += len(offsets)
        feed.endpoint.unacked += len(offsets)

    def hold_batch(self, offset: int, feed: PartitionConsumer, messages: int) -> None:
        self.holders[offset] = feed
        self.entries[feed] += 1
        self.unacked_in[offset] = messages
        feed.endpoint.unacked += messages

    def set_apart(self, offsets: Iterable[int]) -> None:
        """No suspect waits for these, as long as their consumers hold them."""
        for offset in offsets:
            feed = self.holders.get(offset)
            if feed is not None and offset not in self._apart:
                self._apart.add(offset)
                self._entries_apart[feed] += 1

    def waited_for(self, feed: PartitionConsumer) -> int:
        """How many entries this consumer holds that are not set apart."""
        return self.entries[feed] - self._entries_apart[feed]

    def acknowledged_in_batch(self, offset: int, messages: int) -> None:
        feed = self.holders.get(offset)
        if feed is not None and offset in self.unacked_in:
            self.unacked_in[offset] -= messages
            feed.endpoint.unacked -= messages

    def let_go(self, offsets: Sequence[int]) -> None:
        if self._apart:
            self._not_apart(self._apart & BitMap64(offsets))
        if self.unacked_in:
            for offset in offsets:
                feed = self.holders.pop(offset, None)
                if feed is not None:
                    self._has_less(feed, 1)
                    feed.endpoint.unacked -= self.unacked_in.pop(offset, 1)
            return
        for holder, count in Counter(map(self.holders.pop, offsets, repeat(None))).items():
            if holder is not None:
                self._has_less(holder, count)
                holder.endpoint.unacked -= count

    def _not_apart(self, offsets: BitMap64) -> None:
        self._apart -= offsets
        for feed, count in Counter(self.holders[offset] for offset in offsets).items():
            self._entries_apart[feed] -= count
            if not self._entries_apart[feed]:
                del self._entries_apart[feed]

    def _has_less(self, feed: PartitionConsumer, entries: int) -> None:
        self.entries[feed] -= entries
        if self.entries[feed] <= 0:
            del self.entries[feed]

    def given_to_transaction(self, number: int, whole: list[int], batches: Mapping[int, tuple[int, int]]) -> list[int]:
        """A transaction acknowledges these entries, which are in flight, and these messages (batch size, bits) of
        others: their time does not run out. Gives the entries that are to be let go."""
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
        """`let_go` for an entry that somebody holds."""
        if offset in self._apart:
            self._not_apart(BitMap64((offset,)))
        feed = self.holders.pop(offset)
        self._has_less(feed, 1)
        feed.endpoint.unacked -= self.unacked_in.pop(offset, 1) if self.unacked_in else 1

    def let_go_of_all(self) -> None:
        self.let_go(list(self.holders))

    def held_by(self, feed: PartitionConsumer) -> list[int]:
        return [offset for offset, holder in self.holders.items() if holder is feed]

    def messages(self) -> int:
        return len(self.holders) + sum(self.unacked_in.values()) - len(self.unacked_in)


class TransactionHolds:
    """Keeps entries of a partition from being handed out while transactions are open.

    Held entries stay where they are; each is put `back` when it would go out, or when it was out already. What is put
    back comes again when its transaction is aborted; the others come by themselves.

    Memory: compressed bitmaps, besides what Holdings says."""

    def __init__(self) -> None:
        self.holdings = Holdings()
        """Those of the partition's `PendingAcks`, once there are any."""
        self.back = BitMap64()

    def __bool__(self) -> bool:
        return bool(self.holdings)

    def __contains__(self, offset: int) -> bool:
        """Held as a whole."""
        return self.holdings.is_held(offset)

    def without(self, offsets: list[int], records: list[Any]) -> tuple[list[int], list[Any]]:
        """Of these, by ascending offset and not empty, what is not held as a whole; the others are put back."""
        held = self.holdings.whole_in(offsets[0], offsets[-1] + 1)
        held &= BitMap64(offsets)
        if not held:
            return offsets, records
        self.back |= held
        keep = [i for i, offset in enumerate(offsets) if offset not in held]
        return [offsets[i] for i in keep], [records[i] for i in keep]

    def take_from(self, waiting: BitMap64) -> None:
        if not self.holdings or not waiting:
            return
        held = self.among(waiting)
        if held:
            self.back |= held
            waiting -= held

    def among(self, offsets: BitMap64) -> BitMap64:
        if not self.holdings or not offsets:
            return BitMap64()
        return self.holdings.whole_in(int(offsets.min()), int(offsets.max()) + 1) & offsets

    def with_held(self, offset: int, acked: BatchAckSet | None) -> BatchAckSet | None:
        """Messages of a batch entry that are not to be handed out: `acked` ones, and held ones."""
        held = self.holdings.batch(offset) if self.holdings else None
        return acked if held is None else held.and_also(acked)
