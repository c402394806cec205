"""Messages that are not yet due, beside a set that is looked through."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from pulsar_on_kafka.broker.subscriptions.partition.delayed import TICK_MS
from pulsar_on_kafka.scaler.delayed_offsets import DelayedOffsets

NOW_MS = 1_800_000_000_000
OFFSETS = st.integers(0, 30)
STEPS = st.lists(st.tuples(OFFSETS, st.integers(0, 40), st.sets(OFFSETS), st.integers(0, 10)), max_size=20)


@given(STEPS)
def test_those_count_that_are_unacknowledged_and_whose_time_has_not_come(
    steps: list[tuple[int, int, set[int], int]],
) -> None:
    counted, due, now, first = DelayedOffsets(0), dict[int, int](), 0, 0
    read = set[int]()  # once, as a message has one time
    for offset, delay, unacknowledged, passes in steps:
        if delay and offset not in read and offset >= first:
            read.add(offset)
            due[offset] = now + delay
            counted.add(offset, NOW_MS + due[offset] * TICK_MS)
        now += passes
        first = min(unacknowledged | {31}) if passes % 2 else first
        expected = {each for each in unacknowledged if due.get(each, 0) > now and each >= first}
        assert counted.not_due(BitMap64(unacknowledged), first, NOW_MS + now * TICK_MS) == len(expected)
        due = {each: time for each, time in due.items() if each >= first}


def test_a_cursor_that_was_set_back_and_another_log_are_noticed() -> None:
    counted = DelayedOffsets(5)
    counted.position = 9
    assert not counted.begins_after(5, 9)
    assert counted.begins_after(4, 9)
    assert counted.begins_after(5, 8)
    assert counted.not_due(BitMap64(), 7, NOW_MS) == 0
    assert counted.begins_after(6, 9), "those below 7 were forgotten"


def test_acknowledged_ones_do_not_stay_in_memory() -> None:
    counted = DelayedOffsets(0)
    for offset in range(10_000):
        counted.add(offset, NOW_MS + 3_600_000)
    assert counted.not_due(BitMap64(range(9_990, 10_000)), 9_990, NOW_MS) == 10
    assert len(counted) == 10
