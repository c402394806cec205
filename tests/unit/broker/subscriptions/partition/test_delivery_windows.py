"""The delivery window bounds the messages of a dead consumer that are out at once; the last delivery happens alone."""

from __future__ import annotations

import pytest
from pyroaring import BitMap64

from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.subscriptions.partition.delivery_guard import MIN_RESERVE, DeliveryGuard, window_of
from pulsar_on_kafka.broker.subscriptions.partition.isolation import BESIDE, BURST, DRAIN_S, FLOW, ProcessLoad
from pulsar_on_kafka_mapping.state.cursors.cursor_state import Deliveries

HERE, THERE = "", "other"


def after_a_death(count: int) -> DeliveryGuard:
    """So many messages were out; nothing of them is acknowledged."""
    guard = DeliveryGuard(0, dict)
    guard.recover(Deliveries(limit=count), count, CursorState(0, 50_000))
    return guard


def place(
    process: str = HERE, out: int = 0, *, isolates: bool = True, new: bool = True, now_s: float = 0.0
) -> ProcessLoad:
    return ProcessLoad(process, out, isolates, new, now_s)


def save(guard: DeliveryGuard, number: int) -> BitMap64:
    suspects: BitMap64 = guard.snapshot(number, {}, lambda offset: False).suspects
    guard.accepted(number)
    return suspects


def granted(guard: DeliveryGuard, lowest: list[int], most: int | None, at: ProcessLoad, number: int = 1) -> list[int]:
    """What may go out once a save was accepted that counts what was asked for."""
    assert guard.admit(lowest, most, at) == []
    save(guard, number)
    return guard.admit(lowest, most, at)


@pytest.mark.parametrize(
    ("delivery", "most", "window"),
    [(2, 2, 1), (2, 3, 16), (3, 4, 16), (2, 4, 256), (2, 5, 1024), (2, 50, 1024), (2, None, 1)],
)
def test_the_fewer_deliveries_are_left_the_fewer_share_the_blame(delivery: int, most: int | None, window: int) -> None:
    assert window_of(delivery, most) == window


def test_a_window_goes_out_after_one_save_and_the_next_when_something_of_it_is_settled() -> None:
    guard = after_a_death(100)
    offsets = list(range(100))
    out = granted(guard, offsets, 3, place())
    assert out == offsets[:16]
    guard.handed_out_again(out)
    assert guard.admit(offsets[16:], 3, place(out=16)) == []
    assert guard.waits(None, again=True)
    guard.settled([0, 1])
    assert granted(guard, offsets[16:], 3, place(out=14), number=2) == [16, 17]
    assert guard.suspects == 98


def test_what_lies_behind_the_suspects_may_go_out_after_the_first_save() -> None:
    guard = after_a_death(5_000)
    assert guard.requires_save
    save(guard, 1)
    assert guard.new_below() == 5_000 + 2 * MIN_RESERVE
    assert guard.next_delivery(4_999) == 2
    assert guard.next_delivery(5_000) == 1
    guard.handed_out(5_000 + MIN_RESERVE)
    assert guard.requires_save


def test_what_no_one_suspects_flows_beside_the_suspects() -> None:
    guard = after_a_death(100)
    save(guard, 1)
    assert guard.new_below() >= 200, "the messages behind the suspects are permitted by the first save"
    guard.admit(list(range(100)), 3, place())
    assert guard.isolation.room(place()) == BESIDE
    assert guard.isolation.room(place(out=BESIDE - 1)) == 1


def test_the_last_delivery_happens_alone_in_its_process() -> None:
    guard = after_a_death(10)
    offsets = list(range(10))
    assert granted(guard, offsets, 2, place()) == [0]
    guard.handed_out_again([0])
    assert guard.admit(offsets[1:], 2, place(out=1)) == []
    assert guard.isolation.room(place(out=1)) == 0
    assert granted(guard, offsets[1:], 2, place(THERE), number=2) == [1]  # at the same time in another process
    third = place("third", out=BESIDE, isolates=False)
    assert guard.admit(offsets[1:], 2, third) == []
    assert guard.isolation.room(third) > BESIDE, "no suspect is to be alone there"


def test_a_process_settles_what_it_has_before_a_suspect_goes_to_it_alone() -> None:
    guard = after_a_death(40)
    lasts, number = list(range(40)), 1
    while lasts and len(lasts) > 40 - BURST:
        (out,) = granted(guard, lasts, 2, place(), number)
        guard.handed_out_again([out])
        guard.settled([out])
        lasts.remove(out)
        number += 1
    save(guard, number)
    assert guard.admit(lasts, 2, place()) == []  # others have waited long enough
    assert guard.isolation.room(place()) == BESIDE
    guard.isolation.flowed(HERE, FLOW)
    assert guard.admit(lasts, 2, place(out=3)) == []
    assert guard.isolation.room(place(out=3)) == 0
    assert granted(guard, lasts, 2, place(), number + 1) == [lasts[0]]


def test_a_process_that_settles_nothing_gets_other_messages_again() -> None:
    guard = after_a_death(2)
    guard.admit([], 2, place())
    guard.isolation.flowed(HERE, FLOW)
    for now_s, room in ((0.0, 0), (DRAIN_S - 1, 0), (DRAIN_S, BESIDE - 5)):
        guard.admit([0, 1], 2, place(out=5, now_s=now_s))
        assert guard.isolation.room(place(out=5)) == room
    assert guard.isolation.is_stalled(HERE)


def test_what_cannot_go_out_alone_makes_room_for_others() -> None:
    """Something of its key came before it, say."""
    guard = after_a_death(10)
    assert granted(guard, [5], 2, place()) == [5]
    for _ in range(30):
        guard.begin([HERE])
        guard.admit([0], 2, place())
    save(guard, 2)
    assert guard.admit([0], 2, place()) == [0]


def test_no_other_message_goes_to_the_process_before_a_save_says_how_the_last_one_ended() -> None:
    guard = after_a_death(1)
    out = granted(guard, [0], 2, place())
    guard.handed_out_again(out)
    guard.settled(out)
    guard.admit([], 2, place())
    assert (guard.suspects, guard.isolates, guard.isolation.room(place()), guard.requires_save) == (0, True, 0, True)
    assert not save(guard, 2)
    assert not guard.isolates
