"""Order of keys on one partition of a Key_Shared subscription: who may get which message now. No I/O, no clock.

What is kept in order is a *slot* of keys (mapping/routing/sticky_hash.py), as in Pulsar. Four rules:

1. Messages of a slot are handed out by ascending offset, those that come again before those that never were out.
2. A slot is *held* by the consumer that has messages of it in flight; while it is, nobody else gets any of it.
3. A slot held by another consumer than its owner stops at its owner, until the last of it is acknowledged or returned.
4. Nothing else waits for it: a full or silent consumer stops only the slots that it owns or holds.

Source: PersistentStickyKeyDispatcherMultipleConsumers and DrainingHashesTracker of Pulsar 4.0 (PIP-379).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

from pulsar_on_kafka.mapping.routing.sticky_hash import SLOTS

C = TypeVar("C", bound=Hashable)


Waiting = tuple[int, int, Any]
"""(offset, slot, record) of a message that was not handed out; without a record it must be read again first."""


class _Lane:
    """Messages that wait for one owner; the lowest offset is next. Of one slot, all in `again` is below all in
    `fresh`."""

    __slots__ = ("again", "fresh")

    def __init__(self) -> None:
        self.fresh: deque[Waiting] = deque()
        """By ascending offset."""
        self.again: list[Waiting] = []
        """A heap: what came back, and what waited for another holder."""

    def __bool__(self) -> bool:
        return bool(self.fresh) or bool(self.again)

    def pop(self) -> Waiting:
        if self.again and (not self.fresh or self.again[0] < self.fresh[0]):
            return heappop(self.again)
        return self.fresh.popleft()


class KeyOrder(Generic[C]):
    """With `keep_order` off only the owner of a slot is minded (allow_out_of_order_delivery).

    Memory: two small entries for each message in flight, one for each that waits, and the payloads of those that were
    read and wait (`shed` drops them).
    """

    def __init__(self, *, keep_order: bool) -> None:
        self.keep_order = keep_order
        """May change while nobody is there."""
        self._owner: Sequence[C | None] = [None] * SLOTS
        self._lanes: dict[C | None, _Lane] = {None: _Lane()}
        self._stuck: dict[int, list[Waiting]] = {}
        self._held: dict[int, tuple[C, int]] = {}
        self._slots: dict[int, int] = {}
        self.waiting = 0
        """Messages known here and not handed out."""
        self.waiting_bytes = 0
        """Size of the payloads that are kept for them."""
        self.acknowledged_early = False
        """Something was acknowledged that is not in flight, so perhaps something that waits here."""

    def assign(self, owner: Sequence[C | None], consumers: Iterable[C]) -> None:
        """The consumers are these now, and `owner` says which slots each has. Holders stay what they are."""
        fresh = sorted(entry for lane in self._lanes.values() for entry in lane.fresh)
        again = [entry for lane in self._lanes.values() for entry in lane.again]
        again += [entry for entries in self._stuck.values() for entry in entries]
        self._stuck.clear()
        self._owner = owner
        self._lanes = {None: _Lane(), **{consumer: _Lane() for consumer in consumers}}
        for entry in fresh:
            self._lanes[owner[entry[1]]].fresh.append(entry)
        for entry in again:
            heappush(self._lanes[owner[entry[1]]].again, entry)

    def admit(self, offsets: Sequence[int], slots: Sequence[int], records: Sequence[Any]) -> None:
        """Take messages that were just read, by ascending offset, above all that were admitted before."""
        if not self.waiting:
            self.acknowledged_early = False
        lanes, owner = self._lanes, self._owner
        for entry in zip(offsets, slots, records, strict=True):
            lanes[owner[entry[1]]].fresh.append(entry)
        self.waiting += len(offsets)
        self.waiting_bytes += sum(map(len, records))

    def has_for(self, consumer: C) -> bool:
        """Something waits that this consumer could perhaps get."""
        return bool(self._lanes[consumer])

    def take(self, consumer: C, limit: int, *, only_again: bool = False) -> list[Waiting]:
        """Up to `limit` messages that `consumer` may get now, lowest first. It holds them from now on.

        `only_again` leaves out what was not handed out before and did not wait for another holder.
        """
        lane = self._lanes[consumer]
        held, in_flight = self._held, self._slots
        keep_order = self.keep_order
        taken: list[Waiting] = []
        moved_bytes = 0
        while (lane.again if only_again else lane) and len(taken) < limit:
            entry = heappop(lane.again) if only_again else lane.pop()
            offset, slot, record = entry
            if keep_order:
                hold = held.get(slot)
                if hold is None:
                    held[slot] = (consumer, 1)
                elif hold[0] is consumer:
                    held[slot] = (consumer, hold[1] + 1)
                else:
                    self._stuck.setdefault(slot, []).append(entry)
                    continue
                in_flight[offset] = slot
            if record is not None:
                moved_bytes += len(record)
            taken.append(entry)
        self.waiting -= len(taken)
        self.waiting_bytes -= moved_bytes
        return taken

    def hold(self, offset: int, slot: int, consumer: C) -> None:
        if self.keep_order:
            _, count = self._held.get(slot, (consumer, 0))
            self._held[slot] = (consumer, count + 1)
            self._slots[offset] = slot

    def offsets_waiting(self) -> Iterator[int]:
        """Of all messages known here and not handed out, in no order."""
        for lane in self._lanes.values():
            yield from (entry[0] for entry in lane.fresh)
            yield from (entry[0] for entry in lane.again)
        for entries in self._stuck.values():
            yield from (entry[0] for entry in entries)

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
        self._stuck.clear()
        self._held.clear()
        self._slots.clear()
        self.waiting = self.waiting_bytes = 0
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
                again = self._lanes[self._owner[slot]].again
                for entry in self._stuck.pop(slot):
                    heappush(again, entry)
        return slot

    def _wait_again(self, entry: Waiting) -> None:
        heappush(self._lanes[self._owner[entry[1]]].again, entry)
        self.waiting += 1
        if entry[2] is not None:
            self.waiting_bytes += len(entry[2])
