"""A delivery counts, or not, when its consumer goes, and the next owner hears of that."""

from __future__ import annotations

import pytest
from pyroaring import BitMap64

from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.subscriptions.partition.delivery_guard import DeliveryGuard, Departure
from pulsar_on_kafka_mapping.state.cursors.cursor_state import Deliveries


def new_guard() -> DeliveryGuard:
    return DeliveryGuard(0, dict)


def with_ten_out() -> DeliveryGuard:
    guard = new_guard()
    save(guard, 1)
    guard.handed_out(9)
    return guard


def save(guard: DeliveryGuard, number: int) -> Deliveries:
    saved = guard.snapshot(number, {}, lambda offset: False)
    guard.accepted(number)
    return saved


def next_owner(saved: Deliveries) -> DeliveryGuard:
    guard = new_guard()
    guard.recover(saved, saved.limit, CursorState(next_unacked=0, entries_per_ledger=10))
    return guard


@pytest.mark.parametrize(("how", "delivery"), [(Departure.CLOSED, 1), (Departure.LOST, 2), (Departure.DIED, 2)])
def test_only_a_close_in_good_order_takes_a_delivery_back(how: Departure, delivery: int) -> None:
    guard = with_ten_out()
    guard.departed([4], how)
    assert guard.next_delivery(4) == delivery
    assert guard.suspects == (how is Departure.DIED)


def test_a_delivery_that_nobody_knows_of_counts_for_the_next_owner_too() -> None:
    guard = with_ten_out()
    guard.departed([4], Departure.LOST)
    guard.retire(BitMap64(), BitMap64(), CursorState(0, 10))
    again = next_owner(save(guard, 2))
    assert again.next_delivery(4) == 2
    assert again.next_delivery(5) == 1
    assert not again.suspects


def test_whoever_hands_over_takes_back_only_what_nobody_received() -> None:
    guard = with_ten_out()
    guard.retire(BitMap64([3]), BitMap64([4]), CursorState(0, 10))
    again = next_owner(save(guard, 2))
    assert [again.next_delivery(offset) for offset in (3, 4)] == [1, 2]


def test_what_reached_no_consumer_under_the_former_owner_was_not_delivered() -> None:
    guard = with_ten_out()
    guard.held_elsewhere(BitMap64([4, 5]))
    again = next_owner(save(guard, 2))
    again.never_received(BitMap64([4]))
    assert [again.next_delivery(offset) for offset in (4, 5)] == [1, 2]


def test_a_suspect_that_is_refused_at_once_was_delivered_once_all_the_same() -> None:
    again = next_owner(save(with_ten_out(), 2))
    assert again.next_delivery(4) == 2
    again.survived([4])
    assert again.next_delivery(4) == 2


def test_what_waits_for_its_keys_turn_is_new_while_nothing_is_suspected() -> None:
    guard = with_ten_out()
    guard.keep([3, 4], [0, 0], [])
    assert guard.is_new([3, 4])
    assert not guard.is_new([4, 5])
    heir = next_owner(save(guard, 2))
    heir.keep([3], [0], [])
    assert not heir.is_new([3])


SLOT, OTHER = 7, 8


def with_parked() -> tuple[DeliveryGuard, dict[int, int]]:
    """30 of slot 7 is parked, as are others above it; 0 to 29 are out."""
    floors = {SLOT: 30}
    guard = DeliveryGuard(0, dict, lambda: floors)
    save(guard, 1)
    guard.handed_out(29)
    guard.keep([30], [SLOT], [30])
    guard.handed_out(30)
    return guard, floors


def test_a_floor_says_that_what_is_parked_was_not_handed_out() -> None:
    guard, _ = with_parked()
    saved = save(guard, 2)
    heir = DeliveryGuard(0, dict)
    again = heir.recover(saved, saved.limit, CursorState(0, 10), saved.floors)
    assert list(again) == list(range(30))
    assert heir.decide([30, 31, 32], [SLOT, OTHER, SLOT]) == {31}
    assert [heir.next_delivery(offset) for offset in (30, 31, 32)] == [1, 2, 1]


def test_an_owner_that_leaves_before_it_has_read_everything_keeps_the_floors_for_the_next_one() -> None:
    saved = save(with_parked()[0], 2)
    heir = DeliveryGuard(0, dict)
    heir.recover(saved, saved.limit, CursorState(0, 10), saved.floors)
    heir.never_received(BitMap64([3]))
    heir.retire(BitMap64(), BitMap64(), CursorState(0, 10))
    saved = save(heir, 3)
    third = DeliveryGuard(0, dict)
    third.recover(saved, saved.limit, CursorState(0, 10), saved.floors)
    assert third.decide([30, 31, 32], [SLOT, OTHER, SLOT]) == {31}
    assert [third.next_delivery(offset) for offset in (3, 4, 30, 31)] == [1, 2, 1, 2]


def test_without_slots_what_is_parked_counts_as_handed_out() -> None:
    """The next owner's subscription is not Key_Shared."""
    saved = save(with_parked()[0], 2)
    heir = DeliveryGuard(0, dict)
    assert list(heir.recover(saved, saved.limit, CursorState(0, 10))) == list(range(saved.limit))


def test_what_is_parked_no_more_goes_out_after_the_next_save() -> None:
    guard, floors = with_parked()
    save(guard, 2)
    del floors[SLOT]
    guard.unpark([30])
    assert guard.requires_save
    assert not guard.is_new([30])
    assert guard.admit([30], None, in_order=False) == []
    save(guard, 3)
    assert guard.is_new([30])


def test_what_is_read_behind_what_was_parked_goes_out_after_the_next_save_too() -> None:
    guard, floors = with_parked()
    save(guard, 2)
    del floors[SLOT]
    guard.unpark([30])
    guard.keep([31, 32], [SLOT, OTHER], [])
    assert not guard.is_new([31])
    assert guard.is_new([32])
    save(guard, 3)
    assert guard.is_new([30, 31, 32])


def test_a_first_delivery_above_a_floor_is_named() -> None:
    """Of a delayed message: it comes by redelivery, while lower ones of its slot are parked."""
    guard, _ = with_parked()
    guard.never_out([35])
    save(guard, 2)
    assert guard.admit([35], None, in_order=False) == []
    saved = save(guard, 3)
    assert guard.admit([35], None, in_order=False) == [35]
    heir = DeliveryGuard(0, dict)
    again = heir.recover(saved, saved.limit, CursorState(30, 10), saved.floors)
    assert list(again) == [35]
    assert heir.next_delivery(35) == 2


def test_nothing_above_a_former_owners_floor_goes_out_before_a_save() -> None:
    saved = save(with_parked()[0], 2)
    heir = DeliveryGuard(30, dict)
    heir.recover(saved, saved.limit, CursorState(30, 10), saved.floors)
    assert not heir.suspects
    assert heir.new_below() == 30
    mine = save(heir, 3)
    assert 30 < heir.new_below() <= mine.floors[SLOT]
