"""Writes the frames of one connection: any thread makes them, the event loop writes them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from typing import Final

CONGESTED_BYTES: Final = 4 * 1024 * 1024
"""Bytes that wait for the client: with more its consumers pause, until half of that is left."""


class FrameWriter:
    """Thread-safe. Memory: `CONGESTED_BYTES`, and one delivery of each consumer."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, on_room: Callable[[], None]
    ) -> None:
        """`on_room` is called by the loop when the client reads again."""
        self._loop = loop
        self._transport = transport
        self._on_room = on_room
        self._frames: deque[bytes] = deque()
        self._is_scheduled = False
        self._queued = 0
        """Bytes of `_frames`, about: of two threads that add at once one may not count, until the loop takes them."""
        self._paused = False
        self._written = 0
        """Bytes that the transport was given."""
        transport.set_write_buffer_limits(high=CONGESTED_BYTES, low=CONGESTED_BYTES // 2)

    @property
    def congested(self) -> bool:
        """The client does not read what waits for it."""
        return self._paused or self._queued > CONGESTED_BYTES

    def send(self, frames: Collection[bytes]) -> None:
        """Write these frames, or their parts, in this order and behind all earlier ones."""
        self._frames.extend(frames)
        more = sum(map(len, frames))  # first: threads take turns within calls
        self._queued += more
        if not self._is_scheduled:
            self._schedule()

    def send_one(self, frame: bytes) -> None:
        self._frames.append(frame)
        more = len(frame)
        self._queued += more
        if not self._is_scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._is_scheduled = True
        try:
            self._loop.call_soon_threadsafe(self.write)
        except RuntimeError:  # the loop is closed, and everything with it
            self._frames.clear()

    def write(self) -> None:
        """Write all frames in one piece. For the loop."""
        self._is_scheduled = False  # first: a frame that is added from here on schedules the next write
        was_full, self._queued = self._queued > CONGESTED_BYTES, 0
        frames = self._frames
        found: list[bytes] = []
        while frames:
            found.append(frames.popleft())
        if found and not self._transport.is_closing():
            data = b"".join(found)
            self._written += len(data)
            self._transport.write(data)
        if was_full and not self._paused:
            self._on_room()

    def progress(self) -> tuple[int, int]:
        """Bytes that the client has yet to read, and bytes that it has read. For the loop."""
        waiting = self._transport.get_write_buffer_size()
        return waiting, self._written - waiting

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._on_room()
