"""Calls are made at the same time, and answered in their order."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from pulsar_on_kafka.base.worker import side_by_side


def test_they_are_made_at_the_same_time_and_answered_in_order() -> None:
    meet = threading.Barrier(3, timeout=20)

    def call(number: int) -> int:
        meet.wait()
        return number

    assert side_by_side([partial(call, number) for number in range(6)], at_once=3) == list(range(6))
    assert side_by_side([]) == []
    assert side_by_side([threading.current_thread]) == [threading.current_thread()]


def test_all_are_done_when_one_fails() -> None:
    done = []

    def call(number: int) -> None:
        if number in (1, 3):
            raise ValueError(number)
        done.append(number)

    with pytest.raises(ValueError, match="1"):
        side_by_side([partial(call, number) for number in range(5)], at_once=2)
    assert sorted(done) == [0, 2, 4]
