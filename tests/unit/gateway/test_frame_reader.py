"""Frames are handled in their order, also when commands need more than their turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from pulsar_on_kafka.gateway.protocol.flow_control import TURN_S
from pulsar_on_kafka.gateway.protocol.frame_reader import MAX_CONNECT_BYTES, FrameReader
from pulsar_on_kafka_mapping.wire.commands import MalformedCommand
from pulsar_on_kafka_mapping.wire.frames import Frame, frame


class Stage:
    def __init__(self, handle: Callable[[Frame], None] = lambda each: None) -> None:
        self.soon = deque[Callable[[], None]]()
        self.reading: list[bool] = []
        self.ended: list[str] = []
        self.handled: list[bytes] = []
        self.now_s = 0.0
        loop: Any = SimpleNamespace(call_soon=self.soon.append)
        transport: Any = SimpleNamespace(
            pause_reading=lambda: self.reading.append(False), resume_reading=lambda: self.reading.append(True)
        )

        def noted(each: Frame) -> None:
            self.handled.append(each.command)
            handle(each)

        def end(reason: str) -> None:
            self.reader.flow.close()
            self.ended.append(reason)

        self.reader = FrameReader(loop, self.soon.append, transport, lambda: False, noted, end, lambda: self.now_s)


def frames(names: str) -> bytes:
    return b"".join(frame(name.encode()) for name in names)


def test_frames_wait_for_the_work_of_a_command() -> None:
    stage = Stage(lambda each: stage.reader.flow.begin_work() if each.command == b"b" else None)
    stage.reader.receive(frames("abcd"))
    assert (stage.handled, stage.reading) == ([b"a", b"b"], [False])
    stage.reader.receive(frames("e"))
    stage.reader.end_work()
    assert stage.handled == [b"a", b"b", b"c", b"d", b"e"]
    assert stage.reading[-1]


def test_work_that_ends_in_its_turn_costs_no_deeper_call() -> None:
    """One read of the socket may bring thousands of such commands."""

    def handle(each: Frame) -> None:
        stage.reader.flow.begin_work()
        stage.reader.end_work()

    stage = Stage(handle)
    stage.reader.receive(frames("a" * 5_000))
    assert len(stage.handled) == 5_000


def test_later_frames_wait_for_the_last_work_of_a_command() -> None:
    done: list[Exception | None] = []
    worked: list[int] = []

    def work(number: int) -> None:
        worked.append(number)
        stage.now_s += 2 * TURN_S

    def handle(each: Frame) -> None:
        if each.command == b"a":
            stage.reader.work_in_turns((partial(work, number) for number in range(3)), done.append)

    stage = Stage(handle)
    stage.reader.receive(frames("ab"))
    assert (worked, done, stage.handled) == ([0], [], [b"a"])
    while stage.soon:
        stage.soon.popleft()()
    assert (worked, done, stage.handled) == ([0, 1, 2], [None], [b"a", b"b"])


def test_a_malformed_command_ends_the_connection() -> None:
    def handle(each: Frame) -> None:
        raise MalformedCommand("no command")

    stage = Stage(handle)
    stage.reader.receive(frames("ab"))
    assert (stage.handled, stage.ended) == ([b"a"], ["no command"])
    assert not stage.reader.receive(frames("c"))


def test_a_malformed_frame_ends_the_connection_after_the_frames_before_it() -> None:
    stage = Stage()
    stage.reader.receive(frames("a") + (MAX_CONNECT_BYTES + 1).to_bytes(4, "big"))
    assert stage.handled == [b"a"]
    assert len(stage.ended) == 1
