"""What a connection sends: frames made by any thread, written by the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from typing import Final

CONGESTED_BYTES: Final = 4 * 1024 * 1024
"""Not written yet: consumers of the connection get nothing more until it is half of that."""


class FrameWriter:
    """Thread-safe. Memory: `CONGESTED_BYTES`, and what each consumer is handed at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, told_room: Callable[[], None]) -> None:
        """`told_room` is called by the loop when a client that did not read does so again."""
        self._loop = loop
        self._told_room = told_room
        self._frames: deque[bytes] = deque()
        self._wanted = False
        self._transport: asyncio.Transport | None = None
        self._queued = 0
        """Bytes of `_frames`, about: of two threads that add at once one may not count, until the loop takes them."""
        self._paused = False
        self._written = 0
        """Bytes that were given to the transport."""

    @property
    def congested(self) -> bool:
        """The client does not take what is there for it."""
        return self._paused or self._queued > CONGESTED_BYTES

    def use(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=CONGESTED_BYTES, low=CONGESTED_BYTES // 2)

    def send(self, frames: Collection[bytes]) -> None:
        """Have these frames written, in this order and behind all before."""
        self._frames.extend(frames)
        more = sum(map(len, frames))  # first: threads take turns within calls
        self._queued += more
        if not self._wanted:
            self._want()

    def send_one(self, frame: bytes) -> None:
        self._frames.append(frame)
        more = len(frame)
        self._queued += more
        if not self._wanted:
            self._want()

    def _want(self) -> None:
        self._wanted = True
        try:
            self._loop.call_soon_threadsafe(self.write)
        except RuntimeError:  # the loop is closed, and everything with it
            self._frames.clear()

    def write(self) -> None:
        """For the loop: what is there, in one piece."""
        self._wanted = False  # first: what comes from here on asks again
        much, self._queued = self._queued > CONGESTED_BYTES, 0
        frames = self._frames
        found: list[bytes] = []
        while frames:
            found.append(frames.popleft())
        transport = self._transport
        if found and transport is not None and not transport.is_closing():
            data = b"".join(found)
            self._written += len(data)
            transport.write(data)
        if much and not self._paused:
            self._told_room()

    def progress(self) -> tuple[int, int]:
        """Bytes that the client has not taken, and those that it has. For the loop."""
        waiting = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return waiting, self._written - waiting

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._told_room()
