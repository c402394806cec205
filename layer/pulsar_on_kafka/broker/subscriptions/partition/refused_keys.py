"""Refused messages of one partition, by key, where redelivery keeps the order (`ordered_redelivery`). No I/O, no clock.

A message is *refused* by a negative acknowledgement or an ack timeout. If a consumer leaves, the first message of each
key that it held counts as refused, too. While a refused message is unacknowledged, no later message of its key is
delivered. The order is that of hash slots, as everywhere on Key_Shared. On Exclusive and Failover the whole partition
is one slot.

Pulsar has no such option (PIP-493 proposes one).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from pyroaring import BitMap64

WHOLE_PARTITION: Final = 0
"""The only slot of a partition of an Exclusive or Failover subscription."""


class OldestKey(NamedTuple):
    """The slot that has waited longest: its lowest refused message, and the time of its first refusal (monotonic)."""

    offset: int
    since_s: float


class _Slot:
    __slots__ = ("offsets", "since_s")

    def __init__(self, since_s: float) -> None:
        self.offsets = BitMap64()
        self.since_s = since_s


class RefusedKeys:
    """Memory: a number for each refused message, and a small entry for each slot of one. A refused message was
    delivered, so there are at most as many as unacknowledged messages."""

    def __init__(self) -> None:
        self.slots: dict[int, _Slot] = {}
        """The slots that wait. Read-only for others."""
        self._slot_of: dict[int, int] = {}
        self.unplaced = BitMap64()
        """Refused messages whose slot is not known: they are read before anything else is delivered."""
        self.recovered = BitMap64()
        """Messages that were refused under a former owner. They count as soon as they are read."""
        self._is_recovered = False

    def __bool__(self) -> bool:
        return bool(self.slots)

    def __len__(self) -> int:
        """The number of slots that wait."""
        return len(self.slots)

    def __contains__(self, offset: int) -> bool:
        """The message is refused and unacknowledged."""
        return offset in self._slot_of

    def recover(self, redelivered: Iterable[int], passed_over: BitMap64) -> None:
        """The partition was taken over, and these were refused before. Reading will meet them, except those that are
        `passed_over`. Later calls do nothing."""
        if not self._is_recovered:
            self._is_recovered = True
            before = BitMap64(redelivered)
            self.unplaced |= before & passed_over
            self.recovered |= before - passed_over

    def met(self, offset: int, slot: int, now_s: float) -> None:
        """The message was read: it counts as refused if it was refused under a former owner."""
        if offset in self.recovered:
            self.add(offset, slot, now_s)

    def add(self, offset: int, slot: int, now_s: float) -> None:
        """The message is refused: later ones of its slot wait for its acknowledgement."""
        self.unplaced.discard(offset)
        self.recovered.discard(offset)
        found = self.slots.get(slot)
        if found is None:
            found = self.slots[slot] = _Slot(now_s)
        found.offsets.add(offset)
        self._slot_of[offset] = slot

    def limit(self, slot: int) -> int | None:
        """The lowest refused message of a slot, which is the last one that may be delivered; None: all may."""
        found = self.slots.get(slot)
        return None if found is None else int(found.offsets.min())

    def holds_back(self, offset: int, slot: int) -> bool:
        """An earlier message of the slot is refused."""
        found = self.slots.get(slot)
        return found is not None and offset > found.offsets.min()

    def below(self, is_acknowledged: Callable[[int], bool]) -> int | None:
        """The offset behind the lowest refused message of the whole partition, up to which messages may be delivered
        (Exclusive, Failover); None for no limit. Cumulative acknowledgements are found here."""
        while (limit := self.limit(WHOLE_PARTITION)) is not None:
            if not is_acknowledged(limit):
                return limit + 1
            self.settled((limit,))
        return None

    def settled(self, offsets: Iterable[int]) -> set[int]:
        """These are acknowledged; returns the slots in which other messages may be delivered now."""
        freed: set[int] = set()
        if not (self._slot_of or self.unplaced or self.recovered):
            return freed
        for offset in offsets:
            slot = self._slot_of.pop(offset, None)
            self.unplaced.discard(offset)
            self.recovered.discard(offset)
            if slot is None:
                continue
            freed.add(slot)
            left = self.slots[slot].offsets
            left.discard(offset)
            if not left:
                del self.slots[slot]
        return freed

    def offsets(self) -> BitMap64:
        """All refused messages."""
        return BitMap64(self._slot_of) | self.unplaced | self.recovered

    def oldest(self) -> OldestKey | None:
        found = min(self.slots.values(), key=lambda each: each.since_s, default=None)
        return None if found is None else OldestKey(int(found.offsets.min()), found.since_s)

    def clear(self) -> None:
        """Forgets everything, after a seek."""
        self.slots.clear()
        self._slot_of.clear()
        self.unplaced.clear()
        self.recovered.clear()
