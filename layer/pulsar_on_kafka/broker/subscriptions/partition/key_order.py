"""Order of keys on one partition of a Key_Shared subscription: the messages that each consumer may get now. No I/O, no
clock.

What is kept in order is a *slot* of keys (mapping/pulsar_on_kafka_mapping/routing/sticky_hash.py), as in Pulsar. Five
rules:

1. Messages of a slot are delivered by ascending offset, redelivered ones before new ones.
2. A slot is *held* by the consumer that has messages of it in flight; meanwhile no other consumer gets any of it.
3. A slot held by another consumer than its owner stops at its owner, until the last of it is acknowledged or returned.
4. Nothing else waits for it: a full or silent consumer stops only the slots that it owns or holds.
5. With ordered redelivery, messages behind a refused one of their slot wait until it is acknowledged (`refused_keys`).

What waits for long is *parked*: to be read from Kafka again. So rule 4 has no end: Pulsar stops reading, for all keys,
when 20,000 messages wait (what its PIP-474 calls a global blackout). Of a slot of which some is parked, everything from
the first parked message to the last is. Where to look for them is known by offset, as long as they are few; beyond that
what was admitted is kept as ranges, in which a slot's messages are read again from its first one on.

Source: PersistentStickyKeyDispatcherMultipleConsumers and DrainingHashesTracker of Pulsar 4.0 (PIP-379).
"""

from __future__ import annotations

from array import array
from bisect import insort
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from heapq import heappop, heappush, merge
from itertools import takewhile
from operator import itemgetter
from typing import Any, Final, Generic, NamedTuple, TypeVar

from pyroaring import BitMap64

from pulsar_on_kafka.broker.subscriptions.partition.refused_keys import RefusedKeys
from pulsar_on_kafka_mapping.routing.sticky_hash import SLOTS

C = TypeVar("C", bound=Hashable)

NEAR: Final = 2_000
"""Messages of a lane that are kept with what was read of them; what waits beyond them is parked."""
_SLOT_BITS: Final = 16
KNOWN: Final = 1_000_000
"""Parked messages of a partition that are known by offset; beyond them all that was admitted with one is looked at."""
_LOOKED_AT: Final = 20_000
"""Offsets at once, of which those that are not acknowledged are read again."""
_COMPRESSED_EVERY: Final = 20
"""Bits: ranges are compressed at each multiple of a million or so."""


Waiting = tuple[int, int, Any]
"""(offset, slot, record) of a message that was not delivered; without a record it must be read again first."""


class _Parked:
    """The parked messages of one slot: all in [first, last] that were admitted and are not acknowledged."""

    __slots__ = ("count", "first", "last")

    def __init__(self, offset: int) -> None:
        self.first = self.last = offset
        self.count = 0
        """Includes messages acknowledged meanwhile."""


class UnackedMessages(NamedTuple):
    """Unacknowledged messages, among which are all that are parked for a consumer up to and including `upto`."""

    offsets: list[int]
    upto: int


class _Lane:
    """Messages that wait for one owner. Of one slot, all in `again` and in `fresh` is below all that is parked; each is
    handed out by ascending offset. All in `again` is below all in `behind`, which is its continuation.

    What is parked of slots that another consumer holds does not count here.
    """

    __slots__ = ("again", "behind", "end", "fresh", "known", "next", "ranges_end")

    def __init__(self) -> None:
        self.fresh: deque[Waiting] = deque()
        self.again: list[Waiting] = []
        """A heap: what came back, and what waited for another holder."""
        self.behind: array[int] = array("Q")
        """More of that, by ascending offset: 48 bits of it, and 16 of the slot."""
        self.known = BitMap64()
        """Parked messages, by offset."""
        self.next = self.end = 0
        """The parked messages lie in [next, end)."""
        self.ranges_end = 0
        """Below it some of that is to be looked for in ranges."""

    @property
    def at_hand(self) -> bool:
        return bool(self.fresh) or self.has_redeliveries

    @property
    def has_redeliveries(self) -> bool:
        return bool(self.again) or bool(self.behind)

    @property
    def has_parked(self) -> bool:
        return self.next < self.end

    def push(self, entry: Waiting) -> list[Waiting]:
        """Adds a redelivered message; returns those that went behind the others, without their records."""
        if self.behind and entry[0] > self.behind[0] >> _SLOT_BITS:
            insort(self.behind, entry[0] << _SLOT_BITS | entry[1])
            return [entry]
        heappush(self.again, entry)
        if len(self.again) <= 2 * NEAR:
            return []
        self.again.sort()
        last = self.again[NEAR:]
        del self.again[NEAR:]
        self.behind[:0] = array("Q", (offset << _SLOT_BITS | slot for offset, slot, _ in last))
        return last

    def all_again(self) -> Iterator[Waiting]:
        yield from self.again
        for packed in self.behind:
            yield packed >> _SLOT_BITS, packed & SLOTS - 1, None

    def fetch_again(self) -> None:
        """Moves the first of `behind` to `again`, which is empty."""
        self.again += [(packed >> _SLOT_BITS, packed & SLOTS - 1, None) for packed in self.behind[:NEAR]]
        del self.behind[:NEAR]

    def first_fresh(self) -> dict[int, int]:
        """The lowest offset in `fresh` of each slot."""
        return {slot: offset for offset, slot, _ in reversed(self.fresh)}

    def pop(self) -> Waiting:
        if self.again and (not self.fresh or self.again[0] < self.fresh[0]):
            return heappop(self.again)
        return self.fresh.popleft()

    def cover(self, first: int, last: int) -> None:
        """Something is parked from `first` to `last`."""
        self.next = min(self.next, first) if self.has_parked else first
        self.end = max(self.end, last + 1)


class KeyOrder(Generic[C]):
    """The order of keys. With `keep_order` off only the owner of a slot counts (allow_out_of_order_delivery).

    Memory: two small entries for each message in flight, one for each that lies among the next 2,000 of its owner (of
    an owner before it, too, where consumers left while something came again), and
    for the first 4,000 of it that came back, with what was read of them (`shed` drops the payloads); 8 bytes for each
    further one that came back. Of parked ones three numbers for each slot, and a
    bitmap of at most a million; beyond these at most a bit for each offset that was read since the first of them, and
    nearly nothing where what comes in another way is rare.
    """

    def __init__(self, *, keep_order: bool, refused: RefusedKeys | None = None) -> None:
        self.refused = RefusedKeys() if refused is None else refused
        """Empty without ordered redelivery."""
        self.keep_order = keep_order
        """May change while no consumer is attached."""
        self._owner: Sequence[C | None] = [None] * SLOTS
        self._lanes: dict[C | None, _Lane] = {None: _Lane()}
        self._stuck: dict[int, list[Waiting]] = {}
        """Messages of slots that another consumer holds, or behind a refused message of their slot, by slot."""
        self._parked: dict[int, _Parked] = {}
        """By slot."""
        self._ranges = BitMap64()
        """Messages that were admitted, some of which are parked; it is not known which ones, and for which consumer."""
        self._held: dict[int, tuple[C, int]] = {}
        self._slots: dict[int, int] = {}
        self.waiting = 0
        """Messages known here and not delivered, without those that are parked."""
        self.waiting_bytes = 0
        """Size of the payloads that are kept for them."""
        self.parked = 0
        """Messages that are parked; what was acknowledged meanwhile may be among them."""
        self.acknowledged_early = False
        """Something was acknowledged that is not in flight, so perhaps something that waits here."""

    def assign(self, owner: Sequence[C | None], consumers: Iterable[C]) -> None:
        """The consumers are these now, and `owner` says which slots each has. Holders stay what they are."""
        fresh = sorted(entry for lane in self._lanes.values() for entry in lane.fresh)
        again = [entry for lane in self._lanes.values() for entry in lane.all_again()]
        again += [entry for entries in self._stuck.values() for entry in entries]
        for lane in self._lanes.values():
            self._ranges |= lane.known
        self._owner = owner
        self._lanes = {None: _Lane(), **{consumer: _Lane() for consumer in consumers}}
        self._stuck = {slot: [] for slot, (holder, _) in self._held.items() if owner[slot] is not holder}
        for entry in fresh:
            self._lanes[owner[entry[1]]].fresh.append(entry)
        for entry in sorted(again, key=itemgetter(0)):
            self._push(entry)
        for slot in self._parked:
            if slot not in self._stuck:
                self._cover(slot)

    @property
    def by_ranges(self) -> bool:
        """So much is parked that it is not known by offset."""
        return self.parked >= KNOWN

    def admit(
        self, offsets: Sequence[int], slots: Sequence[int], records: Sequence[Any], apart: BitMap64 | None = None
    ) -> list[int]:
        """Take messages that were just read, by ascending offset, above all that were admitted before; returns those
        that were parked. `apart`: unacknowledged ones between these that come in another way, for `by_ranges`.
        """
        by_ranges = self.by_ranges
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
        begin = offsets[0] if offsets else 0
        for lane in lanes.values():  # earlier messages do not go behind redelivered ones
            while len(lane.fresh) > NEAR and (lane.fresh[-1][0] >= begin or not lane.has_redeliveries):
                parked.append(self._park(lane.fresh.pop()))
        if by_ranges and parked and offsets:
            self._ranges.add_range(offsets[0], offsets[-1] + 1)
            if apart:
                self._ranges -= apart
            if offsets[0] >> _COMPRESSED_EVERY != offsets[-1] >> _COMPRESSED_EVERY:
                self._ranges.run_optimize()
        return parked

    def _park(self, entry: Waiting) -> int:
        offset, slot, record = entry
        found = self._parked.get(slot)
        if found is None:
            found = self._parked[slot] = _Parked(offset)
        found.first, found.last = min(found.first, offset), max(found.last, offset)
        found.count += 1
        in_ranges = self.by_ranges or slot in self._stuck
        if in_ranges:
            self._ranges.add(offset)
        if slot not in self._stuck:
            lane = self._lanes[self._owner[slot]]
            lane.cover(offset, offset)
            if in_ranges:
                lane.ranges_end = max(lane.ranges_end, offset + 1)
            else:
                lane.known.add(offset)
        self.parked += 1
        self.waiting -= 1
        if record is not None:
            self.waiting_bytes -= len(record)
        return offset

    def _cover(self, slot: int) -> None:
        """Counts the parked messages of a slot for its owner, wherever they are known."""
        lane, found = self._lanes[self._owner[slot]], self._parked[slot]
        lane.cover(found.first, found.last)
        lane.ranges_end = max(lane.ranges_end, found.last + 1)

    def look(
        self, consumer: C, limit: int, next_unacked: int, is_acknowledged: Callable[[int], bool]
    ) -> UnackedMessages | None:
        """Returns where the lowest parked messages of `consumer` may be; None if a message is at hand, or none
        parked."""
        lane = self._lanes[consumer]
        if lane.at_hand or not lane.has_parked:
            return None
        start, end = max(lane.next, next_unacked), min(lane.end, lane.ranges_end)
        known: Iterable[int] = lane.known.iter_equal_or_larger(start)
        if start < end:
            ranges = self._ranges.iter_equal_or_larger(start)
            known = merge(known, takewhile(lambda offset: offset < end, ranges))
        offsets: list[int] = []
        for looked_at, offset in enumerate(known):
            if looked_at == _LOOKED_AT:
                return UnackedMessages(offsets, offset - 1)
            if is_acknowledged(offset) or (offsets and offset == offsets[-1]):
                continue
            offsets.append(offset)
            if len(offsets) == limit:
                return UnackedMessages(offsets, offset)
        return UnackedMessages(offsets, lane.end - 1)

    def is_parked(self, consumer: C, offset: int, slot: int) -> bool:
        """Whether this message, of those that `look` returned, is parked, and `consumer` may perhaps get it."""
        found = self._parked.get(slot)
        if found is None or slot in self._stuck or self._owner[slot] is not consumer:
            return False
        return found.first <= offset <= found.last

    def read_back(
        self, consumer: C, upto: int, entries: Sequence[Waiting], elsewhere: Iterable[tuple[int, int]] = ()
    ) -> None:
        """All that `look` gave up to and including `upto` was dealt with: these, by ascending offset, are at hand now;
        `elsewhere` come in another way (offset, slot). What was parked and is neither is acknowledged."""
        lane = self._lanes[consumer]
        lane.next = upto + 1
        lane.known.remove_range(0, upto + 1)
        before = len(self._parked)
        for offset, slot in sorted([*((entry[0], entry[1]) for entry in entries), *elsewhere]):
            found = self._parked[slot]
            found.first = offset + 1
            found.count -= 1
            self.parked -= 1
            if found.first > found.last:
                self._unpark(slot)
        if not lane.has_parked:
            for slot in [s for s in self._parked if self._owner[s] is consumer and s not in self._stuck]:
                self._unpark(slot)
        if len(self._parked) < before and self._ranges:
            if self._parked:
                self._ranges.remove_range(0, min(found.first for found in self._parked.values()))
            else:
                self._ranges.clear()
        lane.fresh.extend(entries)
        self.waiting += len(entries)
        self.waiting_bytes += sum(len(entry[2]) for entry in entries)

    def _unpark(self, slot: int) -> None:
        self.parked -= self._parked.pop(slot).count

    def has_for(self, consumer: C) -> bool:
        """Whether a message waits that this consumer could perhaps get."""
        lane = self._lanes[consumer]
        return lane.at_hand or lane.has_parked

    def consumers_waited_for(self) -> list[C]:
        """Returns the consumers for which `has_for` is True, in the order of `assign`."""
        return [
            consumer
            for consumer, lane in self._lanes.items()
            if (lane.fresh or lane.again or lane.behind or lane.next < lane.end) and consumer is not None
        ]

    def has_at_hand(self, consumer: C) -> bool:
        """Whether such a message is not parked."""
        return self._lanes[consumer].at_hand

    def awaited(self) -> dict[C, int]:
        """Returns how many messages wait for each consumer: to take them, or to settle what it holds of their slots.
        Counts messages that were acknowledged while they wait, too."""
        found: dict[C, int] = {}
        for consumer, lane in self._lanes.items():
            if consumer is not None and (lane.at_hand or lane.has_parked):
                found[consumer] = len(lane.fresh) + len(lane.again) + len(lane.behind)
        for slot, entries in self._stuck.items():
            hold = self._held.get(slot)
            if entries and hold is not None:
                found[hold[0]] = found.get(hold[0], 0) + len(entries)
        for slot, parked in self._parked.items():
            waits_for = self._awaited_of(slot) if slot in self._stuck else self._owner[slot]
            if waits_for is not None:
                found[waits_for] = found.get(waits_for, 0) + parked.count
        return found

    def holders_awaited(self) -> set[C]:
        """Returns the consumers that hold slots of which messages wait for another owner, or for a refused message."""
        stuck = (slot for slot, entries in self._stuck.items() if entries or slot in self._parked)
        return {consumer for slot in stuck if (consumer := self._awaited_of(slot)) is not None}

    def _awaited_of(self, slot: int) -> C | None:
        hold = self._held.get(slot)
        return None if hold is None else hold[0]

    def behind_refused(self, slot: int) -> int:
        """Returns how many messages of a slot wait that its consumer could otherwise get."""
        parked = self._parked.get(slot)
        return len(self._stuck.get(slot, ())) + (0 if parked is None else parked.count)

    def stuck(self) -> int:
        """Returns how many messages wait for another holder than their owner, and are not parked."""
        return sum(map(len, self._stuck.values()))

    def coming_again(self) -> int:
        """Returns how many messages wait that were returned, or waited for another holder."""
        return sum(len(lane.again) + len(lane.behind) for lane in self._lanes.values())

    def take(self, consumer: C, limit: int, *, only_again: bool = False) -> list[Waiting]:
        """Up to `limit` messages that `consumer` may get now, lowest first. It holds them from now on.

        `only_again` leaves out messages that were not delivered before and did not wait for another holder, and what
        comes behind these in their slots.
        """
        lane = self._lanes[consumer]
        held, in_flight = self._held, self._slots
        keep_order, refused, refused_slots = self.keep_order, self.refused, self.refused.slots
        taken: list[Waiting] = []
        moved_bytes = 0
        behind = lane.behind
        blocked: list[Waiting] = []
        first_fresh: dict[int, int] | None = None
        while (lane.again or behind or (not only_again and lane.fresh)) and len(taken) < limit:
            if behind and not lane.again:
                lane.fetch_again()
            entry = heappop(lane.again) if only_again else lane.pop()
            offset, slot, record = entry
            if only_again and lane.fresh and offset > lane.fresh[0][0]:
                if first_fresh is None:
                    first_fresh = lane.first_fresh()
                if first_fresh.get(slot, offset) < offset:
                    blocked.append(entry)
                    continue
            if keep_order:
                if slot in refused_slots and refused.holds_back(offset, slot):
                    self._wait_for_holder(entry)
                    continue
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
        for entry in blocked:
            self._push(entry)
        self.waiting -= len(taken)
        self.waiting_bytes -= moved_bytes
        return taken

    def _wait_for_holder(self, entry: Waiting) -> None:
        slot = entry[1]
        entries = self._stuck.get(slot)
        if entries is None:
            entries = self._stuck[slot] = []
            if slot in self._parked:  # what its owner looks at and may not get is to be found again
                self._ranges |= self._lanes[self._owner[slot]].known
        entries.append(entry)

    def slot_of(self, offset: int) -> int | None:
        """Returns the slot of a message in flight."""
        return self._slots.get(offset)

    def hold(self, offset: int, slot: int, consumer: C) -> None:
        if self.keep_order:
            _, count = self._held.get(slot, (consumer, 0))
            self._held[slot] = (consumer, count + 1)
            self._slots[offset] = slot

    def offsets_waiting(self) -> BitMap64:
        """Returns all messages known here and not delivered, without those that are parked."""
        found = BitMap64()
        for lane in self._lanes.values():
            found.update(entry[0] for entry in lane.fresh)
            found.update(entry[0] for entry in lane.all_again())
        for entries in self._stuck.values():
            found.update(entry[0] for entry in entries)
        return found

    def floors(self) -> dict[int, int]:
        """Returns for each slot with parked messages an offset at or below all of these. No message of the slot at or
        above it is delivered, except redelivered ones."""
        return {slot: found.first for slot, found in self._parked.items()}

    def put_back(self, entries: Iterable[Waiting]) -> None:
        """Puts back messages that were taken and not delivered: they are next again."""
        for entry in entries:
            self._release(entry[0])
            self._wait_again(entry)

    def let_go(self, offsets: Iterable[int]) -> None:
        """Releases messages that no consumer holds any more, and that do not wait here yet."""
        for offset in offsets:
            self._release(offset)

    def returned(self, offset: int) -> bool:
        """Redelivers a message that was in flight. False if its slot is not known, or a message before it is parked:
        read it, then `readmit` or `park_again`."""
        slot = self._release(offset)
        if slot is None or self.is_behind_parked(offset, slot):
            return False
        self._wait_again((offset, slot, None))
        return True

    def readmit(self, offset: int, slot: int, record: Any) -> list[int]:
        """Redelivers a message that was read again; returns those of which only the offset is known from now on."""
        return [entry[0] for entry in self._wait_again((offset, slot, record))]

    def is_behind_parked(self, offset: int, slot: int) -> bool:
        """Whether a message before this one, of its slot, is parked."""
        found = self._parked.get(slot)
        return self.keep_order and found is not None and found.first < offset

    def park_again(self, offset: int, slot: int, record: Any) -> list[int]:
        """`readmit` for one that waits for those parked before it: it is parked, too."""
        self.waiting += 1
        self.waiting_bytes += len(record)
        return [self._park((offset, slot, record))]

    def acknowledged(self, offsets: Iterable[int]) -> None:
        offsets = tuple(offsets)
        freed = self.refused.settled(offsets)
        for offset in offsets:
            if self._release(offset) is None and self.waiting:
                self.acknowledged_early = True
        for slot in freed:
            self._release_slot(slot)

    def held_by_transaction(self, offsets: Iterable[int]) -> None:
        """A transaction acknowledges these. Until it commits, later messages of refused ones wait."""
        for offset in offsets:
            if self._release(offset) is None and self.waiting:
                self.acknowledged_early = True

    def shed(self) -> None:
        """Drops the payloads of all waiting messages; they are read again when it is their turn."""
        for lane in self._lanes.values():
            lane.fresh = deque((offset, slot, None) for offset, slot, _ in lane.fresh)
            lane.again = [(offset, slot, None) for offset, slot, _ in lane.again]
        for slot, entries in self._stuck.items():
            self._stuck[slot] = [(offset, slot, None) for offset, _, _ in entries]
        self.waiting_bytes = 0

    def clear(self) -> None:
        """Forgets all messages in flight and waiting (seek, revocation)."""
        for lane in self._lanes.values():
            lane.fresh.clear()
            lane.again.clear()
            del lane.behind[:]
            lane.known.clear()
            lane.next = lane.end = lane.ranges_end = 0
        self._stuck.clear()
        self._parked.clear()
        self._ranges.clear()
        self._held.clear()
        self._slots.clear()
        self.refused.clear()
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
            self._release_slot(slot)
        return slot

    def _release_slot(self, slot: int) -> None:
        """Lets messages of a slot go to its owner: all of them, or those up to a refused one."""
        stuck = self._stuck.get(slot)
        if stuck is None or (slot in self._held and self._held[slot][0] is not self._owner[slot]):
            return
        limit, parked = self.refused.limit(slot), self._parked.get(slot)
        if limit is not None and (parked is None or parked.first > limit):
            self._stuck[slot] = [entry for entry in stuck if entry[0] > limit]
            stuck = [entry for entry in stuck if entry[0] <= limit]
        else:
            del self._stuck[slot]
            if parked is not None:
                self._cover(slot)
        for entry in stuck:
            self._push(entry)

    def _wait_again(self, entry: Waiting) -> list[Waiting]:
        self.waiting += 1
        if entry[2] is not None:
            self.waiting_bytes += len(entry[2])
        return self._push(entry)

    def _push(self, entry: Waiting) -> list[Waiting]:
        behind = self._lanes[self._owner[entry[1]]].push(entry)
        self.waiting_bytes -= sum(len(record) for _, _, record in behind if record is not None)
        return behind
