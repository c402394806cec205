"""Messages that were delivered often enough, on their way to a dead letter topic.

Runs in the member's thread, but for the answer of a dead letter that could not be stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.subscriptions.partition.partition import OwnedPartition
from pulsar_on_kafka.subscriptions.records.endpoint import Delivery, Endpoint, Feed
from pulsar_on_kafka.subscriptions.records.remote_endpoint import RemoteEndpoint

_MAX_DEAD_LETTERS: Final = 1000
_DEAD_LETTER_AGAIN_S: Final = 1.0


class DeadLettering:
    """At most 1,000 dead letters are under way at a time; further ones wait among the redeliveries."""

    def __init__(self, clock: Clock, endpoints: Sequence[Endpoint]) -> None:
        self._clock = clock
        self._endpoints = endpoints
        self._under_way = Endpoint("dead letters", 0, delivery_type=Delivery)
        """Holds the messages that are under way."""

    def divert(self, owned: OwnedPartition, offsets: list[int], records: Mapping[int, Any]) -> list[int]:
        """Send messages that were delivered often enough to the dead letter topic; gives the others.

        The first consumer of this process with a dead letter policy does it for all of them, so that dead letters come
        in order. Without one nobody does it here; other processes' consumers dead-letter what they are leased.
        """
        consumer = self._dead_letterer()
        if consumer is None or consumer.dead_letters is None:
            return offsets
        most = consumer.dead_letters.max_redeliver_count
        guard = owned.guard
        if guard is None:
            dead = [offset for offset in offsets if owned.redeliveries.get(offset, 0) > most]
        else:
            dead = [offset for offset in offsets if guard.next_delivery(offset) > most + 1]
        if not dead:
            return offsets
        if guard is not None:
            guard.survived(dead)
        room = max(0, _MAX_DEAD_LETTERS - self._under_way.unacked)
        now = owned.fitting(dead, room) if room else 0
        owned.put_back(dead[now:])
        bodies = [records[offset] for offset in dead[:now]]
        letters = owned.hand_out(dead[:now], bodies, consumer.feed(owned.slot), self._under_way.feed(owned.slot))
        consumer.dead_letters.publish_dead_letters(letters, self._not_stored)
        gone = set(dead)
        return [offset for offset in offsets if offset not in gone]

    def max_redeliver_count(self) -> int | None:
        """Of the policy that counts now; without one here the highest of other processes' consumers. None: there is
        no policy."""
        consumer = self._dead_letterer()
        if consumer is not None and consumer.dead_letters is not None:
            return consumer.dead_letters.max_redeliver_count
        elsewhere = (e.max_redeliver_count for e in self._endpoints if isinstance(e, RemoteEndpoint))
        return max((most for most in elsewhere if most is not None), default=None)

    def has(self, feed: Feed) -> bool:
        """What this feed holds is on its way to the dead letter topic."""
        return feed.endpoint is self._under_way

    def _dead_letterer(self) -> Endpoint | None:
        return next((e for e in self._endpoints if e.dead_letters is not None and not e.closed), None)

    def _not_stored(self, letter: Delivery) -> None:
        """A dead letter could not be stored: try again in a second. Any thread."""
        slot = letter.feed.slot
        slot.nacks.append((self._clock.monotonic(), _DEAD_LETTER_AGAIN_S, letter.offset, self._under_way))
