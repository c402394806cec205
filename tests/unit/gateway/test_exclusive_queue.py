"""Producers that wait for being the only one of their topic: whose turn it is."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from pulsar_on_kafka.gateway.handlers.exclusive_queue import RETRY_INTERVAL_S, WaitingProducer, WaitingProducers


class Waits:
    """What happens to those who wait, in letters: `a?` asks to be let in, `a.` is told to wait, `a!` is fenced out."""

    def __init__(self) -> None:
        self.timers: deque[Callable[[], None]] = deque()
        self.queue = WaitingProducers(self._later)
        self._happened: list[str] = []

    def _later(self, delay_s: float, call: Callable[[], None]) -> None:
        assert delay_s == RETRY_INTERVAL_S
        self.timers.append(call)

    def one(self, name: str, topic: str = "t") -> WaitingProducer:
        def note(what: str) -> Callable[[], None]:
            return lambda: self._happened.append(name + what)

        made = WaitingProducer(topic, note("?"), note("."), note("!"))
        self.queue.come(made)
        return made

    def time_passes(self) -> None:
        for _ in range(len(self.timers)):
            self.timers.popleft()()

    def happened(self) -> str:
        found, self._happened = " ".join(self._happened), []
        return found


def test_the_first_one_asks_and_the_others_wait_behind_it() -> None:
    waits = Waits()
    assert not waits.queue.any_at("t")
    first, second = waits.one("a"), waits.one("b")
    assert waits.happened() == "a? b."
    waits.queue.refused(first)
    waits.time_passes()
    assert waits.happened() == "a. a?"
    waits.queue.leave(first)
    assert waits.happened() == "b?"
    waits.queue.leave(second)
    waits.queue.leave(second)
    assert not waits.queue.any_at("t")
    assert waits.happened() == ""


def test_it_asks_at_once_when_another_producer_leaves() -> None:
    waits = Waits()
    first = waits.one("a")
    waits.queue.refused(first)
    waits.happened()
    waits.queue.left("other")
    waits.queue.left("t")
    assert waits.happened() == "a?"
    waits.queue.left("t")  # while it asks: its answer may be of before
    waits.queue.left("t")
    waits.queue.refused(first)
    assert waits.happened() == "a. a?"
    waits.queue.refused(first)
    assert len(waits.timers) == 1  # however often it asked
    waits.time_passes()
    assert waits.happened() == "a. a?"


def test_one_in_the_middle_goes_without_anybody_asking() -> None:
    waits = Waits()
    first, second, third = waits.one("a"), waits.one("b"), waits.one("c")
    waits.queue.refused(first)
    waits.happened()
    waits.queue.leave(second)
    assert waits.happened() == ""
    waits.queue.leave(first)
    assert waits.happened() == "c?"
    waits.queue.refused(third)
    waits.time_passes()  # the timer of the first one wakes nobody
    assert waits.happened() == "c. c?"


def test_those_who_wait_are_fenced_out_at_one_topic_alone() -> None:
    waits = Waits()
    first = waits.one("a")
    waits.one("b")
    waits.one("x", topic="other")
    waits.queue.refused(first)
    waits.happened()
    waits.queue.fence("t")
    waits.time_passes()
    waits.queue.left("t")
    waits.queue.leave(first)
    assert waits.happened() == "a! b!"
    assert not waits.queue.any_at("t")
    assert waits.queue.any_at("other")
    waits.one("c")
    assert waits.happened() == "c?"
