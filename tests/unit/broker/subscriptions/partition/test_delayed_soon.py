"""Delayed messages are prefetched ahead of their time, within a bound."""

from __future__ import annotations

import random

from pulsar_on_kafka.broker.subscriptions.partition.delayed import (
    MAX_BYTES,
    TICK_MS,
    WINDOW_MS,
    DelayedMessages,
    DelayedSoon,
)

NOW_MS = 1_700_000_000_000


class Record:
    def __init__(self, offset: int, size: int = 100) -> None:
        self._offset = offset
        self._size = size

    def offset(self) -> int:
        return self._offset

    def __len__(self) -> int:
        return self._size


def delayed_by(*delays_ms: int) -> DelayedMessages:
    delayed = DelayedMessages()
    for offset, delay_ms in enumerate(delays_ms):
        delayed.set_aside(offset, NOW_MS + delay_ms)
    delayed.advance(NOW_MS)
    return delayed


def test_what_is_due_within_the_window_is_chosen_by_ascending_offset() -> None:
    soon = DelayedSoon()
    assert soon.choose(delayed_by(50_000, 90_000, 1_000, 3_600_000), NOW_MS) == [0, 2]


def test_what_was_chosen_is_not_chosen_again() -> None:
    soon, delayed = DelayedSoon(), delayed_by(50_000, 1_000)
    assert soon.choose(delayed, NOW_MS) == [0, 1]
    assert soon.choose(delayed, NOW_MS + WINDOW_MS * 3 // 4) == []


def test_the_next_choice_begins_where_the_last_one_ended() -> None:
    soon, delayed = DelayedSoon(), delayed_by(50_000, 1_000, 95_000)
    soon.choose(delayed, NOW_MS)
    delayed.advance(NOW_MS + 45_000)
    assert soon.choose(delayed, NOW_MS + 45_000) == [2]


def test_there_is_never_more_than_fits() -> None:
    soon = DelayedSoon()
    delayed = delayed_by(*(random.Random(1).randrange(WINDOW_MS) for _ in range(3000)))
    offsets = soon.choose(delayed, NOW_MS)
    assert soon.arrived([Record(offset, 100_000) for offset in offsets[:100]])
    assert not soon.arrived([Record(offset, 100_000) for offset in offsets[100:]])
    assert MAX_BYTES <= soon.size_bytes <= MAX_BYTES + 101_000
    taken = soon.take(offsets)
    assert len(taken) == MAX_BYTES // 100_500 + 1
    assert (soon.size_bytes, len(soon)) == (0, 0)


def test_the_earliest_are_chosen_when_there_is_no_room_for_all() -> None:
    soon = DelayedSoon()
    for offset in range(100_000, 100_400):
        soon.keep(offset, NOW_MS, Record(offset, 20_000), NOW_MS)
    few = soon.choose(delayed_by(*(WINDOW_MS - 1 - TICK_MS * n for n in range(590))), NOW_MS)
    assert 0 < len(few) < 590
    assert few == list(range(590 - len(few), 590))


def test_what_was_taken_while_it_was_being_read_is_not_kept() -> None:
    soon = DelayedSoon()
    assert soon.choose(delayed_by(1_000, 2_000), NOW_MS) == [0, 1]
    assert soon.take([0]) == {}
    soon.require_nothing()
    assert soon.arrived([Record(0)])
    assert len(soon) == 0


def test_what_is_being_read_waits_for_that_when_it_is_due() -> None:
    soon, delayed = DelayedSoon(), delayed_by(100, 200)
    soon.choose(delayed, NOW_MS)
    delayed.set_aside(7, NOW_MS + 100)
    delayed.advance(NOW_MS + 1_000)
    assert delayed.has_due_besides(soon.required)
    assert delayed.take_due(10, soon.required) == [7]
    assert not delayed.has_due_besides(soon.required)
    soon.require_nothing()
    assert delayed.take_due(10, soon.required) == [0, 1]


def test_a_record_that_is_set_aside_for_soon_is_kept_at_once() -> None:
    soon = DelayedSoon()
    soon.keep(3, NOW_MS + 5_000, Record(3), NOW_MS)
    soon.keep(4, NOW_MS + WINDOW_MS, Record(4), NOW_MS)
    assert list(soon.take([3, 4])) == [3]
