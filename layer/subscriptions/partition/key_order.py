"""Order of keys on one partition of a Key_Shared subscription: who may get which message now. No I/O, no clock.

What is kept in order is a *slot* of keys (mapping/routing/sticky_hash.py), as in Pulsar. Four rules:

1. Messages of a slot are handed out by ascending offset, those that come again before those that never were out.
2. A slot is *held* by the consumer that has messages of it in flight; while it is, nobody else gets any of it.
3. A slot held by another consumer than its owner stops at its owner, until the last of it is acknowledged or returned.
4. Nothing else waits for it: a full or silent consumer stops only the slots that it owns or holds.

What waits for long is *parked*: known by its offset alone, to be read from Kafka again. So rule 4 has no end: Pulsar
stops reading, for all keys, when 20,000 messages wait (what its PIP-474 calls a global blackout).

Source: PersistentStickyKeyDispatcherMultipleConsumers and DrainingHashesTracker of Pulsar 4.0 (PIP-379).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import islice
from typing import Any, Final, Generic, TypeVar

from pyroaring import BitMap64

from pulsar_on_kafka.mapping.routing.sticky_hash import SLOTS

C = TypeVar("C", bound=Hashable)

NEAR: Final = 2_000
"""Messages of a lane that are kept with what was read of them; what waits beyond them is parked."""


Waiting = tuple[int, int, Any]
"""(offset, slot, record) of a message that was not handed out; without a record it must be read again first."""


class _Lane:
    """Messages that wait for one owner. Of one slot, all in `again` is below all in `fresh`, and that below all that is
    `parked`; each is handed out by ascending offset."""

    __slots__ = ("again", "fresh", "parked")

    def __init__(self) -> None:
        self.fresh: deque[Waiting] = deque()
        self.again: list[Waiting] = []
        """A heap: what came back, and what waited for another holder."""
        self.parked = BitMap64()
        """Without slots that another consumer holds."""

    def __bool__(self) -> bool:
        return bool(self.fresh) or bool(self.again) or bool(self.parked)

    @property
    def at_hand(self) -> bool:
        return bool(self.fresh) or bool(self.again)

    def pop(self) -> Waiting:
        if self.again and (not self.fresh or self.again[0] < self.fresh[0]):
            return heappop(self.again)
        return self.fresh.popleft()


class KeyOrder(Generic[C]):
    """With `keep_order` off only the owner of a slot is minded (allow_out_of_order_delivery).

    Memory: two small entries for each message in flight, one for each that came back or lies among the next 2,000 of
    its owner, with what was read of it (`shed` drops the payloads); two bits to some bytes for each that is parked.
    """

    def __init__(self, *, keep_order: bool) -> None:
        self.keep_order = keep_order
        """May change while nobody is there."""
        self._owner: Sequence[C | None] = [None] * SLOTS
        self._lanes: dict[C | None, _Lane] = {None: _Lane()}
        self._stuck: dict[int, list[Waiting]] = {}
        """Of slots that another consumer holds."""
        self._parked: dict[int, BitMap64] = {}
        """By slot."""
        self._held: dict[int, tuple[C, int]] = {}
        self._slots: dict[int, int] = {}
        self.waiting = 0
        """Messages known here and not handed out, without those that are parked."""
        self.waiting_bytes = 0
        """Size of the payloads that are kept for them."""
        self.parked = 0
        """Messages that are parked; what was acknowledged meanwhile may be among them."""
        self.acknowledged_early = False
        """Something was acknowledged that is not in flight, so perhaps something that waits here."""

    def assign(self, owner: Sequence[C | None], consumers: Iterable[C]) -> None:
        """The consumers are these now, and `owner` says which slots each has. Holders stay what they are."""
        fresh = sorted(entry for lane in self._lanes.values() for entry in lane.fresh)
        again = [entry for lane in self._lanes.values() for entry in lane.again]
        again += [entry for entries in self._stuck.values() for entry in entries]
        self._owner = owner
        self._lanes = {None: _Lane(), **{consumer: _Lane() for consumer in consumers}}
        self._stuck = {slot: [] for slot, (holder, _) in self._held.items() if owner[slot] is not holder}
        for entry in fresh:
            self._lanes[owner[entry[1]]].fresh.append(entry)
        for entry in again:
            heappush(self._lanes[owner[entry[1]]].again, entry)
        for slot, offsets in self._parked.items():
            if slot not in self._stuck:
                self._lanes[owner[slot]].parked |= offsets

    def admit(self, offsets: Sequence[int], slots: Sequence[int], records: Sequence[Any]) -> list[int]:
        """Take messages that were just read, by ascending offset, above all that were admitted before; gives those of
        them that were parked."""
        if not self.waiting:
            self.acknowledged_early = False
        lanes, owner = self._lanes, self._owner
        self.waiting += len(offsets)
        self.waiting_bytes += sum(map(len, records))
        parked: list[int] = []
        if not self._parked and not self._stuck:
            for entry in zip(offsets, slots, records, strict=True):
                lanes[owner[entry[1]]].fresh.append(entry)
        else:
            for entry in zip(offsets, slots, records, strict=True):
                if entry[1] in self._parked or entry[1] in self._stuck:
                    parked.append(self._park(entry))
                else:
                    lanes[owner[entry[1]]].fresh.append(entry)
        for lane in lanes.values():
            while len(lane.fresh) > NEAR:
                parked.append(self._park(lane.fresh.pop()))
        return parked

    def _park(self, entry: Waiting) -> int:
        offset, slot, record = entry
        offsets = self._parked.get(slot)
        if offsets is None:
            offsets = self._parked[slot] = BitMap64()
        offsets.add(offset)
        if slot not in self._stuck:
            self._lanes[self._owner[slot]].parked.add(offset)
        self.parked += 1
        self.waiting -= 1
        if record is not None:
            self.waiting_bytes -= len(record)
        return offset

    def next_parked(self, consumer: C, limit: int) -> list[int]:
        """The lowest parked messages that `consumer` may perhaps get, once it has nothing at hand."""
        lane = self._lanes[consumer]
        return [] if lane.at_hand else list(islice(lane.parked, limit))

    def read_back(self, consumer: C, upto: int, entries: Sequence[Waiting], unwanted: Iterable[int] = ()) -> None:
        """All of `next_parked` up to and including `upto` was dealt with: these, by ascending offset, are at hand now;
        `unwanted` are slots of which something is to come in another way. What is neither is acknowledged."""
        lane = self._lanes[consumer]
        lane.parked.remove_range(0, upto + 1)
        for slot in {entry[1] for entry in entries}.union(unwanted):
            self._unpark(slot, upto)
        if not lane.parked:
            for slot in [s for s in self._parked if self._owner[s] is consumer and s not in self._stuck]:
                self._unpark(slot)
        lane.fresh.extend(entries)
        self.waiting += len(entries)
        self.waiting_bytes += sum(len(entry[2]) for entry in entries)

    def _unpark(self, slot: int, upto: int | None = None) -> None:
        offsets = self._parked.get(slot)
        if offsets is None:
            return
        before = len(offsets)
        if upto is None:
            offsets.clear()
        else:
            offsets.remove_range(0, upto + 1)
        self.parked -= before - len(offsets)
        if not offsets:
            del self._parked[slot]

    def has_for(self, consumer: C) -> bool:
        """Something waits that this consumer could perhaps get."""
        return bool(self._lanes[consumer])

    def has_at_hand(self, consumer: C) -> bool:
        """The same, and it is not parked."""
        return self._lanes[consumer].at_hand

    def coming_again(self) -> int:
        """How many messages wait that came back, or wait for another holder than their owner, and are not parked."""
        return sum(len(lane.again) for lane in self._lanes.values()) + sum(map(len, self._stuck.values()))

    def take(self, consumer: C, limit: int, *, only_again: bool = False) -> list[Waiting]:
        """Up to `limit` messages that `consumer` may get now, lowest first. It holds them from now on.

        `only_again` leaves out what was not handed out before and did not wait for another holder.
        """
        lane = self._lanes[consumer]
        held, in_flight = self._held, self._slots
        keep_order = self.keep_order
        taken: list[Waiting] = []
        moved_bytes = 0
        while (lane.again or (not only_again and lane.fresh)) and len(taken) < limit:
            entry = heappop(lane.again) if only_again else lane.pop()
            offset, slot, record = entry
            if keep_order:
                hold = held.get(slot)
                if hold is None:
                    held[slot] = (consumer, 1)
                elif hold[0] is consumer:
                    held[slot] = (consumer, hold[1] + 1)
                else:
                    self._wait_for_holder(entry)
                    continue
                in_flight[offset] = slot
            if record is not None:
                moved_bytes += len(record)
            taken.append(entry)
        self.waiting -= len(taken)
        self.waiting_bytes -= moved_bytes
        return taken

    def _wait_for_holder(self, entry: Waiting) -> None:
        slot = entry[1]
        entries = self._stuck.get(slot)
        if entries is None:
            entries = self._stuck[slot] = []
            if slot in self._parked:
                self._lanes[self._owner[slot]].parked -= self._parked[slot]
        entries.append(entry)

    def hold(self, offset: int, slot: int, consumer: C) -> None:
        if self.keep_order:
            _, count = self._held.get(slot, (consumer, 0))
            self._held[slot] = (consumer, count + 1)
            self._slots[offset] = slot

    def offsets_waiting(self) -> BitMap64:
        """Of all messages known here and not handed out."""
        found = BitMap64.union(*self._parked.values()) if self._parked else BitMap64()
        for lane in self._lanes.values():
            found.update(entry[0] for entry in lane.fresh)
            found.update(entry[0] for entry in lane.again)
        for entries in self._stuck.values():
            found.update(entry[0] for entry in entries)
        return found

    def floors(self) -> dict[int, int]:
        """The lowest parked offset of each slot that has some. Nothing of the slot at or above it was handed out, but
        what came again."""
        return {slot: int(offsets.min()) for slot, offsets in self._parked.items()}

    def put_back(self, entries: Iterable[Waiting]) -> None:
        """These were taken and did not get out: they are next again."""
        for entry in entries:
            self._release(entry[0])
            self._wait_again(entry)

    def returned(self, offset: int) -> bool:
        """This one was in flight and comes again; False when its slot is not known: read it, then `readmit`."""
        slot = self._release(offset)
        if slot is not None:
            self._wait_again((offset, slot, None))
        return slot is not None

    def readmit(self, offset: int, slot: int, record: Any) -> None:
        self._wait_again((offset, slot, record))

    def acknowledged(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            if self._release(offset) is None and self.waiting:
                self.acknowledged_early = True

    def shed(self) -> None:
        """Drop the payloads of all that wait; they are read again when it is their turn."""
        for lane in self._lanes.values():
            lane.fresh = deque((offset, slot, None) for offset, slot, _ in lane.fresh)
            lane.again = [(offset, slot, None) for offset, slot, _ in lane.again]
        for slot, entries in self._stuck.items():
            self._stuck[slot] = [(offset, slot, None) for offset, _, _ in entries]
        self.waiting_bytes = 0

    def clear(self) -> None:
        """Nothing is in flight and nothing waits any more (seek, revocation)."""
        for lane in self._lanes.values():
            lane.fresh.clear()
            lane.again.clear()
            lane.parked.clear()
        self._stuck.clear()
        self._parked.clear()
        self._held.clear()
        self._slots.clear()
        self.waiting = self.waiting_bytes = self.parked = 0
        self.acknowledged_early = False

    def _release(self, offset: int) -> int | None:
        slot = self._slots.pop(offset, None)
        if slot is None:
            return None
        consumer, count = self._held[slot]
        if count > 1:
            self._held[slot] = (consumer, count - 1)
        else:
            del self._held[slot]
            if slot in self._stuck:
                lane = self._lanes[self._owner[slot]]
                for entry in self._stuck.pop(slot):
                    heappush(lane.again, entry)
                if slot in self._parked:
                    lane.parked |= self._parked[slot]
        return slot

    def _wait_again(self, entry: Waiting) -> None:
        heappush(self._lanes[self._owner[entry[1]]].again, entry)
        self.waiting += 1
        if entry[2] is not None:
            self.waiting_bytes += len(entry[2])
