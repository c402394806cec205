"""The keep-alive of one connection: when its client gets a PING, and when it counts as gone. Pure."""

from __future__ import annotations

from enum import Enum
from typing import Final

INTERVAL_S: Final = 30.0
"""An idle client gets a PING after this, and is disconnected after twice that."""


class Verdict(Enum):
    """The action of a connection at the end of an interval."""

    CONTINUE = "continue"
    PING = "ping"
    SILENT = f"the client sent nothing for {2 * INTERVAL_S:g} s"
    DOES_NOT_READ = f"the client read nothing for {2 * INTERVAL_S:g} s"


class KeepAlive:
    """Judges a connection at the end of each interval."""

    def __init__(self) -> None:
        self.has_received = False
        """The client has sent a frame in this interval."""
        self._ping_sent = False
        self._taken = 0
        self._did_not_read = False

    def judge(self, *, is_read: bool, waiting: int, taken: int) -> Verdict:
        """The verdict of an interval.

        Args:
            is_read: the connection reads what its client sends; frames that are not read cannot prove it alive.
            waiting: bytes that the client has yet to read.
            taken: bytes that it has read since the connection began.
        """
        received, self.has_received = self.has_received, False
        stands_still = waiting > 0 and taken == self._taken
        self._taken = taken
        if stands_still and self._did_not_read:
            return Verdict.DOES_NOT_READ
        self._did_not_read = stands_still
        if received or not is_read:
            self._ping_sent = False
            return Verdict.CONTINUE
        if self._ping_sent:
            return Verdict.SILENT
        self._ping_sent = True
        return Verdict.PING
