"""Redeliveries of one partition: the entries that wait to be delivered again, and the redelivery count of each. No
I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from pyroaring import BitMap64

from pulsar_on_kafka.base.meters import SubscriptionMeter
from pulsar_on_kafka.broker.subscriptions.partition.entry_delivery import EntryNotes
from pulsar_on_kafka.broker.subscriptions.partition.transaction_holds import TransactionHolds


class Redeliveries:
    """Memory: offsets only, at most one for each entry that was delivered and is unacknowledged, and a number for each
    one that was redelivered."""

    def __init__(self, entries: EntryNotes, held: TransactionHolds) -> None:
        self._entries = entries
        self._held = held
        self.waiting = BitMap64()
        self.counts: dict[int, int] = {}
        self.meter = SubscriptionMeter()

    def count(self, offset: int) -> int:
        return self.counts.get(offset, 0)

    def add(self, offsets: Sequence[int]) -> None:
        """No consumer holds these any more: deliver them again, which counts."""
        for offset in offsets:
            self.counts[offset] = self.counts.get(offset, 0) + 1
        self.waiting.update(offsets)
        self.meter.redelivered += len(offsets)

    def recover(self, counts: Mapping[int, int] | Iterable[tuple[int, int]]) -> None:
        """Continues with the counts of a former owner."""
        self.counts.update(counts)

    def lowest(self, limit: int) -> list[int]:
        """The lowest offsets that no transaction holds; they wait until `taken`."""
        self._held.take_from(self.waiting)
        return list(islice(self.waiting, limit))

    def taken(self, offsets: Iterable[int]) -> None:
        self.waiting.difference_update(BitMap64(offsets))

    def put_back(self, offsets: Sequence[int]) -> None:
        """These were taken and not delivered."""
        self.waiting.update(offsets)
        self._entries.forget(offsets)

    def settled(self, offsets: Iterable[int]) -> None:
        """These are acknowledged."""
        if self.waiting:
            self.taken(offsets)
        if self.counts:
            for offset in offsets:
                self.counts.pop(offset, None)
