"""Progress of a replicated subscription: the sides report their acknowledgements to each other, and apply them. Pure.

Each message has one identity, the cluster where it was first published and its offset there; the acknowledgements of a
side are a set of identities, and the union of all sides' counts. Two rules prevent loops and keep seeks: a report of
one side takes effect on another once (`take_over` knows the applied ones), and an acknowledgement that this side
reported is not applied when it returns (`add_report`). So a seek stays local, and no acknowledgement that was applied
or reported before it is applied again.

A side also reports the messages below its subscription's beginning (`begun`): the cursor has passed them without an
acknowledgement, and the report takes effect only on subscriptions that were created for other clusters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pyroaring import BitMap

from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.replication_state.acks import BatchSet, ReplicatedAcks, in_both, news, of_cursor
from pulsar_on_kafka.broker.replication_state.origin_index import CopiedRun, OriginIndex
from pulsar_on_kafka_mapping.state.clusters.subscription_progress import BLOCK, Origin

Progress = dict[Origin, ReplicatedAcks]
"""Acknowledgements, in offsets of their origin."""
_NOTHING: Final[Mapping[Origin, ReplicatedAcks]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SubscriptionSide:
    """One partition of a subscription in one cluster: its cursor, and where the messages of its log began.

    `origin`: this cluster and the topic's life in it. `index` may lag behind the log's `end`: what it has not reached
    is not spoken of yet, but for messages published here.
    """

    origin: Origin
    cursor: CursorState
    index: OriginIndex
    end: int


def reported_progress(side: SubscriptionSide) -> Progress:
    """Everything that this side's cursor has passed. Raises StoreError, as `of_cursor`."""
    return _by_origin(side, of_cursor(side.cursor))


def begun(side: SubscriptionSide, start: int) -> Progress:
    """The part of `reported_progress` that lies below the subscription's first offset."""
    found = _by_origin(side, ReplicatedAcks(side.cursor.deleted.entries_per_ledger, start)) if start else {}
    return {origin: acks for origin, acks in found.items() if acks}


def begun_everywhere(all_begun: Sequence[Progress]) -> Progress:
    """The positions that lie below the beginnings of all of these."""
    found: Progress = {}
    if all_begun:
        add_report(found, all_begun[0])
    for other in all_begun[1:]:
        found = {origin: in_both(acks, other[origin]) for origin, acks in found.items() if origin in other}
    return found


def _by_origin(side: SubscriptionSide, here: ReplicatedAcks) -> Progress:
    own = ReplicatedAcks(BLOCK, here.below)
    own.join(here)
    found = {side.origin: own}
    for origin in side.index.origins():
        acks = ReplicatedAcks(BLOCK)
        for run in side.index.runs(origin):
            acks.add(run.there, here.within(run.here, run.here + run.length))
        for there, here_too in copies_of(side.index, origin, here.batches):
            acks.add_batch(there, here.batches[here_too])
        found[origin] = acks
    return found


def add_report(known: Progress, reported: Progress) -> bool:
    """Adds a report to another side to `known`, so that it is ignored when that side returns it. Returns whether any
    part was new."""
    changed = False
    for origin, acks in reported.items():
        mine = known.setdefault(origin, ReplicatedAcks(BLOCK))
        before = _measure(mine)
        mine.join(acks)
        changed = changed or _measure(mine) != before
    return changed


def take_over(
    side: SubscriptionSide,
    report: Progress,
    known: Progress,
    begins: Mapping[Origin, ReplicatedAcks] = _NOTHING,
    follows: Mapping[Origin, ReplicatedAcks] = _NOTHING,
) -> ReplicatedAcks:
    """The new acknowledgements in another side's report, as offsets of this log; they are added to `known`.

    They include those that this cursor has applied already. Messages that were not copied yet stay new. `begins`: the
    range below the other side's beginning, which acknowledges nothing, except messages that are in `follows`, too.
    """
    found = ReplicatedAcks(side.cursor.deleted.entries_per_ledger)
    for origin, acks in report.items():
        mine = known.setdefault(origin, ReplicatedAcks(BLOCK))
        for run in _runs(side, origin):
            start, end = run.there, run.there + run.length
            acked, sets = without_begun(
                *news(acks, mine, start, end), start, end, begins.get(origin), follows.get(origin)
            )
            found.add(run.here, acked)
            for there, each in sets.items():
                found.add_batch(there - run.there + run.here, each)
            if acked or sets:
                mine.add(start, acks.within(start, end))
                for there, each in acks.batches_within(start, end):
                    mine.add_batch(there, each)
    return found


def without_begun(
    acked: BitMap,
    sets: dict[int, BatchSet],
    start: int,
    end: int,
    begins: ReplicatedAcks | None,
    follows: ReplicatedAcks | None,
) -> tuple[BitMap, dict[int, BatchSet]]:
    """`news` of [start, end) without what is in `begins` and not in `follows`."""
    if not begins:
        return acked, sets
    never = begins.within(start, end)
    if follows:
        never -= follows.within(start, end)
    return acked - never, {there: each for there, each in sets.items() if there - start not in never}


def without_acknowledged(found: ReplicatedAcks, cursor: CursorState) -> ReplicatedAcks:
    """The part of these offsets that a cursor has not acknowledged. Raises StoreError."""
    here = of_cursor(cursor)
    left = ReplicatedAcks(found.size)
    for block, bitmap in found.bitmaps.items():
        start = block * found.size
        left.add(start, bitmap - here.within(start, start + found.size))
    for position, each in found.batches.items():
        if not here.has(position) and each[1] & ~here.batches.get(position, (0, 0))[1]:
            left.add_batch(position, each)
    return left


def without_message(side: SubscriptionSide) -> ReplicatedAcks:
    """Unacknowledged markers, second copies and gaps above mark-delete: without consumers, no other process
    acknowledges them. Raises StoreError."""
    found = ReplicatedAcks(side.cursor.deleted.entries_per_ledger)
    start = side.cursor.next_unacked
    if start < side.index.end:
        found.add(start, side.index.nothing_within(start, side.index.end))
    return without_acknowledged(found, side.cursor)


def _runs(side: SubscriptionSide, origin: Origin) -> Iterator[CopiedRun]:
    if origin == side.origin:
        return iter((CopiedRun(0, 0, side.end),))
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


def _measure(acks: ReplicatedAcks) -> tuple[int, int, int]:
    return acks.below, len(acks), sum(found[1].bit_count() for found in acks.batches.values())
