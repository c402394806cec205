"""What the sides of a replicated subscription tell each other, and what follows for each. Pure.

Each message has one identity, the cluster where it was first published and its offset there; what a side has
acknowledged is a set of identities, and the union of all sides' is the truth. Two rules keep it from running in circles
and from undoing a seek: what one side says takes effect on another once (`take_over` knows what did), and what a side
was told by us is no news when it comes back (`tell`). So a seek stays local, and nothing that took effect before it, or
was told, is acknowledged by it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from layer.cursor.machine import CursorState
from layer.replication.acks import Acks, news, of_cursor
from layer.replication.origin_index import OriginIndex, Run
from mapping.state_records.subscription_progress import BLOCK, Origin

Progress = dict[Origin, Acks]
"""What is acknowledged, in offsets of its origin."""


@dataclass(frozen=True, slots=True)
class Side:
    """One partition of a subscription in one cluster: its cursor, and where the messages of its log began.

    `origin`: this cluster and the topic's life in it. `index` may lag behind the log's `end`: what it has not reached
    is not spoken of yet, but for messages published here.
    """

    origin: Origin
    cursor: CursorState
    index: OriginIndex
    end: int


def said(side: Side) -> Progress:
    """Everything that this side has acknowledged. Raises StoreError, as `of_cursor`."""
    here = of_cursor(side.cursor)
    own = Acks(BLOCK, here.below)
    own.join(here)
    found = {side.origin: own}
    for origin in side.index.origins():
        acks = Acks(BLOCK)
        for run in side.index.runs(origin):
            acks.add(run.there, here.within(run.here, run.here + run.length))
        for there, here_too in copies_of(side.index, origin, here.batches):
            acks.add_batch(there, here.batches[here_too])
        found[origin] = acks
    return found


def tell(known: Progress, told: Progress) -> bool:
    """Note what another side is told: it is no news when it says it itself. Whether anything was new."""
    changed = False
    for origin, acks in told.items():
        mine = known.setdefault(origin, Acks(BLOCK))
        before = _measure(mine)
        mine.join(acks)
        changed = changed or _measure(mine) != before
    return changed


def take_over(side: Side, says: Progress, known: Progress) -> Acks:
    """What another side's word newly acknowledges here, as offsets of this log; `known` has it from now on.

    Names also what this cursor has acknowledged already. What was not copied yet stays news.
    """
    found = Acks(side.cursor.deleted.entries_per_ledger)
    for origin, acks in says.items():
        mine = known.setdefault(origin, Acks(BLOCK))
        for run in _runs(side, origin):
            acked, sets = news(acks, mine, run.there, run.there + run.length)
            found.add(run.here, acked)
            for there, each in sets.items():
                found.add_batch(there - run.there + run.here, each)
            if acked or sets:
                mine.add(run.there, acks.within(run.there, run.there + run.length))
                for there, each in acks.batches_within(run.there, run.there + run.length):
                    mine.add_batch(there, each)
    return found


def without_acknowledged(found: Acks, cursor: CursorState) -> Acks:
    """What a cursor has not acknowledged of these offsets. Raises StoreError."""
    here = of_cursor(cursor)
    left = Acks(found.size)
    for block, bitmap in found.bitmaps.items():
        start = block * found.size
        left.add(start, bitmap - here.within(start, start + found.size))
    for position, each in found.batches.items():
        if not here.has(position) and each[1] & ~here.batches.get(position, (0, 0))[1]:
            left.add_batch(position, each)
    return left


def without_message(side: Side) -> Acks:
    """Markers, second copies and gaps above mark-delete that are not acknowledged: where nobody consumes, nobody else
    acknowledges them. Raises StoreError."""
    found = Acks(side.cursor.deleted.entries_per_ledger)
    start = side.cursor.next_unacked
    if start < side.index.end:
        found.add(start, side.index.nothing_within(start, side.index.end))
    return without_acknowledged(found, side.cursor)


def _runs(side: Side, origin: Origin) -> Iterator[Run]:
    if origin == side.origin:
        return iter((Run(0, 0, side.end),))
    return side.index.runs(origin)


def copies_of(index: OriginIndex, origin: Origin, offsets: Mapping[int, object]) -> Iterator[tuple[int, int]]:
    """(offset there, offset here) of those of these offsets that are copies from `origin`."""
    waiting = sorted(offsets, reverse=True)
    for run in index.runs(origin) if waiting else ():
        while waiting and waiting[-1] < run.here:
            waiting.pop()
        while waiting and waiting[-1] < run.here + run.length:
            here = waiting.pop()
            yield here - run.here + run.there, here


def _measure(acks: Acks) -> tuple[int, int, int]:
    return acks.below, len(acks), sum(found[1].bit_count() for found in acks.batches.values())
