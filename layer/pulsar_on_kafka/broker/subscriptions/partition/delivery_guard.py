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
from pulsar_on_kafka.broker.subscriptions.partition.slot_floors import Floors, SlotFloors
from pulsar_on_kafka_mapping.state.cursors.cursor_state import Deliveries

MIN_RESERVE: Final = 100
MAX_RESERVE: Final = 50_000

_WINDOW_BASE: Final = 16
_LARGEST_WINDOW: Final = 1024


def window_of(delivery: int, most: int | None) -> int:
    """Returns how many suspects may be out at once beside one whose next delivery is number `delivery` of `most`.

    1 for its last delivery, 16 for the one before, 256 and 1,024 before that. `most` is None while no consumer has a
    policy and a former owner's consumers had one: it may come, and may allow as little as this delivery.
    """
    left = 0 if most is None else most - delivery
    return 1 if left <= 0 else min(_LARGEST_WINDOW, _WINDOW_BASE ** min(left, 3))


class Departure(Enum):
    """A consumer's departure, and what it means for the deliveries of what the consumer held."""

    CLOSED = "closed"
    """In good order, as it reported: the deliveries do not count, as in Pulsar."""
    LOST = "lost"
    """Not known what it received; it may live, and work on that. The deliveries count."""
    DIED = "died"
    """Its process died, and what it held may be the reason. The deliveries count, and make suspects."""


PutOff = Callable[[], Mapping[int, BitMap64]]
"""Offsets that wait for their time, by Unix ms."""


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
        """No entry at or above it was delivered by this process, nor as far as is known by a former owner."""
        self._put_off = put_off
        self._floors = SlotFloors(floors)
        self.reported_below = 0
        """Unacknowledged entries below it are redelivered, and not read first."""
        self._new_below = 0
        self._unparked = BitMap64()
        """Entries that are not parked any more, while the last accepted save may have a floor at or below them."""
        self._named = BitMap64()
        """Saved with its number of deliveries, though that is 1: it may lie above a floor."""
        self._limit = 0
        self._reserve = MIN_RESERVE
        self._delivered: dict[int, int] = {}
        """Deliveries up to now, where that is not 1."""
        self._granted: dict[int, int] = {}
        self._requested: dict[int, int] = {}
        self._suspects = BitMap64()
        self.isolation = Isolation()
        self._window: dict[int, int] = {}
        """Suspects that went out beside others and are not settled, each with how many may be out with it."""
        self._most: int | None = None
        self._kept = BitMap64()
        self._pending: dict[int, _Pending] = {}
        self._retired = self._abandoned = False
        self._changed = True
        self.reported = False
        """The present suspects were logged."""

    # Taking over --------------------------------------------------------------------------------------------------

    def recover(self, saved: Deliveries, end: int, cursor: CursorState, floors: Floors | None = None) -> BitMap64:
        """Continues from what a former owner saved; our own first save contains the same. The log ended at `end`.
        `floors`: those that it saved, where slots count (`decide`).

        Returns the offsets that are redelivered, so that reading passes them over: suspects, and entries with a count.
        Entries that are put off are not among them, nor suspects: no consumer held them.
        """
        self._limit = self._new_below = saved.limit
        if floors:
            self._new_below = min(floors.values())
            self._floors.recover(floors, end)
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
        self.reported_below = min(end, self._floors.lowest())
        self._position = max(self._position, self.reported_below)
        held = cursor.unacknowledged(0, self.reported_below) - never_out
        self._suspects = BitMap64(o for o in saved.suspects if not cursor.is_acknowledged(o)) | held
        self._suspects -= put_off
        return self._suspects | BitMap64(o for o in counted - put_off if not cursor.is_acknowledged(o))

    def adopt(self, redeliveries: Mapping[int, int], kept: BitMap64) -> None:
        """The policy was set after messages were delivered; `kept` were not."""
        self._kept |= kept
        self._delivered.update((offset, count + 1) for offset, count in redeliveries.items())

    def ends_at(self, end: int) -> BitMap64:
        """Forgets entries at or above the log's end, which no process can have delivered; returns them."""
        beyond = BitMap64(offset for offset in self.offsets() if offset >= end)
        self.settled(list(beyond))
        self._position, self.reported_below = min(self._position, end), min(self.reported_below, end)
        self._floors.undecided_below = min(self._floors.undecided_below, end)
        self._changed = True
        return beyond

    def start_over(self, position: int) -> None:
        """Forgets earlier deliveries after a seek; nothing is delivered before the next save."""
        self._position = position
        self._limit = self._new_below = self.reported_below = 0
        self._floors.clear()
        self._window.clear()
        self.isolation.clear()
        for offsets in (self._suspects, self._kept, self._unparked, self._named):
            offsets.clear()
        for counts in (self._delivered, self._granted, self._requested, self._pending):
            counts.clear()
        self._changed = True

    # What may go out ----------------------------------------------------------------------------------------------

    def new_below(self) -> int:
        return self._new_below

    def next_delivery(self, offset: int) -> int:
        """Returns the number of a message's next delivery, from 1."""
        if offset in self._kept:
            return 1
        return self._delivered.get(offset, 1 if offset < self._position or offset in self._suspects else 0) + 1

    def is_new(self, offsets: list[int]) -> bool:
        """Whether all of these are kept and may be delivered, to any process."""
        if self.isolates:
            return False
        requested = BitMap64(offsets)
        return requested.issubset(self._kept) and requested.isdisjoint(self._unparked)

    @property
    def isolates(self) -> bool:
        """Whether there are suspects, or no accepted save contains yet how the last ones ended."""
        return bool(self._suspects) or self.isolation.in_use

    def lasts(self, offsets: Iterable[int], most: int | None) -> BitMap64:
        """Returns the suspects among these whose next delivery is the last one: each is delivered alone."""
        before, among = 1 if most is None else most - 1, BitMap64(offsets) & self._suspects
        counts, counted = self._delivered, self._counted(among)
        if before > 1:
            return BitMap64(offset for offset in counted if counts[offset] >= before)
        fewer = BitMap64(offset for offset in counted if counts[offset] < before)
        return among - fewer - (self._kept if before == 1 else BitMap64())

    def _counted(self, offsets: BitMap64) -> BitMap64:
        """Returns those of these that have their own number of deliveries. Iterates over these or over all such
        numbers, whichever are fewer."""
        if len(offsets) < len(self._delivered):
            return BitMap64(offset for offset in offsets if offset in self._delivered)
        return offsets & BitMap64(self._delivered)

    def begin(self, processes: Collection[str]) -> None:
        """Begins a dispatch to the consumers of these processes."""
        if self.isolates:
            for offset in self.isolation.begin(processes):
                self._requested.pop(offset, None)  # what a save permitted already the next one takes back
                self._changed = True

    def admit(
        self, lowest: list[int], most: int | None, place: ProcessLoad | None = None, *, in_order: bool = True
    ) -> list[int]:
        """Returns those of these, in order, that may be delivered again now, or that are dead after `most` deliveries.

        The others are requested in the next save. `in_order`: entries behind one of them wait, too, unless there are
        suspects. `place`: the process that gets them; it is needed while there are suspects.
        """
        if place is not None and self.isolates:
            lowest, in_order = self._for_place(lowest, most, place), False
        admitted: list[int] = []
        unsaid_below = min(self._limit, self._floors.lowest())
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
                    self._requested[offset] = delivery
                    self._named.add(offset)
            elif not in_order or not self._requested:
                admitted.append(offset)
        return admitted

    def _for_place(self, lowest: list[int], most: int | None, place: ProcessLoad) -> list[int]:
        """Returns those of these that this process may get: the dead ones, and what its turn allows."""
        self._most = most
        number, requested = self.next_delivery, BitMap64(lowest)
        dead = [] if most is None else [offset for offset in self._counted(requested) if number(offset) > most]
        lasts = self.lasts(requested, most) - BitMap64(dead)
        waiting = lasts - BitMap64(self.isolation.alone())
        others = requested - lasts - BitMap64(dead)
        turn = self.isolation.turn(place, lasts=bool(waiting), others=bool(others))
        if turn is ProcessTurn.FLOW:
            return dead + self._of_the_window(others, most, self.isolation.room(place))
        if turn is ProcessTurn.NOTHING:
            return dead
        mine = self.isolation.alone_in(place.process)
        if mine is None:
            mine = waiting.min()
            self.isolation.choose(place.process, mine)
        if place.out or mine in lasts:
            self.isolation.sees(place.process)
        if place.out or mine not in lasts:
            return dead
        if self.isolation.is_unsaved(place.process) and self._granted.get(mine) == number(mine):
            return dead
        return [*dead, mine]

    def _of_the_window(self, lowest: BitMap64, most: int | None, limit: int) -> list[int]:
        """Returns up to `limit` of these: those that are no suspects, and the first suspects that fit beside those that
        are out or requested."""
        fitting = list(islice(lowest - self._suspects, limit))
        apart = self.isolation.alone()
        requested = [o for o in self._requested if o in self._suspects and o not in apart and o not in lowest]
        busy = len(self._window) + len(requested)
        room = min(
            [*self._window.values(), *(window_of(self._requested[o], most) for o in requested)], default=MAX_RESERVE
        )
        for offset in islice(lowest & self._suspects, limit):
            room = min(room, window_of(self.next_delivery(offset), most))
            if busy >= room:
                continue
            busy += 1
            fitting.append(offset)
        return sorted(fitting)[:limit]

    def _leave_window(self, offsets: Collection[int]) -> None:
        self.isolation.ends(offsets)
        if self._window:
            for offset in offsets:
                self._window.pop(offset, None)

    def waits(self, next_new: int | None, *, again: bool) -> bool:
        """Whether nothing can be delivered before a save or an acknowledgement; room in an inbox would not help."""
        if self.isolates:
            return True
        return not (again and not self._requested) and (next_new is None or next_new >= self.new_below())

    @property
    def suspects(self) -> int:
        """The number of messages that a dead consumer may have had, and that were not acknowledged or refused since."""
        return len(self._suspects)

    @property
    def over(self) -> bool:
        """Whether no entry is left that a former owner counted, and none was delivered twice."""
        left = self.isolates or self._delivered or self._requested or self._floors.undecided_below
        return not (left or self._pending or self._retired)

    @property
    def requires_save(self) -> bool:
        """Deliveries wait for a save, or will soon."""
        if self._retired:
            return False
        waiting = self.isolation.unsaved or bool(self._requested) or bool(self._unparked)
        return waiting or self._new_below - self._position < self._reserve // 2

    @property
    def unsaved(self) -> bool:
        return self._changed or self.requires_save

    def offsets(self) -> BitMap64:
        """Returns the messages of which any state is known."""
        return self._suspects | self._kept | BitMap64([*self._delivered, *self._granted, *self._requested])

    # What happened ------------------------------------------------------------------------------------------------

    def handed_out(self, upto: int) -> None:
        """Notes first deliveries, up to and including this offset."""
        self._position = max(self._position, upto + 1)

    def keep(self, offsets: Sequence[int], slots: Sequence[int], parked: Sequence[int]) -> None:
        """Keeps entries that are below the position now, and wait for their keys' turn; some of them are `parked`."""
        apart = BitMap64(parked)
        self._kept.update(offsets)
        self._kept -= apart
        self._unparked.update(offset for offset in self._floors.above(offsets, slots) if offset not in apart)

    def decide(self, offsets: Sequence[int], slots: Sequence[int]) -> frozenset[int]:
        """Returns those of these entries, just read, that a former owner may have delivered: they are suspects."""
        found = self._floors.perhaps_delivered(offsets, slots)
        if found:
            self._suspects.update(found)
            self._changed = True
        return found

    def unpark(self, offsets: Iterable[int]) -> None:
        """Unparks entries. Those that were never delivered may be after the next save."""
        unparked = BitMap64(offset for offset in offsets if not self._delivered.get(offset))
        self._kept |= unparked
        self._unparked |= unparked

    def handed_out_in_turn(self, offsets: list[int]) -> None:
        """Notes deliveries of entries that were kept, or are redelivered."""
        new = self._kept & BitMap64(offsets)
        self._kept -= new
        again = [offset for offset in offsets if offset not in new] if len(new) < len(offsets) else []
        if again:
            self.handed_out_again(again)

    def handed_out_again(self, offsets: list[int]) -> None:
        alone = self.isolation.alone()
        for offset in offsets:
            self._delivered[offset] = delivery = self.next_delivery(offset)
            if offset in self._suspects and offset not in alone:
                self._window[offset] = window_of(delivery, self._most)
        self._position = max(self._position, max(offsets) + 1)

    def never_out(self, offsets: Iterable[int]) -> None:
        """Notes that these were not delivered yet, wherever they lie."""
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
            self._requested.pop(offset, None)
            self._suspects.discard(offset)

    def survived(self, offsets: Iterable[int]) -> None:
        """Their consumer refused them, or took too long, or they are dead letters: they did not kill its process."""
        self._changed = True
        for offset in offsets:
            if offset in self._suspects:
                self._suspects.discard(offset)
                self._delivered.setdefault(offset, 1)  # it may lie above what this owner has handed out
            self._leave_window((offset,))

    def departed(self, offsets: Iterable[int], how: Departure) -> None:
        """The consumer that held these left."""
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

    def never_received(self, offsets: BitMap64) -> None:
        """A former owner delivered these, but they did not reach their consumer: that delivery does not count."""
        unseen = self._suspects & offsets
        self._suspects -= unseen
        self.departed(unseen, Departure.CLOSED)

    def still_held(self, offsets: Iterable[int]) -> None:
        """The partition was taken over, and live consumers hold these."""
        for offset in offsets:
            self._suspects.discard(offset)
            self._leave_window((offset,))
            self._delivered.setdefault(offset, 1)

    def held_elsewhere(self, offsets: BitMap64) -> None:
        """The partition is given up, and consumers of other processes hold these: unless they report that to its next
        owner, they died."""
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
        self.departed(waiting, Departure.CLOSED)
        if received is not None:
            self._suspects |= received
        self.departed(out - self._kept, Departure.LOST)
        self._requested.clear()
        self._retired = self._changed = True
        self._abandoned = self._abandoned or not orderly
        if self._position < self._floors.undecided_below:
            not_listed = cursor.unacknowledged(0, self._floors.hand_over()) - BitMap64(self._delivered)
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
        floors = self._floors.for_save(self._position, new_below)
        limit = max(self._limit, new_below, max(self._requested, default=-1) + 1)
        if not self._floors.undecided_below:
            new_below = limit
        if self._retired:
            limit, floors = self._floors.undecided_below, self._floors.former()
        self._floors.saving(floors)
        lowest_floor = self._floors.lowest()

        def least(offset: int) -> int:
            """Below the limit a first delivery is permitted, unless a floor may say that there was none."""
            return 0 if self._retired or (offset >= lowest_floor and offset not in self._named) else 1

        granted = {o: max(least(o), count) for o, count in self._delivered.items() if not is_acknowledged(o)}
        # Permits that were not used are taken back: they must not count as deliveries after a crash.
        self._granted = {o: min(count, granted[o]) for o, count in self._granted.items() if o in granted}
        self._requested = {o: count for o, count in self._requested.items() if not is_acknowledged(o)}
        granted.update(self._requested)
        groups: dict[tuple[int, int], list[int]] = {}
        # What is not listed counts as delivered once below a limit, else as never delivered.
        unsaid = 1 if not self._retired else -1 if limit else 0
        for offset, count in granted.items():
            redelivered = redeliveries.get(offset, 0)
            if count > unsaid or redelivered or (count and offset in self._named):
                groups.setdefault((count, redelivered), []).append(offset)
        ended = self.isolation.ended()
        self._pending = {save: _Pending(limit, granted, ended, new_below, floors, self._unparked.copy())}
        self._changed = False
        counts = {key: BitMap64(offsets) for key, offsets in groups.items()}
        return Deliveries(limit, self._suspects.copy(), counts, dict(self._put_off()), floors)

    def accepted(self, save: int) -> None:
        """Deliveries that this save contains may happen now. A save from before a seek changes nothing."""
        found = self._pending.pop(save, None)
        if found is None:
            return
        self._limit, self._granted = found.limit, found.granted
        self._new_below = found.new_below
        self._floors.accepted(found.floors)
        self._unparked -= found.unparked
        self.isolation.accepted(found.ended)
        self._requested = {o: count for o, count in self._requested.items() if self._granted.get(o, 0) < count}

    def refused(self, save: int) -> None:
        self._pending.pop(save, None)
        self._changed = True
