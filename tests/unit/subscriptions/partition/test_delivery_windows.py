"""The delivery window bounds the messages of a dead consumer that are out at once."""

from __future__ import annotations

import pytest
from pyroaring import BitMap64

from pulsar_on_kafka.cursor.cursor_machine import CursorState
from pulsar_on_kafka.mapping.state.cursors.cursor_state import Deliveries
from pulsar_on_kafka.subscriptions.partition.delivery_guard import DeliveryGuard, window_of


def after_a_death(count: int) -> DeliveryGuard:
    """So many messages were out; nothing of them is acknowledged."""
    guard = DeliveryGuard(0, dict)
    guard.recover(Deliveries(limit=count), count, CursorState(0, 50_000))
    return guard


def granted(guard: DeliveryGuard, lowest: list[int], most: int | None, save: int = 1) -> list[int]:
    """What may go out once a save was accepted that counts what was asked for."""
    assert guard.admit(lowest, most) == []
    guard.snapshot(save, {}, lambda offset: False)
    guard.accepted(save)
    return guard.admit(lowest, most)


@pytest.mark.parametrize(
    ("delivery", "most", "window"),
    [(2, 2, 1), (2, 3, 16), (3, 4, 16), (2, 4, 256), (2, 5, 1024), (2, 50, 1024), (2, None, 1)],
)
def test_the_fewer_deliveries_are_left_the_fewer_share_the_blame(delivery: int, most: int | None, window: int) -> None:
    assert window_of(delivery, most) == window


def test_a_window_goes_out_after_one_save_and_the_next_when_something_of_it_is_settled() -> None:
    guard = after_a_death(100)
    offsets = list(range(100))
    out = granted(guard, offsets, 3)
    assert out == offsets[:16]
    guard.handed_out_again(out)
    assert guard.admit(offsets[16:], 3) == []
    assert guard.waits(None, again=True)
    guard.settled([0, 1])
    assert granted(guard, offsets[16:], 3, save=2) == [16, 17]
    assert guard.suspects == 98


def test_the_last_delivery_happens_alone() -> None:
    guard = after_a_death(10)
    assert granted(guard, list(range(10)), 2) == [0]


def test_nothing_new_goes_out_until_the_last_one_is_saved_as_settled() -> None:
    guard = after_a_death(2)
    out = granted(guard, [0, 1], 4)
    guard.handed_out_again(out)
    guard.settled(out)
    assert (guard.suspects, guard.new_below(), guard.wants_save) == (0, 0, True)
    held: BitMap64 = guard.snapshot(2, {}, lambda offset: True).suspects
    guard.accepted(2)
    assert not held
    assert guard.new_below() > 0
