"""Delivery counts and put-off times of a cursor, told to other clusters, or carried over to the same subscription's
cursor there. Pure.

Only what is on record: where a dead letter policy is set, how often messages were delivered, which were held by
processes that died, and until when refused ones are put off. Counts and times only grow, so the higher count and the
later time of all that is said is the truth. What a process holds that dies with its cluster is carried over, but not
told: it may not have been delivered.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Final, TypeVar

from pyroaring import BitMap64

from pulsar_on_kafka.broker.replication_state.progress import SubscriptionSide, copies_of
from pulsar_on_kafka_mapping.state.clusters.subscription_progress import Origin
from pulsar_on_kafka_mapping.state.cursors.cursor_state import Deliveries

MAX_MESSAGES: Final = 16_384
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
    left = islice((offset for offset in named if not side.cursor.is_acknowledged(offset)), MAX_MESSAGES)
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


_V = TypeVar("_V", bound=Hashable)


def carried(here: SubscriptionSide, there: SubscriptionSide) -> Deliveries | None:
    """What is on record here of messages that neither side has acknowledged, by their offsets there; None for nothing.

    Nobody consumes here any more: what may have been handed out and was not acknowledged was held by a process that
    died, as the next owner here would say. Raises StoreError.
    """
    saved = here.cursor.deliveries
    if saved is None or not saved.matter_from(here.cursor.next_unacked):
        return None
    put_off = BitMap64()
    for offsets in saved.put_off.values():
        put_off |= offsets
    suspects = saved.suspects | here.cursor.unacknowledged(0, min(saved.limit, here.end))
    suspects -= put_off
    named = suspects | put_off
    for offsets in saved.counts.values():
        named |= offsets
    left = [offset for offset in named if not here.cursor.is_acknowledged(offset)]
    where = {
        mine: theirs
        for mine, theirs in offsets_there(here, there, left).items()
        if not there.cursor.is_acknowledged(theirs)
    }

    def moved(offsets: Iterable[int]) -> BitMap64:
        return BitMap64([where[offset] for offset in offsets if offset in where])

    found = Deliveries(
        0,
        moved(suspects),
        {count: moved(offsets) for count, offsets in saved.counts.items()},
        {due_ms: moved(offsets) for due_ms, offsets in saved.put_off.items()},
    )
    return joined(None, found)


def joined(own: Deliveries | None, other: Deliveries | None) -> Deliveries | None:
    """The higher count and the later time of each message: both only grow wherever it is. None for nothing."""
    both = [each for each in (own, other) if each is not None]
    counts: dict[int, tuple[int, int]] = {}
    due: dict[int, int] = {}
    suspects = BitMap64()
    for each in both:
        suspects |= each.suspects
        for count, offsets in each.counts.items():
            counts.update((offset, max(count, counts.get(offset, count))) for offset in offsets)
        for due_ms, offsets in each.put_off.items():
            due.update((offset, max(due_ms, due.get(offset, due_ms))) for offset in offsets)
    limit = max((each.limit for each in both), default=0)
    suspects -= BitMap64(due)
    if not (limit or suspects or counts or due):
        return None
    return Deliveries(limit, suspects, _grouped(counts), _grouped(due))


def offsets_there(here: SubscriptionSide, there: SubscriptionSide, offsets: Iterable[int]) -> dict[int, int]:
    """Where the messages at these offsets lie in the other cluster, of those that are there."""
    found: dict[int, int] = {}
    for origin, mine_of in originals_of(here, offsets).items():
        for original, theirs in places_of(there, origin, mine_of).items():
            found.setdefault(mine_of[original], theirs)
    return found


def originals_of(side: SubscriptionSide, offsets: Iterable[int]) -> dict[Origin, dict[int, int]]:
    """Where the messages at these offsets were first published: the offset here by the one in the origin."""
    left = dict.fromkeys(offsets)
    found: dict[Origin, dict[int, int]] = {}
    for origin in side.index.origins():
        for original, mine in copies_of(side.index, origin, left):
            found.setdefault(origin, {})[original] = mine
            del left[mine]
    if left:
        found.setdefault(side.origin, {}).update((mine, mine) for mine in left)
    return found


def places_of(side: SubscriptionSide, origin: Origin, originals: Iterable[int]) -> dict[int, int]:
    """Where messages that were first published in `origin` lie here, of those that are here: by their offsets there."""
    if origin == side.origin:
        return {original: original for original in originals if original < side.end}
    wanted = sorted(originals)
    found: dict[int, int] = {}
    for run in side.index.runs(origin) if wanted else ():
        at = bisect_left(wanted, run.there)
        while at < len(wanted) and wanted[at] < run.there + run.length:
            found.setdefault(wanted[at], wanted[at] - run.there + run.here)
            at += 1
    return found


def _grouped(values: Mapping[int, _V]) -> dict[_V, BitMap64]:
    groups: dict[_V, list[int]] = {}
    for offset, value in values.items():
        groups.setdefault(value, []).append(offset)
    return {value: BitMap64(offsets) for value, offsets in groups.items()}
