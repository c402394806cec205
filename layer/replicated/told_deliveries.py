"""Clusters tell one another how often messages were delivered, and until when they are put off. Pure.

Only what is on record: where a dead letter policy is set. Both only grow, so the higher count and the later time of all
that is said is the truth. What a process holds that dies with its cluster is not told: it may not have been delivered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Final

from pyroaring import BitMap64

from pulsar_on_kafka.mapping.state.clusters.subscription_progress import Origin
from pulsar_on_kafka.mapping.state.cursors.delivery_counts import Deliveries
from pulsar_on_kafka.replicated.carried_deliveries import joined, originals_of, places_of
from pulsar_on_kafka.replicated.progress import SubscriptionSide

MOST: Final = 16_384
"""Messages of one partition that are told of, the first ones in the log; they take 750 kB at most. The others begin
anew elsewhere."""


_NEVER: Final = (0, 0)
_ONCE: Final = (1, 0)
"""Deliveries and redeliveries of a message of which no count is on record."""


def deliveries_told(side: SubscriptionSide) -> dict[Origin, Deliveries]:
    """What this side has on record of messages that it has not acknowledged, by where they were first published. Raises
    StoreError."""
    saved = side.cursor.deliveries
    if saved is None:
        return {}
    named = BitMap64()
    for offsets in (*saved.counts.values(), *saved.put_off.values()):
        named |= offsets
    left = islice((offset for offset in named if not side.cursor.is_acknowledged(offset)), MOST)
    found = {}
    for origin, mine in originals_of(side, left).items():
        found[origin] = _moved(saved, {here: there for there, here in mine.items()})
    return found


def deliveries_heard(side: SubscriptionSide, said: Mapping[Origin, Deliveries]) -> Deliveries | None:
    """What another side has told, of messages that are here and not acknowledged, by their offsets here; None for
    nothing. Raises StoreError."""
    found: Deliveries | None = None
    for origin, each in said.items():
        named = BitMap64()
        for offsets in (*each.counts.values(), *each.put_off.values()):
            named |= offsets
        places = places_of(side, origin, named)
        left = {there: here for there, here in places.items() if not side.cursor.is_acknowledged(here)}
        found = joined(found, _moved(each, left))
    return found


def with_news(own: Deliveries | None, news: Deliveries) -> Deliveries | None:
    """What is on record here once another side was heard. That a message was refused and put off (until a time that
    may be over by now) says nothing where it was delivered again since."""
    if own is not None:
        here, there = _counts(own), _counts(news)
        put_off = {
            due_ms: BitMap64([o for o in offsets if there.get(o, _ONCE) >= here.get(o, _NEVER)])
            for due_ms, offsets in news.put_off.items()
        }
        news = replace(news, put_off={due_ms: offsets for due_ms, offsets in put_off.items() if offsets})
    return joined(own, news)


def _counts(deliveries: Deliveries) -> dict[int, tuple[int, int]]:
    return {offset: count for count, offsets in deliveries.counts.items() for offset in offsets}


def _moved(deliveries: Deliveries, where: Mapping[int, int]) -> Deliveries:
    """Counts and put-off times of the messages that are in `where`, at their offsets there."""

    def moved(offsets: BitMap64) -> BitMap64:
        return BitMap64([where[offset] for offset in offsets if offset in where])

    counts = {count: moved(offsets) for count, offsets in deliveries.counts.items()}
    put_off = {due_ms: moved(offsets) for due_ms, offsets in deliveries.put_off.items()}
    return Deliveries(
        0,
        BitMap64(),
        {count: offsets for count, offsets in counts.items() if offsets},
        {due_ms: offsets for due_ms, offsets in put_off.items() if offsets},
    )
