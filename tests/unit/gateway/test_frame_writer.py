"""Frames that wait for the loop count as what a client has not taken."""

from __future__ import annotations

import asyncio
from typing import Any

from pulsar_on_kafka.gateway.protocol.frame_writer import CONGESTED_BYTES, FrameWriter


class _Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert (high, low) == (CONGESTED_BYTES, CONGESTED_BYTES // 2)


def test_what_waits_for_the_loop_is_bounded_and_told_when_it_is_taken() -> None:
    loop, told = asyncio.new_event_loop(), []
    try:
        transport = _Transport()
        outgoing = FrameWriter(loop, transport, lambda: told.append(outgoing.congested))
        half = bytes(CONGESTED_BYTES // 2)
        outgoing.send((half, half))
        assert not outgoing.congested
        outgoing.send((b"more",))
        assert outgoing.congested
        outgoing.write()
        assert (transport.written, told) == ([half + half + b"more"], [False])
        outgoing.send((b"one",))
        outgoing.write()
        assert told == [False]  # nobody waited
    finally:
        loop.close()


def test_a_client_that_does_not_take_it_is_told_of_later() -> None:
    loop, told = asyncio.new_event_loop(), []
    try:
        outgoing = FrameWriter(loop, _Transport(), lambda: told.append(outgoing.congested))
        outgoing.pause()
        outgoing.send((bytes(CONGESTED_BYTES + 1),))
        outgoing.write()
        assert outgoing.congested
        assert not told
        outgoing.resume()
        assert told == [False]
    finally:
        loop.close()


def test_what_two_threads_add_at_once_counts() -> None:
    """Else the loop, which has seen that the client is behind, is never told that it is not any more."""
    loop, told = asyncio.new_event_loop(), []
    try:
        outgoing = FrameWriter(loop, _Transport(), lambda: told.append(outgoing.congested))

        class Frame(bytes):
            def __len__(self) -> int:
                outgoing.send_one(bytes(CONGESTED_BYTES + 1))  # of another thread, while this one counts
                assert outgoing.congested
                return super().__len__()

        outgoing.send((Frame(b"one"),))
        assert outgoing.congested
        outgoing.write()
        assert told == [False]
    finally:
        loop.close()
