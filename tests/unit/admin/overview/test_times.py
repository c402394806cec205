"""Landmarks in a log tell when its entries were published."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pulsar_on_kafka.admin.overview.times import MAX_LANDMARKS, Landmarks, Published, time_to_request


def test_what_the_log_had_at_a_time_was_published_before_it() -> None:
    marks = Landmarks()
    marks.note(1_000, 10)
    marks.note(2_000, 30)
    assert marks.of(9) == Published(None, 1_000)
    assert marks.of(10) == Published(1_000, 2_000)
    assert marks.of(29) == Published(1_000, 2_000)
    assert marks.of(30) is None


def test_an_answer_of_kafkas_is_a_landmark_between_others() -> None:
    marks = Landmarks()
    marks.note(9_000, 100)
    marks.note(5_000, 60)
    assert marks.of(70) == Published(5_000, 9_000)
    assert marks.of(59) == Published(None, 5_000)


def test_a_log_that_does_not_grow_needs_two_landmarks() -> None:
    marks = Landmarks()
    for time_ms in range(1_000, 60_000, 1_000):
        marks.note(time_ms, 7)
    assert marks.of(6) == Published(None, 1_000)
    marks.note(60_000, 8)
    assert marks.of(7) == Published(59_000, 60_000)


def test_clocks_that_contradict_each_other_spoil_no_order() -> None:
    marks = Landmarks()
    marks.note(1_000, 50)
    marks.note(3_000, 70)
    marks.note(2_000, 90)
    assert marks.of(60) == Published(1_000, 2_000)
    marks.note(1_500, 10)
    assert marks.of(40) == Published(None, 1_000)


def test_what_nobody_asks_for_is_forgotten() -> None:
    marks = Landmarks()
    marks.note(1_000, 10)
    marks.note(2_000, 20)
    marks.note(3_000, 30)
    marks.forget_below(20)
    assert marks.of(19) == Published(None, 2_000)
    assert marks.of(20) == Published(2_000, 3_000)


@given(st.lists(st.integers(1, 1_000), min_size=1, max_size=200), st.data())
def test_an_age_is_never_told_too_great_and_is_told_within_a_third(growths: list[int], data: st.DataObject) -> None:
    """A log that grows by these, with the clock going one second each time, noted every time."""
    marks, ends = Landmarks(), [0]
    for number, growth in enumerate(growths):
        ends.append(ends[-1] + growth)
        marks.note(number * 1_000, ends[-1])
    offset = data.draw(st.integers(0, ends[-1] - 1))
    published = next(number for number, end in enumerate(ends) if end > offset) - 1
    told, now_ms = marks.of(offset), len(growths) * 1_000
    assert told is not None
    assert told.before_ms >= published * 1_000
    assert told.after_ms is None or told.after_ms < published * 1_000
    assert len(marks._times_ms) <= MAX_LANDMARKS
    if told.after_ms is not None:
        assert now_ms - told.before_ms >= (now_ms - published * 1_000) / 4 - 1_000


@given(st.integers(1, 9 * 365 * 86_400_000), st.integers(1, 1_000))
def test_asking_finds_any_age_within_a_tenth_in_ten_questions(age_ms: int, entries: int) -> None:
    now_ms = 1_800_000_000_000
    published_ms, offset = now_ms - age_ms, entries - 1
    marks = Landmarks()
    marks.note(now_ms, entries)
    for _ in range(10):
        known = marks.of(offset)
        assert known is not None
        time_ms = time_to_request(known, now_ms, 1_000)
        if time_ms is None:
            break
        marks.note(time_ms, offset if time_ms <= published_ms else entries)
    known = marks.of(offset)
    assert known is not None
    assert known.before_ms > published_ms
    told_ms = now_ms - known.before_ms
    assert age_ms - told_ms <= max(1_000, age_ms * 0.1)
