"""The flow control of a connection: tables of events, and what they leave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Final

import pytest

from pulsar_on_kafka.gateway.protocol.flow_control import MAX_SENDS_IN_FLIGHT, TURN_S, FlowControl
from pulsar_on_kafka_mapping.wire.frames import Frame

HALF: Final = MAX_SENDS_IN_FLIGHT // 2


@dataclass
class Driven:
    """A flow control whose frames are sends of one message."""

    congested: bool = False
    wakes: int = 0
    now_s: float = 0.0
    handled: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.flow = FlowControl(lambda: self.congested, self._wake, lambda: self.now_s, nullcontext())

    def _wake(self) -> None:
        self.wakes += 1

    def receive(self, names: str) -> None:
        self.flow.pending.extend(Frame(name.encode(), b"") for name in names)

    def turn(self, step_s: float = 0.0) -> bool:
        """Handle frames; whether frames are left for the next turn."""

        def handle(each: Frame) -> None:
            self.handled.append(each.command)
            self.now_s += step_s

        return self.flow.handle_frames(handle)

    def send(self, count: int) -> None:
        self.flow.add_sends(count)
        self.turn()


def busy(driven: Driven) -> None:
    driven.flow.begin_work()


def not_busy(driven: Driven) -> None:
    driven.flow.end_work()


def sends(driven: Driven) -> None:
    driven.send(MAX_SENDS_IN_FLIGHT)


def one_more(driven: Driven) -> None:
    driven.send(1)


def half_answered(driven: Driven) -> None:
    driven.flow.answered(HALF + 1)


def does_not_read(driven: Driven) -> None:
    driven.congested = True


def reads(driven: Driven) -> None:
    driven.congested = False


def closed(driven: Driven) -> None:
    driven.flow.close()


Event = Callable[[Driven], None]


@pytest.mark.parametrize(
    ("events", "conditions", "is_read"),
    [
        ([], "", True),
        ([busy], "busy", False),
        ([busy, not_busy], "", True),
        ([sends], "", True),
        ([sends, one_more], "full", False),
        ([sends, one_more, half_answered], "", True),
        ([sends, half_answered], "", True),
        ([sends, one_more, busy, half_answered], "busy", False),
        ([sends, one_more, busy, not_busy], "full", False),
        ([does_not_read], "", False),
        ([does_not_read, reads], "", True),
        ([does_not_read, busy, reads], "busy", False),
        ([does_not_read, busy, not_busy], "", False),
        ([closed], "closed", False),
        ([closed, busy, not_busy], "closed", False),
        ([sends, one_more, closed, half_answered], "closed", False),
    ],
    ids=lambda value: "-".join(each.__name__ for each in value) or "nothing" if isinstance(value, list) else None,
)
def test_conditions(events: Sequence[Event], conditions: str, is_read: bool) -> None:
    driven = Driven()
    for event in events:
        event(driven)
    flow = driven.flow
    found = {"busy": flow.is_busy, "full": flow.is_full, "closed": flow.is_closed}
    assert [name for name, holds in found.items() if holds] == conditions.split()
    assert flow.reads == is_read


@pytest.mark.parametrize(
    ("events", "handled"),
    [
        ([], "abc"),
        ([busy], ""),
        ([busy, not_busy], "abc"),
        ([sends], "abc"),
        ([sends, one_more], ""),
        ([sends, one_more, half_answered], "abc"),
        ([does_not_read], "abc"),  # they were read before
    ],
)
def test_frames(events: Sequence[Event], handled: str) -> None:
    driven = Driven()
    for event in events:
        event(driven)
    driven.receive("abc")
    driven.turn()
    assert b"".join(driven.handled).decode() == handled


def test_the_loop_is_woken_once_when_half_of_a_full_connection_is_answered() -> None:
    driven = Driven()
    driven.send(MAX_SENDS_IN_FLIGHT + 1)
    driven.flow.answered(HALF)
    assert (driven.wakes, driven.flow.is_full) == (0, True)
    driven.flow.answered(1)
    assert (driven.wakes, driven.flow.is_full) == (1, False)
    driven.flow.answered(HALF)
    assert (driven.wakes, driven.flow.in_flight) == (1, 0)


def test_a_turn_that_takes_too_long_leaves_the_other_frames_for_the_next_one() -> None:
    driven = Driven()
    driven.receive("abc")
    assert driven.turn(step_s=TURN_S * 2)
    assert (driven.handled, driven.flow.is_busy) == ([b"a"], True)
    driven.flow.end_work()
    assert not driven.turn()
    assert driven.handled == [b"a", b"b", b"c"]


def test_a_frame_is_handled_again_before_later_ones() -> None:
    driven = Driven()
    driven.receive("bc")
    driven.flow.begin_work()
    driven.flow.end_work(Frame(b"a", b""))
    driven.turn()
    assert driven.handled == [b"a", b"b", b"c"]


def test_a_connection_that_closes_drops_its_frames() -> None:
    driven = Driven()
    driven.receive("abc")
    driven.flow.close()
    driven.turn()
    assert driven.handled == []


def test_a_frame_of_a_closed_connection_is_not_handled_again() -> None:
    driven = Driven()
    driven.flow.begin_work()
    driven.flow.close()
    driven.flow.end_work(Frame(b"a", b""))
    driven.turn()
    assert driven.handled == []
