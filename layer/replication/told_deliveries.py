"""How often messages were delivered, and until when they are put off, as clusters tell one another. Pure.

Only what is on record: where a dead letter policy is set. Both only grow, so the higher count and the later time of all
that is said is the truth. What a process holds that dies with its cluster is not told: it may not have been delivered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Final

from pyroaring import BitMap64

from layer.replication.carried_deliveries import joined, originals_of, places_of
from layer.replication.progress import Side
from mapping.state_records.deliveries import Deliveries
from mapping.state_records.subscription_progress import Origin

MOST: Final = 16_384
"""Messages of one partition that are told of, the first ones in the log; they take 750 kB at most. The others begin
anew elsewhere."""


def deliveries_told(side: Side) -> dict[Origin, Deliveries]:
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


def deliveries_heard(side: Side, said: Mapping[Origin, Deliveries], now_ms: int) -> Deliveries | None:
    """What another side has told, of messages that are here and not acknowledged, by their offsets here; None for
    nothing. Times that are over by now (Unix time) say nothing. Raises StoreError."""
    found: Deliveries | None = None
    for origin, all_of_it in said.items():
        waiting = {due_ms: offsets for due_ms, offsets in all_of_it.put_off.items() if due_ms > now_ms}
        each = replace(all_of_it, put_off=waiting)
        named = BitMap64()
        for offsets in (*each.counts.values(), *each.put_off.values()):
            named |= offsets
        places = places_of(side, origin, named)
        left = {there: here for there, here in places.items() if not side.cursor.is_acknowledged(here)}
        found = joined(found, _moved(each, left))
    return found


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
