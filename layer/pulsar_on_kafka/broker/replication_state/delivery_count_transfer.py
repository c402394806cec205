"""Delivery counts and delay times of a cursor, reported to other clusters, or transferred to the same subscription's
cursor there. Pure.

Only recorded state is transferred: delivery counts where a dead letter policy is set, messages held by processes that
died, and the delay times of negatively acknowledged ones. Counts and times only grow, so the highest count and the
latest time of all reports hold. Messages held by a process that dies with its cluster are transferred, but not
reported: they may not have been delivered.
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
"""The limit of reported messages of one partition, the first ones in the log; they take 750 kB at most. The others
start anew elsewhere."""


_NEVER: Final = (0, 0)
_ONCE: Final = (1, 0)
"""Deliveries and redeliveries of a message of which no count is on record."""


def reported_deliveries(side: SubscriptionSide) -> dict[Origin, Deliveries]:
    """The delivery state of this side for unacknowledged messages, by the place of first publication. Raises
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


def merge_deliveries(side: SubscriptionSide, reported: Mapping[Origin, Deliveries]) -> Deliveries | None:
    """The reported state of another side for messages that are here and unacknowledged, by their offsets here; None
    without any. Raises StoreError."""
    found: Deliveries | None = None
    for origin, each in reported.items():
        named = BitMap64()
        for offsets in (*each.counts.values(), *each.put_off.values()):
            named |= offsets
        places = places_of(side, origin, named)
        left = {there: here for there, here in places.items() if not side.cursor.is_acknowledged(here)}
        found = joined(found, _moved(each, left))
    return found


def with_news(own: Deliveries | None, news: Deliveries) -> Deliveries | None:
    """The delivery state here merged with another side's report. A delay after a negative acknowledgement (perhaps
    expired by now) is ignored for messages that were redelivered since."""
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
    """The delivery state here of messages that neither side has acknowledged, by their offsets there; None without any.

    There are no consumers here any more: delivered and unacknowledged messages count as held by a process that died, as
    the next owner here would decide. Raises StoreError.
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
    """The higher count and the later time of each message: both only grow wherever it is. Reasons of negative
    acknowledgements are those of one side, because other clusters report none. None for nothing."""
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
    reasons = next((each.reasons for each in both if each.reasons), {})
    return Deliveries(limit, suspects, _grouped(counts), _grouped(due), reasons=reasons)


def offsets_there(here: SubscriptionSide, there: SubscriptionSide, offsets: Iterable[int]) -> dict[int, int]:
    """The offsets in the other cluster of those of these messages that are there."""
    found: dict[int, int] = {}
    for origin, mine_of in originals_of(here, offsets).items():
        for original, theirs in places_of(there, origin, mine_of).items():
            found.setdefault(mine_of[original], theirs)
    return found


def originals_of(side: SubscriptionSide, offsets: Iterable[int]) -> dict[Origin, dict[int, int]]:
    """The places of first publication of the messages at these offsets: the offset here by the one in the origin."""
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
    """The offsets here of messages first published in `origin`, by their offsets there."""
    if origin == side.origin:
        return {original: original for original in originals if original < side.end}
    requested = sorted(originals)
    found: dict[int, int] = {}
    for run in side.index.runs(origin) if requested else ():
        at = bisect_left(requested, run.there)
        while at < len(requested) and requested[at] < run.there + run.length:
            found.setdefault(requested[at], requested[at] - run.there + run.here)
            at += 1
    return found


def _grouped(values: Mapping[int, _V]) -> dict[_V, BitMap64]:
    groups: dict[_V, list[int]] = {}
    for offset, value in values.items():
        groups.setdefault(value, []).append(offset)
    return {value: BitMap64(offsets) for value, offsets in groups.items()}
