"""Consumers of a Key_Shared subscription get messages of a key in order."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable

import pytest
from pyroaring import BitMap64

from pulsar_on_kafka.base.errors import HashRangeConflict, SubscriptionBusy
from pulsar_on_kafka.broker.subscriptions.partition import key_order
from pulsar_on_kafka.broker.subscriptions.partition.key_order import KNOWN, NEAR, KeyOrder, UnackedMessages, Waiting
from pulsar_on_kafka.broker.subscriptions.records.hash_ranges import POINTS_PER_CONSUMER, HashRanges, KeySharedRule
from pulsar_on_kafka_mapping.routing.sticky_hash import SLOTS, murmur3_32
from tests.seeds import first_of


def ranges(*names: str) -> HashRanges[str]:
    made: HashRanges[str] = HashRanges()
    for name in names:
        made.add(name, name, KeySharedRule())
    return made


def an_order(*names: str, keep_order: bool = True) -> tuple[KeyOrder[str], HashRanges[str]]:
    keys: KeyOrder[str] = KeyOrder(keep_order=keep_order)
    made = ranges(*names)
    keys.assign(made.table, names)
    return keys, made


def offsets(entries: list[Waiting]) -> list[int]:
    return [offset for offset, _, _ in entries]


def slot_of(made: HashRanges[str], owner: str) -> int:
    return next(slot for slot, consumer in enumerate(made.table) if consumer == owner)


# Who owns a slot --------------------------------------------------------------------------------------------------


def test_every_slot_has_an_owner_and_the_parts_are_of_about_one_size() -> None:
    made = ranges("a", "b", "c", "d")
    sizes = [made.table.count(name) for name in "abcd"]
    assert sum(sizes) == SLOTS == len(made.table)
    assert min(sizes) > SLOTS / 4 * 0.6


def test_a_consumer_that_comes_or_goes_moves_only_its_own_slots() -> None:
    made = ranges("a", "b", "c")
    before = list(made.table)
    made.add("d", "d", KeySharedRule())
    assert all(new in (old, "d") for old, new in zip(before, made.table, strict=True))
    made.remove("d")
    assert list(made.table) == before


def test_consumers_of_one_name_share_too() -> None:
    made: HashRanges[int] = HashRanges()
    for number in range(3):
        made.add(number, "same", KeySharedRule())
    assert set(made.table) == {0, 1, 2}
    made.remove(1)
    made.add(3, "same", KeySharedRule())
    assert set(made.table) == {0, 2, 3}


def test_without_consumers_nobody_owns_anything() -> None:
    made = ranges("a")
    made.remove("a")
    made.remove("a")
    assert set(made.table) == {None}


def by_the_rule(consumers: list[tuple[str, int]]) -> list[str | None]:
    """Who owns each slot, worked out from all points anew: `consumers` are names with their incarnations, as they
    came."""
    owners: dict[int, str] = {}
    for name, incarnation in consumers:
        for point in range(POINTS_PER_CONSUMER):
            owners.setdefault(murmur3_32(f"{name}/{incarnation}/{point}".encode()) % SLOTS, f"{name}/{incarnation}")
    ring = sorted(owners)
    found: list[str | None] = [None] * SLOTS
    for slot in range(SLOTS if ring else 0):
        at = bisect_left(ring, slot)
        found[slot] = owners[ring[at % len(ring)]]
    return found


@pytest.mark.parametrize("seed", first_of(3, range(30)))
def test_whoever_comes_and_goes_the_slots_are_those_of_the_points(seed: int) -> None:
    rng, made, there = random.Random(seed), HashRanges[str](), list[tuple[str, int]]()
    for _ in range(40):
        if there and rng.random() < 0.4:
            name, incarnation = there.pop(rng.randrange(len(there)))
            made.remove(f"{name}/{incarnation}")
        else:
            name = f"consumer {rng.randrange(25)}"
            taken = {incarnation for other, incarnation in there if other == name}
            incarnation = min(set(range(len(taken) + 1)) - taken)
            made.add(f"{name}/{incarnation}", name, KeySharedRule())
            there.append((name, incarnation))
    assert list(made.table) == by_the_rule(there)
    for name, incarnation in there:
        made.remove(f"{name}/{incarnation}")
    assert set(made.table) == {None}


def sticky(*given: tuple[int, int], out_of_order: bool = False) -> KeySharedRule:
    return KeySharedRule(given, out_of_order)


def test_sticky_ranges_are_inclusive_and_leave_the_rest_to_nobody() -> None:
    made: HashRanges[str] = HashRanges()
    made.add("a", "a", sticky((0, 9), (20, 20)))
    made.add("b", "b", sticky((10, 19)))
    assert list(made.table[:22]) == ["a"] * 10 + ["b"] * 10 + ["a", None]


@pytest.mark.parametrize("given", [(9, 12), (0, 0), (0, 65535), (20, 30), (12, 11), (-1, 3), (70000, 70001)])
def test_ranges_that_cannot_be_had(given: tuple[int, int]) -> None:
    made: HashRanges[str] = HashRanges()
    made.add("a", "a", sticky((0, 9), (20, 20)))
    with pytest.raises(HashRangeConflict, match=f"b wants .{given[0]}, {given[1]}"):
        made.add("b", "b", sticky(given))
    assert set(made.table) == {"a", None}


@pytest.mark.parametrize("rule", [KeySharedRule(), sticky((100, 200), out_of_order=True)])
def test_consumers_of_another_kind_are_refused(rule: KeySharedRule) -> None:
    made: HashRanges[str] = HashRanges()
    made.add("a", "a", sticky((0, 9)))
    with pytest.raises(SubscriptionBusy, match="consumer b requires"):
        made.add("b", "b", rule)


# Order ------------------------------------------------------------------------------------------------------------


def test_a_new_owner_waits_for_what_the_former_one_holds() -> None:
    keys, made = an_order("a")
    made.add("b", "b", KeySharedRule())
    moved = slot_of(made, "b")
    keys.admit([0, 1, 2], [moved] * 3, ["x"] * 3)
    assert offsets(keys.take("a", 2)) == [0, 1]
    keys.assign(made.table, ["a", "b"])
    assert keys.take("b", 9) == []
    keys.acknowledged([0])
    assert keys.take("b", 9) == []
    keys.acknowledged([1])
    assert offsets(keys.take("b", 9)) == [2]


def test_a_slot_that_comes_back_to_its_holder_goes_on_at_once() -> None:
    keys, made = an_order("a")
    made.add("b", "b", KeySharedRule())
    moved = slot_of(made, "b")
    keys.admit([0, 1], [moved] * 2, ["x"] * 2)
    keys.take("a", 1)
    keys.assign(made.table, ["a", "b"])
    assert keys.take("b", 9) == []
    made.remove("b")
    keys.assign(made.table, ["a"])
    assert offsets(keys.take("a", 9)) == [1]


def test_what_comes_again_is_before_what_was_never_out() -> None:
    keys, _ = an_order("a")
    keys.admit([0, 1, 2, 3], [7] * 4, ["x"] * 4)
    assert offsets(keys.take("a", 2)) == [0, 1]
    assert keys.returned(0)
    assert keys.take("a", 2) == [(0, 7, None), (2, 7, "x")]


def test_a_consumer_without_room_stops_only_its_own_slots() -> None:
    keys, made = an_order("a", "b")
    slots = [slot_of(made, "a"), slot_of(made, "b")] * 3
    keys.admit(range(6), slots, ["x"] * 6)
    assert offsets(keys.take("b", 9)) == [1, 3, 5]
    assert keys.waiting == 3


def test_out_of_order_a_new_owner_gets_its_slots_at_once() -> None:
    keys, made = an_order("a", keep_order=False)
    made.add("b", "b", KeySharedRule())
    moved = slot_of(made, "b")
    keys.admit([0, 1], [moved] * 2, ["x"] * 2)
    keys.take("a", 1)
    keys.assign(made.table, ["a", "b"])
    assert offsets(keys.take("b", 9)) == [1]
    assert not keys.returned(0)  # it has to be read to know its slot
    keys.readmit(0, moved, "x")
    assert offsets(keys.take("b", 9)) == [0]


def test_slots_of_nobody_wait_for_somebody() -> None:
    keys: KeyOrder[str] = KeyOrder(keep_order=True)
    made: HashRanges[str] = HashRanges()
    made.add("a", "a", sticky((0, 9)))
    keys.assign(made.table, ["a"])
    keys.admit([0, 1], [5, 50], ["x"] * 2)
    assert offsets(keys.take("a", 9)) == [0]
    made.add("b", "b", sticky((10, 99)))
    keys.assign(made.table, ["a", "b"])
    assert offsets(keys.take("b", 9)) == [1]


def test_dropped_payloads_keep_their_place() -> None:
    keys, _ = an_order("a")
    keys.admit([0, 1], [7, 8], ["xxx", "yy"])
    assert keys.waiting_bytes == 5
    keys.shed()
    assert (keys.waiting, keys.waiting_bytes) == (2, 0)
    assert keys.take("a", 9) == [(0, 7, None), (1, 8, None)]


def test_what_is_parked_of_a_slot_that_turns_out_to_be_held_is_found_when_it_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_order, "NEAR", 1)
    keys, made = an_order("a", "b")
    of_a = slot_of(made, "a")
    assert keys.admit([1, 2, 3], [of_a] * 3, ["x"] * 3) == [3, 2]
    keys.hold(0, of_a, "b")  # it said so after the partition was taken over
    assert keys.take("a", 9) == []
    assert keys.look("a", 9, 0, {0}.__contains__) == ([2, 3], 3)
    assert not keys.is_parked("a", 2, of_a)
    keys.read_back("a", 3, [])
    assert not keys.has_for("a")
    keys.acknowledged([0])
    assert offsets(keys.take("a", 9)) == [1]
    assert keys.look("a", 9, 0, {0, 1}.__contains__) == ([2, 3], 3)
    assert keys.is_parked("a", 2, of_a)


def test_nothing_is_parked_that_lies_before_what_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_order, "NEAR", 2)
    keys, made = an_order("a", "b")
    of_a, of_b = slot_of(made, "a"), slot_of(made, "b")
    assert keys.admit([1, 2, 3, 4], [of_a, of_a, of_b, of_b], ["x"] * 4) == []
    keys.readmit(5, of_b, "x")
    made.remove("b")
    keys.assign(made.table, ["a"])
    assert keys.admit([6], [of_b], ["x"]) == [6]
    assert keys.is_behind_parked(7, of_b)
    assert keys.park_again(7, of_b, "x") == [7]
    assert offsets(keys.take("a", 9)) == [1, 2, 3, 4, 5]
    assert keys.look("a", 9, 0, set[int]().__contains__) == ([6, 7], 7)


class History:
    """Random consumers, acknowledgements and returns on one partition, judged by what they may see."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.keys: KeyOrder[str] = KeyOrder(keep_order=True)
        self.ranges: HashRanges[str] = HashRanges()
        self.consumers: list[str] = []
        self.names = 0
        self.sticky = self.random.random() < 0.3
        self.slots = [self.random.randrange(SLOTS) for _ in range(self.random.choice((1, 3, 12)))]
        self.slot: dict[int, int] = {}
        self.end = 0
        self.total = 60
        self.holder: dict[int, str] = {}
        self.out: set[int] = set()
        self.waiting: set[int] = set()
        self.done: set[int] = set()
        self.in_transaction: set[int] = set()
        self.due: set[int] = set()
        """Of what was delayed: it waits for nothing that is parked."""
        self.delayed: set[int] = set()
        """Read, and not due."""
        self.kept: set[int] = set()
        """A consumer holds or held these since a former owner handed them out. Reading passes them over."""
        self.unread: set[int] = set()
        """Kept ones that came back, and wait until all before them was read."""
        self.delays = self.random.choice((0.0, 0.0, 0.3))
        self.deliveries: dict[int, int] = defaultdict(int)
        self.returns: dict[int, int] = defaultdict(int)

    def read(self) -> None:
        count = min(self.random.randint(1, 8), self.total - self.end)
        new = range(self.end, self.end + count)
        self.end += count
        for offset in new:
            self.slot.setdefault(offset, self.random.choice(self.slots))
        delayed = {offset for offset in new if offset not in self.kept and self.random.random() < self.delays}
        self.delayed |= delayed
        apart = delayed.union(self.kept.intersection(new))
        admitted = [offset for offset in new if offset not in apart]
        slots = [self.slot[offset] for offset in admitted]
        parked = self.keys.admit(admitted, slots, ["x"] * len(admitted), BitMap64(apart))
        self.waiting.update(admitted)
        at_hand = set(self.keys.offsets_waiting())
        assert not at_hand.intersection(parked)
        assert len(self.waiting - self.done - at_hand) <= self.keys.parked
        self.come_again(self.unread.intersection(new))

    def take_over(self) -> None:
        """The only consumer holds some messages since a former owner handed them out."""
        for offset in self.random.sample(range(self.total), self.random.choice((0, 0, 5))):
            self.slot[offset] = self.random.choice(self.slots)
            self.keys.hold(offset, self.slot[offset], self.consumers[0])
            self.holder[offset] = self.consumers[0]
            self.deliveries[offset] = 1
            self.kept.add(offset)

    def become_due(self) -> None:
        due = self.delayed - self.done
        self.due |= due
        self.come_again(due)
        self.delayed.clear()

    def come_again(self, offsets: Iterable[int]) -> None:
        """As the dispatcher has them, once it has read them."""
        for offset in offsets:
            waits = self.keys.is_behind_parked(offset, self.slot[offset]) and offset not in self.due
            (self.keys.park_again if waits else self.keys.readmit)(offset, self.slot[offset], "x")
            self.waiting.add(offset)

    def join(self) -> None:
        if len(self.consumers) == 5:
            return
        name = f"c{self.names}"
        self.names += 1
        rule = KeySharedRule()
        if self.sticky:
            first = self.random.randrange(SLOTS)
            rule = sticky((first, self.random.randrange(first, SLOTS)))
        try:
            self.ranges.add(name, name, rule)
        except HashRangeConflict:
            return
        self.consumers.append(name)
        self.keys.assign(self.ranges.table, self.consumers)

    def leave(self) -> None:
        if self.consumers:
            name = self.consumers.pop(self.random.randrange(len(self.consumers)))
            self.give_back([offset for offset, holder in self.holder.items() if holder == name])
            self.ranges.remove(name)
            self.keys.assign(self.ranges.table, self.consumers)

    def take(self) -> None:
        if self.consumers:
            self.take_by(self.random.choice(self.consumers), self.random.randint(1, 6))

    def read_back(self, name: str) -> None:
        """Some cannot be read yet, and some are held by a transaction, and come again when that is aborted."""
        look = self.look(name, self.random.randint(1, 6))
        if look is None:
            return
        assert look.offsets == sorted(set(look.offsets) - self.done)
        upto = look.upto
        if look.offsets and self.random.random() < 0.1:
            upto = self.random.choice(look.offsets) - 1
        mine = [o for o in look.offsets if o <= upto and self.keys.is_parked(name, o, self.slot[o])]
        held = {offset for offset in mine if self.random.random() < 0.1}
        self.in_transaction.update(held)
        self.waiting.difference_update(held)
        entries = [(offset, self.slot[offset], "x") for offset in mine if offset not in held]
        self.keys.read_back(name, upto, entries, [(offset, self.slot[offset]) for offset in held])

    def look(self, name: str, limit: int) -> UnackedMessages | None:
        next_unacked = min(set(range(self.total + 1)) - self.done)
        return self.keys.look(name, limit, next_unacked, self.done.__contains__)

    def abort(self) -> None:
        self.come_again(self.in_transaction - self.done)
        self.in_transaction.clear()

    def take_by(self, name: str, limit: int) -> None:
        if limit > 1 and not self.keys.has_at_hand(name):
            self.read_back(name)
        taken = offsets(self.keys.take(name, limit, only_again=limit == 1))
        assert len(taken) <= limit
        if self.keys.acknowledged_early:
            early = [offset for offset in taken if offset in self.done]
            self.keys.acknowledged(early)
            taken = [offset for offset in taken if offset not in self.done]
        if self.random.random() < 0.1 and taken:
            at = self.random.randrange(len(taken))  # this one could not be read: nor may what follows it in its slot
            late = [offset for offset in taken[at:] if self.slot[offset] == self.slot[taken[at]]]
            self.keys.put_back([(offset, self.slot[offset], "x") for offset in late])
            taken = [offset for offset in taken if offset not in late]
        for offset in taken:
            slot = self.slot[offset]
            assert self.ranges.table[slot] == name, "not its key"
            assert offset in self.waiting, "handed out twice"
            others = {self.holder[held] for held in self.holder if self.slot[held] == slot}
            assert others <= {name}, "a key at two consumers"
            if offset not in self.due:
                before = {o for o in self.waiting - self.done if o < offset and self.slot[o] == slot}
                assert not before, "overtook its key"
            self.waiting.discard(offset)
            self.holder[offset] = name
            self.deliveries[offset] += 1
            assert self.deliveries[offset] == self.returns[offset] + 1

    def acknowledge(self) -> None:
        known = list(self.holder) if self.random.random() < 0.9 else list(range(self.end))
        chosen = self.random.sample(known, min(len(known), self.random.randint(1, 4)))
        self.finish(chosen)

    def finish(self, chosen: list[int]) -> None:
        self.keys.acknowledged(chosen)
        self.done.update(chosen)
        for offset in chosen:
            self.holder.pop(offset, None)
            self.waiting.discard(offset)

    def nack(self) -> None:
        held = list(self.holder)
        self.give_back(self.random.sample(held, min(len(held), self.random.randint(1, 4))))

    def give_back(self, chosen: list[int]) -> None:
        for offset in chosen:
            del self.holder[offset]
            self.returns[offset] += 1
            if offset >= self.end:
                self.keys.let_go([offset])
                self.unread.add(offset)
            elif self.keys.returned(offset):
                self.waiting.add(offset)
            else:
                self.come_again([offset])

    def run(self) -> None:
        steps = (self.read, self.take, self.take, self.take, self.acknowledge, self.acknowledge, self.nack)
        rare = (self.join, self.leave, self.keys.shed, self.abort, self.become_due)
        self.join()
        self.take_over()
        for _ in range(self.random.randint(20, 120)):
            step = self.random.choice(rare) if self.random.random() < 0.15 else self.random.choice(steps)
            if self.end < self.total or step != self.read:
                step()
        self.settle()

    def settle(self) -> None:
        """From here on everybody acknowledges what it gets: nothing may be left."""
        if not self.consumers or self.sticky:
            while self.consumers:
                self.leave()
            self.sticky = False
            self.join()
        while self.end < self.total:
            self.read()
        for _ in range(10 * self.total):
            if len(self.done) == self.total:
                break
            for name in list(self.consumers):
                self.take_by(name, 9)
            self.finish(list(self.holder))
            self.abort()
            self.become_due()
        assert len(self.done) == self.total, f"starved: {sorted(self.waiting)}"
        for name in self.consumers:
            assert not [offset for offset in offsets(self.keys.take(name, 999)) if offset not in self.done]
        assert (self.keys.waiting, self.keys.waiting_bytes) == (0, 0)
        assert (self.keys.stuck(), self.keys.coming_again()) == (0, 0)
        for name in self.consumers:  # of what was acknowledged while it was parked nothing is left
            while (look := self.look(name, self.total)) is not None:
                self.keys.read_back(name, look.upto, [])
        assert self.keys.parked == 0
        assert not self.keys._ranges


@pytest.mark.parametrize("block", first_of(3, range(20)))
def test_random_histories_keep_every_key_in_order(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(block * 200, block * 200 + 200):
        monkeypatch.setattr(key_order, "NEAR", (1, 4, NEAR)[seed % 3])
        monkeypatch.setattr(key_order, "KNOWN", (0, 3, 10, KNOWN)[seed % 4])
        monkeypatch.setattr(key_order, "_LOOKED_AT", (1, 4, 100)[seed // 3 % 3])
        History(seed).run()
