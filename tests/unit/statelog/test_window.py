"""The newest records of a partition, as somebody who follows it puts them and others take them."""

from __future__ import annotations

import itertools
import threading

from hypothesis import given
from hypothesis import strategies as st

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka.statelog.followed_log import Window

NOW = Deadline.after(0)


def record(offset: int, size: int = 1) -> LogRecord:
    return LogRecord(offset, b"%d" % offset, b"x" * size, 1)


def offsets(found: list[LogRecord] | None) -> list[int] | None:
    return None if found is None else [each.offset for each in found]


def test_who_asks_before_anything_was_heard_had_better_read_by_himself() -> None:
    assert Window(5).take(5, 6, Deadline.never()) is None


def test_records_are_there_from_the_start_to_what_was_reached() -> None:
    window = Window(5)
    window.put([record(5), record(8)], 9)
    assert offsets(window.take(5, 9, NOW)) == [5, 8]
    assert offsets(window.take(6, 9, NOW)) == [8]
    assert offsets(window.take(5, 8, NOW)) == [5]
    assert window.take(4, 9, NOW) is None
    assert window.take(5, 10, NOW) is None


def test_an_end_without_a_record_before_it_is_reached_too() -> None:
    window = Window(5)
    window.put([], 7)
    assert window.take(5, 7, NOW) == []


def test_who_waits_is_woken_by_what_comes() -> None:
    window = Window(0)
    window.put([], 0)
    found: list[list[LogRecord] | None] = []
    waiting = threading.Thread(target=lambda: found.append(window.take(0, 2, Deadline.after(10))))
    waiting.start()
    window.put([record(0)], 1)
    window.put([record(1)], 2)
    waiting.join()
    assert offsets(found[0]) == [0, 1]


def test_who_waits_hears_that_nothing_comes_any_more() -> None:
    window = Window(0)
    window.put([], 0)
    found: list[list[LogRecord] | None] = []
    waiting = threading.Thread(target=lambda: found.append(window.take(0, 2, Deadline.after(10))))
    waiting.start()
    window.end()
    waiting.join()
    assert found == [None]


def test_only_the_newest_are_kept() -> None:
    window = Window(0, max_records=3)
    window.put([record(n) for n in range(5)], 5)
    assert offsets(window.take(2, 5, NOW)) == [2, 3, 4]
    assert window.take(1, 5, NOW) is None


def test_one_record_is_kept_however_large_it_is() -> None:
    window = Window(0, max_bytes=10)
    window.put([record(0), record(1, size=100)], 2)
    assert offsets(window.take(1, 2, NOW)) == [1]
    window.put([record(2)], 3)
    assert offsets(window.take(2, 3, NOW)) == [2]
    assert window.take(1, 3, NOW) is None


@given(
    st.lists(st.integers(1, 3), max_size=30).map(lambda steps: [sum(steps[: n + 1]) for n in range(len(steps))]),
    st.lists(st.integers(0, 30), max_size=5),
    st.integers(0, 100),
    st.integers(0, 100),
    st.integers(1, 10),
)
def test_what_is_taken_is_what_lies_there(present: list[int], cuts: list[int], start: int, end: int, most: int) -> None:
    window = Window(0, max_records=most)
    edges = sorted({0, len(present), *(cut for cut in cuts if cut < len(present))})
    for first, last in itertools.pairwise(edges):
        window.put([record(n) for n in present[first:last]], present[last - 1] + 1)
    found = offsets(window.take(start, end, NOW))
    if found is not None:
        assert found == [n for n in present if start <= n < end]
    elif present and end <= present[-1] + 1:
        assert start <= present[-most - 1] if len(present) > most else start < 0
