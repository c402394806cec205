"""Floors of parked slots (Key_Shared): an offset at or below all entries of a slot that are parked.

A save names the floors, so that a crash makes no suspects of parked entries: at or above the floor of its slot no entry
was delivered, unless the save names it. No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

NO_FLOOR: Final = 2**63

Floors = Mapping[int, int]
"""By slot, an offset at or below all of its parked entries."""


class SlotFloors:
    """Memory: some numbers for each slot of which some is parked."""

    def __init__(self, parked: Callable[[], Floors]) -> None:
        """`parked` returns the floors as they are now."""
        self._parked = parked
        self._before: dict[int, int] = {}
        """A former owner's floors, until everything that it may have delivered was read."""
        self.undecided_below = 0
        """Below it entries were not all read that a former owner may have delivered."""
        self._saved: dict[int, int] = {}
        """The floors of the accepted save, and of the one under way."""

    def recover(self, saved: Floors, end: int) -> None:
        """Continues from a former owner's floors; `end`: it delivered nothing from there on."""
        self._saved, self._before, self.undecided_below = dict(saved), dict(saved), end

    def clear(self) -> None:
        self._saved.clear()
        self._before.clear()
        self.undecided_below = 0

    def lowest(self) -> int:
        return min(self._saved.values(), default=NO_FLOOR)

    def above(self, offsets: Sequence[int], slots: Sequence[int]) -> Iterable[int]:
        """Yields those of these entries that lie at or above the saved floors of their slots."""
        saved = self._saved
        if not saved:
            return ()
        return (o for o, slot in zip(offsets, slots, strict=True) if o >= saved.get(slot, NO_FLOOR))

    def perhaps_delivered(self, offsets: Sequence[int], slots: Sequence[int]) -> frozenset[int]:
        """Returns those of these entries, which were just read, that a former owner may have delivered."""
        if not self.undecided_below:
            return frozenset()
        before, end = self._before, self.undecided_below
        return frozenset(o for o, s in zip(offsets, slots, strict=True) if o < end and o < before.get(s, NO_FLOOR))

    def hand_over(self) -> int:
        """The partition is given up before everything undecided was read: the next owner decides by the lower ones of
        the former owner's floors and ours. Returns the lowest."""
        for slot, floor in self._parked().items():
            self._before[slot] = min(self._before.get(slot, NO_FLOOR), floor)
        return min(self._before.values())

    def for_save(self, position: int, new_below: int) -> dict[int, int]:
        """Returns the floors of the next save: of entries that are parked, or were not read yet. Between the two
        anything may be delivered below `new_below`."""
        floors = dict(self._parked())
        if position >= self.undecided_below:
            self._before.clear()
            self.undecided_below = 0
        for slot, floor in self._before.items():
            floors[slot] = min(floors.get(slot, NO_FLOOR), max(floor, new_below))
        return floors

    def former(self) -> dict[int, int]:
        """Returns the former owner's floors."""
        return dict(self._before)

    def saving(self, floors: Floors) -> None:
        """A save with these floors is under way."""
        for slot, floor in floors.items():
            self._saved[slot] = min(self._saved.get(slot, NO_FLOOR), floor)

    def accepted(self, floors: dict[int, int]) -> None:
        self._saved = floors
