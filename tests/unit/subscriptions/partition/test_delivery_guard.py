"""A delivery counts, or not, when its consumer goes, and the next owner hears of that."""

from __future__ import annotations

import pytest
from pyroaring import BitMap64

from pulsar_on_kafka.cursor.cursor_machine import CursorState
from pulsar_on_kafka.mapping.state.cursors.cursor_state import Deliveries
from pulsar_on_kafka.subscriptions.partition.delivery_guard import DeliveryGuard, Departure


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
    guard.retire(BitMap64(), BitMap64())
    again = next_owner(save(guard, 2))
    assert again.next_delivery(4) == 2
    assert again.next_delivery(5) == 1
    assert not again.suspects


def test_whoever_hands_over_takes_back_only_what_nobody_received() -> None:
    guard = with_ten_out()
    guard.retire(BitMap64([3]), BitMap64([4]))
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
    guard.keep([3, 4])
    assert guard.is_new([3, 4])
    assert not guard.is_new([4, 5])
    heir = next_owner(save(guard, 2))
    heir.keep([3])
    assert not heir.is_new([3])
