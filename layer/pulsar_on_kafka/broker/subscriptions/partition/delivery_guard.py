"""The delivery guard says which messages may be handed out, so that no crash hides a delivery. No I/O, no clock.

Where a dead letter policy is set, a message that kills its process every time must not be delivered more often than
configured, and must not drag its neighbours along (docs/delivery-counts.md). So every delivery is on record before it
happens:

* First deliveries: each save reserves a hand-out limit ahead of what was handed out; nothing goes out beyond the limit
  of the last accepted save.
* Redeliveries go out after the save that holds their new count was accepted.
* After a crash everything below the limit that is not acknowledged is a suspect: delivered once as far as dead letters
  go. Suspects go out a window at a time, each after a save that counts it, beside everything that no one suspects. A
  window is the smaller, the fewer deliveries its messages have left (`window_of`): after each further death fewer share
  the blame. A suspect's last delivery happens alone in its process (see `isolation`).

On Key_Shared a message may wait for its key's turn below the position: it is `kept`, and was not handed out. Millions
more may be parked (see `key_order`), and must not be suspects after a crash: each save names the *floors* of their
slots. At or above the floor of its slot nothing was handed out, unless the save names it. What is parked no more goes
out after a save that has no floor below it. A new owner knows no message's slot before it has read it, and decides
then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from itertools import islice
from typing import Final, NamedTuple

from pyroaring import BitMap64

from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.subscriptions.partition.isolation import Isolation, ProcessLoad, ProcessTurn
from pulsar_on_kafka_mapping.state.cursors.cursor_state import Deliveries

MIN_RESERVE: Final = 100
MAX_RESERVE: Final = 50_000
NO_FLOOR: Final = 2**63

_WINDOW_BASE: Final = 16
_LARGEST_WINDOW: Final = 1024


def window_of(delivery: int, most: int | None) -> int:
    """How many suspects may be out at once with one whose delivery number `delivery` of at most `most` this is.

    1 for its last delivery, 16 for the one before, 256 and 1,024 before that. `most` is None while no consumer has a
    policy and a former owner's consumers had one: it may come, and may allow as little as this delivery.
    """
    left = 0 if most is None else most - delivery
    return 1 if left <= 0 else min(_LARGEST_WINDOW, _WINDOW_BASE ** min(left, 3))


class Departure(Enum):
    """A consumer's departure, and what it means for the deliveries of what the consumer held."""

    CLOSED = "closed"
    """In good order, by its own word: they do not count, as in Pulsar."""
    LOST = "lost"
    """What it received before is not known; it may live, and work on it. They count."""
    DIED = "died"
    """With its process, and what it held may be the reason. They count, and make suspects."""


PutOff = Callable[[], Mapping[int, BitMap64]]
"""Offsets that wait for their time, by Unix ms."""
Floors = Mapping[int, int]
"""Of each slot of which some is parked an offset at or below all of that."""


class _Pending(NamedTuple):
    """A save under way."""

    limit: int
    granted: dict[int, int]
    ended: Mapping[str, int]
    new_below: int
    floors: dict[int, int]
    unparked: BitMap64


class DeliveryGuard:
    """Memory: two numbers for each unacknowledged message that was delivered more than once, compressed bitmaps of what
    waits for its key's turn, and a number for each slot of which some is parked."""

    def __init__(self, position: int, put_off: PutOff, floors: Callable[[], Floors] = dict) -> None:
        self._position = position
        """Nothing at or above it was handed out by this process, nor as far as is known by a former owner."""
        self._put_off = put_off
        self._floors = floors
        self._floors_before: dict[int, int] = {}
        """A former owner's, until everything that it may have handed out was read."""
        self._undecided_below = 0
        self.told_below = 0
        """Nothing below it is to be read first: all of it that is not acknowledged comes by redelivery."""
        self._new_below = 0
        self._said: dict[int, int] = {}
        """The floors of the accepted save, and of the one under way."""
        self._unparked = BitMap64()
        """Nothing of it is parked any more, and the last accepted save may have a floor at or below it."""
        self._named = BitMap64()
        """Saved with its number of deliveries, though that is 1: it may lie above a floor."""
        self._limit = 0
        self._reserve = MIN_RESERVE
        self._delivered: dict[int, int] = {}
        """Deliveries up to now, where that is not 1."""
        self._granted: dict[int, int] = {}
        self._asked: dict[int, int] = {}
        self._suspects = BitMap64()
        self._isolation = Isolation()
        self._window: dict[int, int] = {}
        """Suspects that went out beside others and are not settled, each with how many may be out with it."""
        self._most: int | None = None
        self._kept = BitMap64()
        self._pending: dict[int, _Pending] = {}
        self._retired = self._abandoned = False
        self._changed = True
        self.told = False
        """Somebody was told of the suspects that there are now."""

    # Taking over --------------------------------------------------------------------------------------------------

    def recover(self, saved: Deliveries, end: int, cursor: CursorState, floors: Floors | None = None) -> BitMap64:
        """Go on from what a former owner saved; our own first save holds the same. Nothing from `end` on was there.
        `floors`: what it saved of them, where slots count (`decide`).

        Gives the offsets that come by redelivery, so that reading passes them over: suspects, and what has a count.
        What is put off is not among them, nor a suspect: nobody held it.
        """
        self._limit = self._new_below = saved.limit
        if floors:
            self._new_below = min(floors.values())
            self._said, self._floors_before, self._undecided_below = dict(floors), dict(floors), end
        put_off = BitMap64()
        for offsets in saved.put_off.values():
            put_off |= offsets
        self._delivered.update(dict.fromkeys(put_off, 1))
        counted, never_out = BitMap64(), BitMap64()
        for (delivered, _), offsets in saved.counts.items():
            counted |= offsets
            self._delivered.update(dict.fromkeys(offsets, delivered))
            if delivered:
                self._named |= offsets
            else:
                never_out |= offsets
        self._granted = dict(self._delivered)
        self.told_below = min(end, self._lowest_floor())
        self._position = max(self._position, self.told_below)
        held = cursor.unacknowledged(0, self.told_below) - never_out
        self._suspects = BitMap64(o for o in saved.suspects if not cursor.is_acknowledged(o)) | held
        self._suspects -= put_off
        return self._suspects | BitMap64(o for o in counted - put_off if not cursor.is_acknowledged(o))

    def adopt(self, redeliveries: Mapping[int, int], kept: BitMap64) -> None:
        """The policy came while messages were out already; `kept` were not."""
        self._kept |= kept
        self._delivered.update((offset, count + 1) for offset, count in redeliveries.items())

    def start_over(self, position: int) -> None:
        """A seek: what was delivered before does not matter; nothing goes out before the next save."""
        self._position = position
        self._limit = self._new_below = self._undecided_below = self.told_below = 0
        self._window.clear()
        self._isolation.clear()
        for offsets in (self._suspects, self._kept, self._unparked, self._named):
            offsets.clear()
        for floors in (self._said, self._floors_before):
            floors.clear()
        for counts in (self._delivered, self._granted, self._asked, self._pending):
            counts.clear()
        self._changed = True

    # What may go out ----------------------------------------------------------------------------------------------

    def new_below(self) -> int:
        return self._new_below

    def next_delivery(self, offset: int) -> int:
        """Which delivery the next one of a message would be, from 1."""
        if offset in self._kept:
            return 1
        return self._delivered.get(offset, 1 if offset < self._position or offset in self._suspects else 0) + 1

    def is_new(self, offsets: list[int]) -> bool:
        """All of these are kept and may be handed out, to any process."""
        if self.isolates:
            return False
        wanted = BitMap64(offsets)
        return wanted.issubset(self._kept) and wanted.isdisjoint(self._unparked)

    @property
    def isolates(self) -> bool:
        """There are suspects, or no accepted save holds yet how the last ones ended."""
        return bool(self._suspects) or self._isolation.in_use

    def lasts(self, offsets: Iterable[int], most: int | None) -> BitMap64:
        """Of these the suspects whose next delivery is the last one: each goes alone."""
        before, among = 1 if most is None else most - 1, BitMap64(offsets) & self._suspects
        counts, counted = self._delivered, self._counted(among)
        if before > 1:
            return BitMap64(offset for offset in counted if counts[offset] >= before)
        fewer = BitMap64(offset for offset in counted if counts[offset] < before)
        return among - fewer - (self._kept if before == 1 else BitMap64())

    def _counted(self, offsets: BitMap64) -> BitMap64:
        """Of these the ones that have a number of deliveries of their own. Looks at these or at all such numbers,
        whichever are fewer."""
        if len(offsets) < len(self._delivered):
            return BitMap64(offset for offset in offsets if offset in self._delivered)
        return offsets & BitMap64(self._delivered)

    def room(self, place: ProcessLoad) -> int:
        """How many messages that were never out may go to this process, while there are suspects."""
        return self._isolation.room(place)

    def is_stalled(self, process: str) -> bool:
        return self._isolation.is_stalled(process)

    def begin(self, processes: Collection[str]) -> None:
        """A dispatch to the consumers of these processes begins."""
        if self.isolates:
            for offset in self._isolation.begin(processes):
                self._asked.pop(offset, None)  # what a save permitted already the next one takes back
                self._changed = True

    def flowed(self, process: str, entries: int) -> None:
        """This process was handed so many entries that are no suspects, or are not alone."""
        self._isolation.flowed(process, entries)

    def admit(
        self, lowest: list[int], most: int | None, place: ProcessLoad | None = None, *, in_order: bool = True
    ) -> list[int]:
        """Of these, in order, the ones that may be delivered again now, or that are dead after `most` deliveries.

        The others are asked for in the next save. `in_order`: what is behind one of them waits, too, unless there are
        suspects. `place`: who gets them; it is needed where there are suspects.
        """
        if place is not None and self.isolates:
            lowest, in_order = self._for_place(lowest, most, place), False
        admitted: list[int] = []
        unsaid_below = min(self._limit, self._lowest_floor())
        for offset in lowest:
            delivery = self.next_delivery(offset)
            unsaid = 1 if offset < unsaid_below or offset in self._kept else 0
            if most is not None and delivery > most:
                allowed = True
            elif offset in self._unparked:
                allowed = False
            else:
                allowed = self._granted.get(offset, unsaid) >= delivery
            if not allowed:
                if offset not in self._unparked:
                    self._asked[offset] = delivery
                    self._named.add(offset)
            elif not in_order or not self._asked:
                admitted.append(offset)
        return admitted

    def _for_place(self, lowest: list[int], most: int | None, place: ProcessLoad) -> list[int]:
        """What this process may get of these: the dead ones, and what its turn allows."""
        self._most = most
        number, wanted = self.next_delivery, BitMap64(lowest)
        dead = [] if most is None else [offset for offset in self._counted(wanted) if number(offset) > most]
        lasts = self.lasts(wanted, most) - BitMap64(dead)
        waiting = lasts - BitMap64(self._isolation.alone())
        others = wanted - lasts - BitMap64(dead)
        turn = self._isolation.turn(place, lasts=bool(waiting), others=bool(others))
        if turn is ProcessTurn.FLOW:
            return dead + self._of_the_window(others, most, self._isolation.room(place))
        if turn is ProcessTurn.NOTHING:
            return dead
        mine = self._isolation.alone_in(place.process)
        if mine is None:
            mine = waiting.min()
            self._isolation.choose(place.process, mine)
        if place.out or mine in lasts:
            self._isolation.sees(place.process)
        if place.out or mine not in lasts:
            return dead
        if self._isolation.is_unsaved(place.process) and self._granted.get(mine) == number(mine):
            return dead
        return [*dead, mine]

    def _of_the_window(self, lowest: BitMap64, most: int | None, limit: int) -> list[int]:
        """Up to `limit` of these: what no one suspects, and the first suspects that fit beside those that are out or
        asked for."""
        fitting = list(islice(lowest - self._suspects, limit))
        apart = self._isolation.alone()
        asked = [o for o in self._asked if o in self._suspects and o not in apart and o not in lowest]
        busy = len(self._window) + len(asked)
        room = min([*self._window.values(), *(window_of(self._asked[o], most) for o in asked)], default=MAX_RESERVE)
        for offset in islice(lowest & self._suspects, limit):
            room = min(room, window_of(self.next_delivery(offset), most))
            if busy >= room:
                continue
            busy += 1
            fitting.append(offset)
        return sorted(fitting)[:limit]

    def _leave_window(self, offsets: Collection[int]) -> None:
        self._isolation.ends(offsets)
        if self._window:
            for offset in offsets:
                self._window.pop(offset, None)

    def waits(self, next_new: int | None, *, again: bool) -> bool:
        """Nothing can go out before a save or an acknowledgement; room in an inbox would not help."""
        if self.isolates:
            return True
        return not (again and not self._asked) and (next_new is None or next_new >= self.new_below())

    @property
    def suspects(self) -> int:
        """How many messages a consumer that died may have had, and nobody acknowledged or refused since."""
        return len(self._suspects)

    @property
    def over(self) -> bool:
        """Nothing that a former owner counted is left, and nothing was delivered twice."""
        left = self.isolates or self._delivered or self._asked or self._undecided_below
        return not (left or self._pending or self._retired)

    @property
    def wants_save(self) -> bool:
        """Deliveries wait for a save, or will soon."""
        if self._retired:
            return False
        waiting = self._isolation.unsaved or bool(self._asked) or bool(self._unparked)
        return waiting or self._new_below - self._position < self._reserve // 2

    @property
    def unsaved(self) -> bool:
        return self._changed or self.wants_save

    def offsets(self) -> BitMap64:
        """Of the messages that something is known of."""
        return self._suspects | self._kept | BitMap64([*self._delivered, *self._granted, *self._asked])

    # What happened ------------------------------------------------------------------------------------------------

    def handed_out(self, upto: int) -> None:
        """First deliveries, up to and including this offset."""
        self._position = max(self._position, upto + 1)

    def keep(self, offsets: Sequence[int], slots: Sequence[int], parked: Sequence[int]) -> None:
        """These are below the position now, and wait for their keys' turn; some of them are `parked`."""
        apart = BitMap64(parked)
        self._kept.update(offsets)
        self._kept -= apart
        if self._said:
            said = self._said
            near = (o for o, slot in zip(offsets, slots, strict=True) if o >= said.get(slot, NO_FLOOR))
            self._unparked.update(offset for offset in near if offset not in apart)

    def decide(self, offsets: Sequence[int], slots: Sequence[int]) -> frozenset[int]:
        """Which of these, by ascending offset and just read, a former owner may have handed out: they are suspects."""
        if not self._undecided_below:
            return frozenset()
        before, end = self._floors_before, self._undecided_below
        found = frozenset(o for o, s in zip(offsets, slots, strict=True) if o < end and o < before.get(s, NO_FLOOR))
        if found:
            self._suspects.update(found)
            self._changed = True
        return found

    def unpark(self, offsets: Iterable[int]) -> None:
        """These were parked. Those that were never out may go out after the next save."""
        unparked = BitMap64(offset for offset in offsets if not self._delivered.get(offset))
        self._kept |= unparked
        self._unparked |= unparked

    def handed_out_in_turn(self, offsets: list[int]) -> None:
        """Some of these were kept, the others come again."""
        new = self._kept & BitMap64(offsets)
        self._kept -= new
        again = [offset for offset in offsets if offset not in new] if len(new) < len(offsets) else []
        if again:
            self.handed_out_again(again)

    def handed_out_again(self, offsets: list[int]) -> None:
        alone = self._isolation.alone()
        for offset in offsets:
            self._delivered[offset] = delivery = self.next_delivery(offset)
            if offset in self._suspects and offset not in alone:
                self._window[offset] = window_of(delivery, self._most)
        self._position = max(self._position, max(offsets) + 1)

    def never_out(self, offsets: Iterable[int]) -> None:
        """These were not handed out yet, wherever they lie."""
        offsets = tuple(offsets)
        self._leave_window(offsets)
        for offset in offsets:
            self._delivered[offset] = 0
        self._suspects.difference_update(BitMap64(offsets))

    def settled(self, offsets: Sequence[int]) -> None:
        if self._kept or self._named:
            gone = BitMap64(offsets)
            self._kept -= gone
            self._unparked -= gone
            self._named -= gone
        self._leave_window(offsets)
        for offset in offsets:
            self._delivered.pop(offset, None)
            self._granted.pop(offset, None)
            self._asked.pop(offset, None)
            self._suspects.discard(offset)

    def survived(self, offsets: Iterable[int]) -> None:
        """Their consumer refused them, or took too long, or they are dead letters: they kill nobody now."""
        self._changed = True
        for offset in offsets:
            if offset in self._suspects:
                self._suspects.discard(offset)
                self._delivered.setdefault(offset, 1)  # it may lie above what this owner has handed out
            self._leave_window((offset,))

    def departed(self, offsets: Iterable[int], how: Departure) -> None:
        """The consumer that held these is gone."""
        if self._abandoned and how is Departure.CLOSED:
            return
        for offset in offsets:
            if how is Departure.CLOSED:
                self._delivered[offset] = self._delivered.get(offset, 1) - 1
            elif how is Departure.LOST:
                self._delivered.setdefault(offset, 1)
            else:
                self._suspects.add(offset)
                self._changed = True
            self._leave_window((offset,))

    def given_back(self, offsets: Iterable[int]) -> None:
        """No application has received these: the delivery does not count."""
        self.departed(offsets, Departure.CLOSED)

    def never_received(self, offsets: BitMap64) -> None:
        """A former owner handed these out, and they did not reach their consumer: that delivery does not count."""
        unseen = self._suspects & offsets
        self._suspects -= unseen
        self.given_back(unseen)

    def still_held(self, offsets: Iterable[int]) -> None:
        """The partition was taken over, and consumers that live have these."""
        for offset in offsets:
            self._suspects.discard(offset)
            self._leave_window((offset,))
            self._delivered.setdefault(offset, 1)

    def held_elsewhere(self, offsets: BitMap64) -> None:
        """The partition is given up, and consumers of other processes have these: if they do not tell its next owner
        so, they died."""
        self._suspects |= offsets
        self._changed = True

    def retire(
        self, waiting: BitMap64, out: BitMap64, cursor: CursorState, *, received: BitMap64 | None = None
    ) -> None:
        """The partition is given up. The messages `waiting` in inboxes were not received; those of `out` were handed
        out and are redelivered. The saves from now on say so.

        The deliveries of `out` count: a consumer that has received some of them may go on working on these.
        `received` has what consumers hold of a program that ends without having closed them: it may be the reason.
        None when they are closed in good order.
        """
        orderly = received is None
        if self._retired and orderly:
            return
        self.given_back(waiting)
        if received is not None:
            self._suspects |= received
        self.departed(out - self._kept, Departure.LOST)
        self._asked.clear()
        self._retired = self._changed = True
        self._abandoned = self._abandoned or not orderly
        if self._position < self._undecided_below:
            # A former owner may have handed out what was not read here. The next one judges by its limit and floors.
            for slot, floor in self._floors().items():
                self._floors_before[slot] = min(self._floors_before.get(slot, NO_FLOOR), floor)
            not_listed = cursor.unacknowledged(0, min(self._floors_before.values())) - BitMap64(self._delivered)
            self._delivered.update(dict.fromkeys(not_listed - self._suspects, 0))

    # Saves --------------------------------------------------------------------------------------------------------

    def snapshot(
        self, save: int, redeliveries: Mapping[int, int], is_acknowledged: Callable[[int], bool]
    ) -> Deliveries:
        left = self._new_below - self._position
        if left < self._reserve // 4:
            self._reserve = min(MAX_RESERVE, self._reserve * 2)
        elif left > self._reserve * 3 // 4:
            self._reserve = max(MIN_RESERVE, self._reserve // 2)
        new_below = max(self._new_below, self._position + self._reserve)
        floors = self._floors_with_those_before(new_below)
        limit = max(self._limit, new_below, max(self._asked, default=-1) + 1)
        if not self._undecided_below:
            new_below = limit
        if self._retired:
            limit, floors = self._undecided_below, dict(self._floors_before)
        for slot, floor in floors.items():
            self._said[slot] = min(self._said.get(slot, NO_FLOOR), floor)
        lowest_floor = self._lowest_floor()

        def least(offset: int) -> int:
            """Below the limit a first delivery is permitted, unless a floor may say that there was none."""
            return 0 if self._retired or (offset >= lowest_floor and offset not in self._named) else 1

        granted = {o: max(least(o), count) for o, count in self._delivered.items() if not is_acknowledged(o)}
        # What was permitted and not used is taken back: nobody shall count it as a delivery after a crash.
        self._granted = {o: min(count, granted[o]) for o, count in self._granted.items() if o in granted}
        self._asked = {o: count for o, count in self._asked.items() if not is_acknowledged(o)}
        granted.update(self._asked)
        groups: dict[tuple[int, int], list[int]] = {}
        # What is not listed counts as delivered once below a limit, else as never delivered.
        unsaid = 1 if not self._retired else -1 if limit else 0
        for offset, count in granted.items():
            redelivered = redeliveries.get(offset, 0)
            if count > unsaid or redelivered or (count and offset in self._named):
                groups.setdefault((count, redelivered), []).append(offset)
        ended = self._isolation.ended()
        self._pending = {save: _Pending(limit, granted, ended, new_below, floors, self._unparked.copy())}
        self._changed = False
        counts = {key: BitMap64(offsets) for key, offsets in groups.items()}
        return Deliveries(limit, self._suspects.copy(), counts, dict(self._put_off()), floors)

    def _lowest_floor(self) -> int:
        return min(self._said.values(), default=NO_FLOOR)

    def _floors_with_those_before(self, new_below: int) -> dict[int, int]:
        """Of what is parked, and of what was not read yet; between the two anything may go out below `new_below`."""
        floors = dict(self._floors())
        if self._position >= self._undecided_below:
            self._floors_before.clear()
            self._undecided_below = 0
        for slot, floor in self._floors_before.items():
            floors[slot] = min(floors.get(slot, NO_FLOOR), max(floor, new_below))
        return floors

    def accepted(self, save: int) -> None:
        """Deliveries that this save holds may happen now. A save from before a seek changes nothing."""
        found = self._pending.pop(save, None)
        if found is None:
            return
        self._limit, self._granted = found.limit, found.granted
        self._new_below, self._said = found.new_below, found.floors
        self._unparked -= found.unparked
        self._isolation.accepted(found.ended)
        self._asked = {o: count for o, count in self._asked.items() if self._granted.get(o, 0) < count}

    def refused(self, save: int) -> None:
        self._pending.pop(save, None)
        self._changed = True
