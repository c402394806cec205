"""Flow control of one connection: when its frames are handled, and when its socket is read. Pure.

Frames are handled in their order. Four conditions stop that, in any combination:

| condition | begins | ends | frames that were received |
|---|---|---|---|
| busy | a command needs more than its turn, or the turn takes too long | `end_work` | wait |
| full | more than `MAX_SENDS_IN_FLIGHT` sends have no answer | half of them have | wait above the limit |
| congested | the client does not read what is written (`FrameWriter`) | the client reads | are handled |
| closed | `close` | never | are dropped |

The socket is read while no condition holds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from pulsar_on_kafka_mapping.wire.frames import Frame

MAX_SENDS_IN_FLIGHT: Final = 1_000
"""Messages of one connection without an answer: above it the socket is not read, until it is half of that. As in
Pulsar."""
TURN_S: Final = 0.02
"""The time of a turn: other connections are served after it, and after the step that exceeds it."""


class FlowControl:
    """All but `answered` is for the event loop. Memory: the frames of one read of the socket."""

    def __init__(
        self,
        is_congested: Callable[[], bool],
        wake: Callable[[], None],
        now_s: Callable[[], float],
        lock: AbstractContextManager[object],
    ) -> None:
        """`wake` is called by any thread when the connection is no longer full. `now_s` is the monotonic clock."""
        self.sent = 0
        """Sends that were begun; each counts before it can be answered."""
        self.is_busy = False
        self.is_full = False
        self.is_closed = False
        self._is_congested = is_congested
        self._wake = wake
        self._now_s = now_s
        self._answered = 0
        self._lock = lock
        """The lock of `is_full` and `_answered`."""
        self.pending = deque[Frame]()
        """Frames that were received and not handled."""
        self._turn_end_s = 0.0

    @property
    def reads(self) -> bool:
        return not (self.is_busy or self.is_full or self.is_closed or self._is_congested())

    @property
    def in_flight(self) -> int:
        return self.sent - self._answered

    @property
    def turn_is_over(self) -> bool:
        return self._now_s() > self._turn_end_s

    def begin_turn(self) -> None:
        self._turn_end_s = self._now_s() + TURN_S

    def handle_frames(self, handle: Callable[[Frame], None]) -> bool:
        """Handle frames in a turn. Returns whether frames are left for the next turn, which begins with `end_work`."""
        pending, now_s = self.pending, self._now_s
        self._turn_end_s = end_s = now_s() + TURN_S
        while pending and not self.is_busy and self.sent - self._answered <= MAX_SENDS_IN_FLIGHT:
            handle(pending.popleft())
            if pending and now_s() > end_s:
                break
        if self.sent - self._answered > MAX_SENDS_IN_FLIGHT:
            with self._lock:  # an answer may come now
                self.is_full = self.in_flight > MAX_SENDS_IN_FLIGHT
        if pending and not self.is_busy and not self.is_full:
            self.is_busy = True
            return True
        return False

    def add_sends(self, sends: int) -> None:
        self.sent += sends

    def begin_work(self) -> None:
        """A command needs more than its turn."""
        self.is_busy = True

    def end_work(self, again: Frame | None = None) -> None:
        """The command is finished, or `again` is its frame, to be handled anew."""
        self.is_busy = False
        if again is not None and not self.is_closed:
            self.pending.appendleft(again)

    def answered(self, sends: int) -> None:
        """So many sends have their answer. Any thread."""
        with self._lock:
            self._answered += sends
            wakes = self.is_full and self.sent - self._answered <= MAX_SENDS_IN_FLIGHT // 2
            if wakes:
                self.is_full = False
        if wakes:
            self._wake()

    def close(self) -> None:
        self.is_closed = True
        self.pending.clear()
