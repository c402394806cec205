"""Reads the frames of one connection from its socket, and has them handled in their order."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from pulsar_on_kafka.gateway.protocol.flow_control import FlowControl
from pulsar_on_kafka_mapping.wire.commands import MalformedCommand
from pulsar_on_kafka_mapping.wire.frames import Frame, FrameCutter, MalformedFrame

MAX_CONNECT_BYTES: Final = 64 * 1024
"""Bytes of a frame before the client has logged in."""


class FrameReader:
    """For the event loop. Memory: what `FlowControl` says, and one incomplete frame."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        soon: Callable[[Callable[[], None]], None],
        transport: asyncio.Transport,
        is_congested: Callable[[], bool],
        handle: Callable[[Frame], None],
        end: Callable[[str], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`soon` has the loop call a function, from any thread. `handle` raises MalformedCommand, which ends the
        connection."""
        self.flow = FlowControl(is_congested, lambda: soon(self._resume), now_s, threading.Lock())
        self._loop = loop
        self._transport = transport
        self._handle = handle
        self._end = end
        self._cutter = FrameCutter(MAX_CONNECT_BYTES)
        self._is_handling = False

    def accept_large_frames(self, max_bytes: int) -> None:
        self._cutter.max_bytes = max_bytes

    def receive(self, data: bytes) -> bool:
        """Returns whether a frame is complete."""
        flow = self.flow
        if flow.is_closed:
            return False
        try:
            frames, failure = self._cutter.feed(data), ""
        except MalformedFrame as malformed:
            frames, failure = list(malformed.before), str(malformed)
        flow.pending.extend(frames)
        if not flow.is_busy:
            self._handle_frames()
        if failure and not flow.is_closed:
            self._end(failure)
        return bool(frames)

    def _handle_frames(self) -> None:
        flow = self.flow
        self._is_handling = True
        try:
            are_left = flow.handle_frames(self._handle)
        except MalformedCommand as malformed:
            self._end(str(malformed))
            return
        finally:
            self._is_handling = False
        if are_left:
            self._loop.call_soon(self.end_work)
        if flow.is_busy or flow.is_full:
            self._transport.pause_reading()

    def _resume(self) -> None:
        if not self.flow.is_busy:
            self._handle_frames()
        self.read_if_possible()

    def read_if_possible(self) -> None:
        if self.flow.reads:
            self._transport.resume_reading()

    def end_work(self, again: Frame | None = None) -> None:
        """Continue after `FlowControl.begin_work`; `again` is handled first."""
        self.flow.end_work(again)
        if not self._is_handling:  # else the present turn continues: one read may bring thousands of frames
            self._resume()

    def work_in_turns(self, works: Iterable[Callable[[], object]], done: Callable[[Exception | None], None]) -> None:
        """Do the works of one command, the first of them in the present turn. Later frames wait for the last one."""
        flow, left = self.flow, iter(works)

        def are_done() -> bool:
            try:
                for work in () if flow.is_closed else left:
                    work()
                    if flow.turn_is_over:
                        self._loop.call_soon(work_on)
                        return False
            except Exception as failure:
                done(failure)
            else:
                done(None)
            return True

        def work_on() -> None:
            flow.begin_turn()
            if are_done():
                self.end_work()

        if not are_done():
            flow.begin_work()
