"""Entries in flight are handed out, unacknowledged and held by a consumer (shared subscriptions). No I/O, no
threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import repeat

from pulsar_on_kafka.subscriptions.records.endpoint import Feed


class DeliveriesInFlight:
    """Keeps the endpoints' numbers of unacknowledged messages, too.

    Memory: one small entry for each entry in flight, two for a batch.
    """

    def __init__(self) -> None:
        self.holders: dict[int, Feed] = {}
        self.unacked_in: dict[int, int] = {}
        """Batch entries in flight, and how many messages of each are unacknowledged; chunked messages, and how many
        chunks they have; one for every other entry."""

    def hold(self, offsets: Sequence[int], feed: Feed) -> None:
        """This consumer has these; none of them is a batch entry."""
        self.holders.update(zip(offsets, repeat(feed)))
        feed.endpoint.unacked += len(offsets)

    def hold_batch(self, offset: int, feed: Feed, messages: int) -> None:
        self.holders[offset] = feed
        self.unacked_in[offset] = messages
        feed.endpoint.unacked += messages

    def acknowledged_in_batch(self, offset: int, messages: int) -> None:
        """So many more messages of an entry were acknowledged."""
        feed = self.holders.get(offset)
        if feed is not None and offset in self.unacked_in:
            self.unacked_in[offset] -= messages
            feed.endpoint.unacked -= messages

    def let_go(self, offsets: Sequence[int]) -> None:
        """These entries are in nobody's hands any more."""
        if self.unacked_in:
            for offset in offsets:
                feed = self.holders.pop(offset, None)
                if feed is not None:
                    feed.endpoint.unacked -= self.unacked_in.pop(offset, 1)
            return
        for holder, count in Counter(map(self.holders.pop, offsets, repeat(None))).items():
            if holder is not None:
                holder.endpoint.unacked -= count

    def let_go_of_one(self, offset: int) -> None:
        """`let_go` for an entry that somebody holds."""
        self.holders.pop(offset).endpoint.unacked -= self.unacked_in.pop(offset, 1) if self.unacked_in else 1

    def let_go_of_all(self) -> None:
        self.let_go(list(self.holders))

    def held_by(self, feed: Feed) -> list[int]:
        return [offset for offset, holder in self.holders.items() if holder is feed]

    def messages(self) -> int:
        """Handed out and not acknowledged."""
        return len(self.holders) + sum(self.unacked_in.values()) - len(self.unacked_in)
