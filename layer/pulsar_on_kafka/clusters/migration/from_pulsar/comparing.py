"""Both sides of a partition, entry by entry: Pulsar's entries and their copies, and what subscriptions have left."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from pyroaring import BitMap, BitMap64

from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.replication_state.acks import of_cursor
from pulsar_on_kafka.clusters.migration.from_pulsar.entry_positions import Acknowledged, Position, position_at
from pulsar_on_kafka.clusters.migration.from_pulsar.existing_copies import CopiesHere


@dataclass(frozen=True, slots=True)
class ComparedMessages:
    """Entries of Pulsar that are here, the same (`equal`), otherwise (`changed`), or not at all (`missing`; `trimmed`:
    not any more). `messages` counts those of the equal ones. `first`: where the first difference is. `digest`: of
    places and contents of the equal ones; `unknown`: copies of what Pulsar has not (any more)."""

    equal: int
    messages: int
    changed: int
    missing: int
    trimmed: int
    unknown: int
    first: Position | None
    digest: str

    @property
    def good(self) -> bool:
        return not self.changed and not self.missing


@dataclass(frozen=True, slots=True)
class ComparedSubscription:
    """A subscription on both sides: the number of entries that a fresh consumer would get of those that both sides
    have, and a digest of which."""

    name: str
    left_there: int
    left_here: int
    only_there: int
    only_here: int
    digest_there: str
    digest_here: str

    @property
    def good(self) -> bool:
        return not self.only_there and not self.only_here


class ComparedEntries:
    """Comparison of Pulsar's entries, added one after the other, with their copies. Memory: a bitmap of their
    places."""

    def __init__(self, copies: CopiesHere) -> None:
        self._copies = copies
        self._whole = hashlib.blake2b(digest_size=16)
        self._known = copies.index.copies(copies.origin)
        self._begins = int(self._known.min()) if self._known and copies.index.start else None
        self.places = BitMap64()
        self._equal = self._messages = self._changed = self._missing = self._trimmed = 0
        self._first: Position | None = None

    def add(self, place: int, digest: int, messages: int) -> None:
        self.places.add(place)
        there = self._copies.digest(place)
        if there == digest:
            self._equal += 1
            self._messages += messages
            self._whole.update(b"%d:%d;" % (place, digest))
            return
        if there is None and self._copies.index.start and (self._begins is None or place < self._begins):
            self._trimmed += 1
            return
        self._changed += there is not None
        self._missing += there is None
        self._first = self._first or position_at(place)

    def result(self) -> ComparedMessages:
        return ComparedMessages(
            self._equal,
            self._messages,
            self._changed,
            self._missing,
            self._trimmed,
            len(self._known - self.places),
            self._first,
            self._whole.hexdigest(),
        )


def compared_subscription(
    name: str, done: Acknowledged, cursor: CursorState, copies: CopiesHere, places: BitMap64
) -> ComparedSubscription:
    """Compare the entries at `places`, as far as they are here. Raises StoreError, as `of_cursor`."""
    both = copies.index.copies(copies.origin) & places
    there = BitMap64([place for place in both if place not in done])
    here = BitMap64()
    acks = of_cursor(cursor)
    for run in copies.runs():
        left = BitMap()
        left.add_range(0, run.length)
        left -= acks.within(run.here, run.here + run.length)
        here |= BitMap64([run.there + each for each in left])
    here &= both
    return ComparedSubscription(
        name, len(there), len(here), len(there - here), len(here - there), _digest(there), _digest(here)
    )


def _digest(places: BitMap64) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for place in places:
        digest.update(place.to_bytes(8, "big"))
    return digest.hexdigest()
